"""Pictures by path: named in a message, quoted, or dragged into a terminal; sent as data: URLs."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bushel.core import BushelError

# How files begin that a server takes.
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"RIFF", "webp"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
)
_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
_MOST = 48 << 20  # bytes; as a data: URL a third more, and a server takes 64 MiB
# A word of a message: in quotes, or with spaces that a backslash stands before.
_WORD = re.compile(r"""'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s\\])+)""")


def is_picture(path: Path) -> bool:
    """By its name, and then by what it begins with."""
    if path.suffix.lower() not in _SUFFIXES:
        return False
    try:
        return path.is_file() and _kind(path) is not None
    except (OSError, ValueError):  # names that no file can have
        return False


def _kind(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(16)
    for sign, kind in _KINDS:
        if head.startswith(sign) and (kind != "webp" or head[8:12] == b"WEBP"):
            return kind
    return None


def path_of(word: str) -> Path:
    """As a shell, or a terminal that something was dragged into, writes it."""
    if word.startswith("file://"):
        return Path(unquote(urlsplit(word).path))
    if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"":
        word = word[1:-1]
    else:
        word = re.sub(r"\\(.)", r"\1", word)
    return Path(os.path.expanduser(word))


def take_pictures(message: str) -> tuple[str, list[Path]]:
    """A message without the paths of pictures in it, and these."""
    found: list[Path] = []

    def taken(match: re.Match[str]) -> str:
        path = path_of(match[0])
        if not is_picture(path):
            return match[0]
        found.append(path)
        return ""

    rest = _WORD.sub(taken, message)
    return (re.sub(r"[ \t]+", " ", rest).strip() if found else message), found


def data_url(path: Path) -> str:
    """BushelError in one line if it is no picture that can be sent."""
    try:
        kind, size = _kind(path), path.stat().st_size
        if kind is None:
            formats = "PNG, JPEG, WebP, GIF, BMP or TIFF"
            raise BushelError(f"{path} is no picture that can be sent: {formats}.")
        if size > _MOST:
            raise BushelError(f"{path} has {size >> 20} MB, and {_MOST >> 20} can be sent.")
        return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    except OSError as error:
        raise BushelError(f"{path} cannot be read: {error.strerror}.") from None
