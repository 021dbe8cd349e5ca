"""The bytes that a client sends inside a data: URL, or that stand in a local file.

Nothing here says where in a request something is wrong: `chat.media.decode` does.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import stat
from pathlib import PurePath
from urllib.parse import unquote_to_bytes

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BASE64_MARK = re.compile(r";\s*base64\s*$", re.IGNORECASE)
_SLACK = 1024  # padding, and a few line breaks in something small
_PIECE = 1 << 16
_MOST_FRAMES = 1 << 16  # in one URL; what is behind them is broken base64
_BASE64_TEXT = re.compile(r"[A-Za-z0-9+/_\s-]+={0,2}\s*", re.ASCII)
# How files begin that are decoded here, as base64 has it.
_BEGINNINGS = (
    "iVBORw0KGgo",  # PNG
    "/9j/",  # JPEG
    "_9j_",
    "R0lGODlh",  # GIF
    "R0lGODdh",
    "UklGR",  # WebP, AVI
    "Qk",  # BMP
    "SUkqA",  # TIFF
    "TU0AK",
    "AAAA",  # MP4, QuickTime
    "GkXfo",  # WebM, Matroska
)
_LOOKED = 4096  # characters, more than a path has
_SHORTEST = 32  # the smallest GIF has 26 bytes, which are 35 of them
_SPACE = b" \t\r\n\f\v"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class UnusableMedia(Exception):
    """Media that cannot be used, and why: one sentence, for the client who sent it.

    It never holds an address, a path of this machine, or the text of an exception.
    """


def scheme_of(url: str) -> str:
    """In lower case; empty for a path."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else ""


def too_large(most_bytes: int) -> UnusableMedia:
    return UnusableMedia(
        f"It is larger than the {most_bytes} bytes that one image or video may have."
    )


def from_data(url: str, most_bytes: int) -> bytes:
    """What a data: URL holds. Its type is not believed: the bytes themselves tell what they are."""
    head, comma, body = url.partition(",")
    if not comma:
        raise UnusableMedia("A data: URL has no comma between its type and its data.")
    packed = _BASE64_MARK.search(head[-100:]) is not None
    # Even with every character escaped: three make a byte, or four if they are base64.
    if len(body) > (4 if packed else 3) * most_bytes + _SLACK:
        raise too_large(most_bytes)
    data = _unescaped(body)
    if packed:
        data = _unpacked(data, most_bytes)
    if len(data) > most_bytes:
        raise too_large(most_bytes)
    return data


def frames_in(url: str) -> list[str] | None:
    """The frames of a data: URL that holds several, with commas between them, as URLs of their
    own; None if it is anything else. vLLM's clients send a video so, as video/jpeg.
    """
    if scheme_of(url) != "data":
        return None
    head, _, body = url.partition(",")
    if _BASE64_MARK.search(head[-100:]) is None:
        return None
    if "," not in body and not head.lower().startswith("data:video/jpeg"):
        return None
    return [f"data:;base64,{frame}" for frame in body.split(",", _MOST_FRAMES)]


def _unescaped(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    if b"%" not in data:
        return data
    decoded = bytearray()
    at = 0
    while at < len(data):  # piece by piece: all at once takes fifteen times the memory
        end = at + _PIECE
        cut = data.rfind(b"%", end - 2, end)  # an escape stays in one piece
        end = cut if cut >= 0 else end
        decoded += unquote_to_bytes(data[at:end])
        at = end
    return bytes(decoded)


def _unpacked(data: bytes, most_bytes: int) -> bytes:
    """Base64 as clients write it: in one line or many, of the plain or the URL-safe kind, with its
    padding or without.
    """
    plain = data.translate(None, _SPACE)
    if len(plain) // 4 * 3 > most_bytes + 3:
        raise too_large(most_bytes)
    plain = plain.translate(_URL_SAFE).rstrip(b"=")
    plain += b"=" * (-len(plain) % 4)
    try:
        return base64.b64decode(plain, validate=True)
    except binascii.Error:
        raise UnusableMedia("It holds broken base64.") from None


def is_base64(text: str) -> bool:
    """Whether it is a file itself, without a data: URL around it. A path can look like that, too,
    but not begin as a picture or a film does.
    """
    if len(text) < _SHORTEST or not text.startswith(_BEGINNINGS):
        return False
    return _BASE64_TEXT.fullmatch(text, 0, _LOOKED) is not None


def from_base64(text: str, most_bytes: int) -> bytes:
    if len(text) > 2 * most_bytes + _SLACK:
        raise too_large(most_bytes)
    return _unpacked(text.encode("utf-8", "replace"), most_bytes)


def from_file(url: str, folder: str | None, most_bytes: int) -> bytes:
    """What a regular file below `folder` holds; `url` is a path or a file: URL.

    Links are followed before it is decided whether the file is below; a relative path starts at
    the folder, or where the process runs if that folder is the root.
    """
    if folder is None:
        raise UnusableMedia("Local files are not opened here; send a data: URL instead.")
    name = _path(url)
    root = os.path.realpath(folder)
    real = os.path.realpath(name if root == "/" else os.path.join(root, name))
    if not _is_below(root, real):
        raise UnusableMedia("The media file is not below the folder that media may come from.")
    try:
        return _read(real, most_bytes)
    except OSError as error:  # not str(error), which repeats the name, however long
        raise UnusableMedia(f"The media file cannot be read: {error.strerror}.") from None


def _is_below(root: str, real: str) -> bool:
    """By what the folders are, if not by how they are written: `Pictures` is `pictures` on most
    Macs, and an accent may be written in two ways.
    """
    if os.path.commonpath([root, real]) == root:
        return True
    with contextlib.suppress(OSError, ValueError):
        folder = os.stat(root)
        return any(os.path.samestat(folder, os.stat(above)) for above in PurePath(real).parents)
    return False


def _path(url: str) -> str:
    scheme = scheme_of(url)
    name = url
    if scheme == "file":
        rest = url[len("file:") :]
        if rest.startswith("//"):
            host, slash, rest = rest[2:].partition("/")
            rest = slash + rest
            if host.lower() not in ("", "localhost"):
                raise UnusableMedia("A file: URL names another host.")
        if not rest.startswith("/") or "?" in rest or "#" in rest:
            raise UnusableMedia("A file: URL needs an absolute path, with ? and # percent-encoded.")
        name = os.fsdecode(unquote_to_bytes(rest))
    elif scheme and url[len(scheme) :].startswith("://"):
        raise UnusableMedia(f"URLs of the scheme {scheme[:20]} are not opened.")
    try:
        good = b"\0" not in os.fsencode(name) and bool(name)
    except UnicodeError:
        good = False
    if not good:
        raise UnusableMedia(
            "The media file cannot be read: its name is not one that a file can have."
        )
    return name


def _read(path: str, most_bytes: int) -> bytes:
    # To open a device may already do something.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise UnusableMedia("The media file cannot be read: it is not a regular file.")
    # What has become a link or a pipe since is not followed, and does not block.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UnusableMedia("The media file cannot be read: it is not a regular file.")
        data = file.read(most_bytes + 1)  # some files tell no size, or a wrong one
    if len(data) > most_bytes:
        raise too_large(most_bytes)
    return data
