"""Content of messages and results: text, or parts of text, images, videos and files."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import unquote_to_bytes

from bushel.chat.media.frame_sampling import OPTIONS
from bushel.server.api.errors import InvalidField, unsupported

Content = str | list[dict[str, Any]]

MOST_PARTS = 4096
_MOST_ESCAPES = 1 << 18  # in a data URL; each is an object for a moment
# Texts under the names that the roles have for them.
_TEXTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
# Media, under the name that an URL of one has. OpenAI's API has no place for a video but a file.
_MEDIA = {"input_image": "image_url", "input_video": "video_url"}
_PARTS = ("input_text", "output_text", "refusal", "input_image", "input_video", "input_file")


def content_of(where: str, content: Any, *, silent: bool = False) -> Content:
    """In the internal form; a single text is a string. silent: it may be empty or null."""
    if isinstance(content, str):
        return content
    if silent and not content and (content is None or isinstance(content, list)):
        return ""
    if not isinstance(content, list):
        raise InvalidField(where, "must be a string or a list of parts")
    if not 1 <= len(content) <= MOST_PARTS:
        raise InvalidField(where, f"must have between 1 and {MOST_PARTS} parts")
    parts = [_part(f"{where}[{at}]", part) for at, part in enumerate(content)]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def text_of(parts: Any) -> str:
    """The texts among the parts, as paragraphs; for what is no conversation by itself."""
    if isinstance(parts, str):
        return parts
    listed = parts if isinstance(parts, list) else []
    texts = [part.get("text") for part in listed if isinstance(part, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _part(where: str, part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise InvalidField(where, "must be an object")
    kind = part.get("type")
    if isinstance(kind, str) and kind in _TEXTS:
        text = part.get(_TEXTS[kind])
        if not isinstance(text, str):
            raise InvalidField(f"{where}.{_TEXTS[kind]}", "must be a string")
        return {"type": "text", "text": text}
    if isinstance(kind, str) and kind in _MEDIA:
        return _media(where, part, _MEDIA[kind])
    if kind == "input_file":
        return _file(where, part)
    raise InvalidField(f"{where}.type", f"must be one of {', '.join(_PARTS)}")


def _media(where: str, part: dict[str, Any], key: str) -> dict[str, Any]:
    url = part.get(key)
    if isinstance(url, dict):
        url = url.get("url")
    if url is None and part.get("file_id") is not None:
        raise _no_files(f"{where}.file_id")
    if not isinstance(url, str) or not url:
        raise InvalidField(f"{where}.{key}", "must be a URL")
    options = {name: part[name] for name in OPTIONS if name in part and key == "video_url"}
    return {"type": key, key: {"url": url}, **options}


def _file(where: str, part: dict[str, Any]) -> dict[str, Any]:
    for key in ("file_id", "file_url"):
        if part.get(key) is not None:
            raise _no_files(f"{where}.{key}")
    data, name = part.get("file_data"), part.get("filename")
    here = f"{where}.file_data"
    if not isinstance(data, str) or not data.startswith("data:"):
        raise InvalidField(here, "must be a data URL")
    head, _, payload = data.removeprefix("data:").partition(",")
    for key in ("image", "video"):
        if head.startswith(f"{key}/"):
            return {"type": f"{key}_url", f"{key}_url": {"url": data}}
    if not _is_text(head.partition(";")[0]):
        rule = "must hold a text, an image or a video; other files are not supported"
        raise unsupported(here, rule)
    if payload.count("%") > _MOST_ESCAPES:
        raise InvalidField(here, "has too many escapes: write it in base64")
    try:
        raw = base64.b64decode(payload) if head.endswith(";base64") else unquote_to_bytes(payload)
        text = raw.decode()
    except (binascii.Error, ValueError):
        raise InvalidField(here, "does not hold text in UTF-8") from None
    return {"type": "text", "text": f"{name}:\n{text}" if isinstance(name, str) else text}


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in ("application/json", "application/xml")


def _no_files(where: str) -> InvalidField:
    return unsupported(where, "is not supported: this server keeps no files; send the data itself")
