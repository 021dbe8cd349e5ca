"""Images and videos as clients send them, to decoded pictures, under rules.

Sizes are read from headers before anything is decoded, and what a file says of itself is checked
again against what comes out of it. What still takes too long here ends with its process.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from bushel.chat.media.fetch import Fetcher
from bushel.chat.media.media_source import (
    UnusableMedia,
    from_base64,
    from_data,
    from_file,
    is_base64,
    scheme_of,
)
from bushel.core import RequestError
from bushel.core.wire import MediaRules

# Of scripts, whose files are their own.
OWN = MediaRules(folder="/", most_items=1024, most_bytes=4 << 30, memory=4 << 30)

# Pillow warns of what `_check_size` refuses, and raises beyond twice its own limit.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
_BOMB = "A picture of so many pixels is too large: it is never decoded."

# What Pillow may take the bytes for. Others start programs (EPS), draw (SVG, PDF, WMF), or have
# decoders that few people use and fewer attack.
_PICTURES = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
_MOVING = ("GIF", "WEBP", "PNG")
# How films begin that are one file; playlists and the like would make the decoder open others.
_FILMS = (
    (4, b"ftyp"),  # MP4, QuickTime, 3GP
    (0, b"\x1a\x45\xdf\xa3"),  # WebM, Matroska
    (8, b"AVI "),
)
# In pictures of the largest size. All that one request may hold: 1 GiB at the default, at
# Pillow's four bytes a pixel, which the processor copies a few times.
_MOST_HELD = 4
# Bytes of memory that a pixel takes: Pillow's four, the array a processor makes of it, and what
# it makes of that. Measured: 14 for one picture of 64 million, 11 for two.
_PIXEL = 16
# To reach the last frame that is used all before it are decoded: 20 minutes of 1080p at the
# default, which is more than a minute's work.
_MOST_DECODED = 1024
# One request may spend so many times the limit of one fetch.
_FETCHES = 3


class Intake:
    """The images and videos of one request, taken in one after the other.

    `items` holds an image, or a list of frames, for each.
    """

    def __init__(self, rules: MediaRules):
        self.rules = rules
        self.items: list[Any] = []
        self._pixels = 0
        self._fetch_seconds = _FETCHES * rules.fetch_seconds

    def take(self, where: str, kind: str, source: Any) -> None:
        """`source` is what a part of type `kind` holds; `where` names it in what is refused."""
        try:
            if len(self.items) >= self.rules.most_items:
                most = self.rules.most_items
                raise UnusableMedia(
                    f"A request may hold {most} images and videos, and this is one more."
                )
            self._count(kind)
            item = self._opened(kind, source)
            frames = item if isinstance(item, list) else [item]
            self._pixels += sum(frame.width * frame.height for frame in frames)
            if self._pixels > _most_held(self.rules):
                raise UnusableMedia(
                    "With it, the images and videos of the request have too many pixels."
                )
        except UnusableMedia as error:
            raise RequestError(
                f"{where}: {error}", code="invalid_media", param="messages"
            ) from error.__cause__
        self.items.append(item)

    def _count(self, kind: str) -> None:
        moving = _moves(kind)
        most = self.rules.most_videos if moving else self.rules.most_images
        if (
            most is not None
            and sum(isinstance(item, list) is moving for item in self.items) >= most
        ):
            what = "videos" if moving else "images"
            raise UnusableMedia(f"A request may hold {most} {what} here, and this is one more.")

    def _opened(self, kind: str, source: Any) -> Any:
        """A URL as clients send it, or what a script has: a path, bytes of a file, a picture."""
        source = source.get("url") if isinstance(source, Mapping) else source
        moving = _moves(kind)
        if isinstance(source, Image.Image | np.ndarray):
            if moving:
                raise UnusableMedia(f"{kind} needs a file, not one picture.")
            return from_pixels(source, self.rules)
        if isinstance(source, PurePath):
            source = str(source)
        if isinstance(source, bytes | bytearray | memoryview):
            data = bytes(source)
        elif isinstance(source, str) and source:
            data = self._read(source)
        else:
            own = "a path, a url, bytes, a PIL image or an array"
            raise UnusableMedia(f"{kind} needs {'a url' if kind.endswith('_url') else own}.")
        return open_video(data, self.rules) if moving else open_image(data, self.rules)

    def _read(self, url: str) -> bytes:
        rules = self.rules
        if is_base64(url):
            return from_base64(url, rules.most_bytes)
        match scheme_of(url):
            case "data":
                return from_data(url, rules.most_bytes)
            case "http" | "https":
                return self._fetched(url)
            case _:
                return from_file(url, rules.folder, rules.most_bytes)

    def _fetched(self, url: str) -> bytes:
        if not self.rules.remote:
            raise UnusableMedia("Remote media is not fetched; send a data: URL instead.")
        began = time.monotonic()
        seconds = min(self.rules.fetch_seconds, self._fetch_seconds)
        try:
            return Fetcher(self.rules.domains, self.rules.most_bytes).fetch(url, seconds)
        finally:
            self._fetch_seconds = max(0.0, self._fetch_seconds - (time.monotonic() - began))


def _moves(kind: str) -> bool:
    return kind.removesuffix("_url") == "video"


def open_image(data: bytes, rules: MediaRules = OWN) -> Image.Image:
    """The first picture in it, as mlx-vlm's own loader turns and converts it."""
    try:
        image = Image.open(io.BytesIO(data), formats=_PICTURES)
        _check_size(*image.size, rules)
        image.load()
        return _upright(image, rules)
    except UnusableMedia:
        raise
    except UnidentifiedImageError:
        raise UnusableMedia(
            "The image cannot be decoded: it is no PNG, JPEG, WebP, GIF, BMP or TIFF."
        ) from None
    except Image.DecompressionBombError:
        raise UnusableMedia(_BOMB) from None
    except MemoryError:
        raise
    except Exception:  # a broken file raises whatever its decoder stumbles over
        raise UnusableMedia("The image cannot be decoded: it is broken or cut off.") from None


def from_pixels(picture: Image.Image | np.ndarray, rules: MediaRules = OWN) -> Image.Image:
    """A picture that a script has in memory. Of an array nobody can tell what its numbers mean,
    unless they are bytes."""
    if isinstance(picture, np.ndarray):
        grey = picture.ndim == 2
        coloured = picture.ndim == 3 and picture.shape[2] in (3, 4)
        if picture.dtype != np.uint8 or not (grey or coloured):
            raise UnusableMedia(
                "An array must be of uint8, and (height, width), or that and 3 or 4 channels, "
                f"not {picture.dtype} {picture.shape}."
            )
        picture = Image.fromarray(picture)
    return _upright(picture, rules)


def _upright(image: Image.Image, rules: MediaRules) -> Image.Image:
    _check_size(*image.size, rules)
    return _coloured(ImageOps.exif_transpose(image), rules)


def _coloured(image: Image.Image, rules: MediaRules) -> Image.Image:
    """In three bytes a pixel, and large enough for a processor: of a few pixels, all are larger."""
    if image.mode.startswith("I"):  # 16 bits of grey, of which Pillow would cut off the upper ones
        image = Image.fromarray((np.asarray(image).clip(0, 0xFFFF) >> 8).astype(np.uint8))
    image = image.convert("RGB")
    scale = -(-rules.least_side // min(image.size))
    if scale > 1:
        size = image.width * scale, image.height * scale
        _check_size(*size, rules)
        image = image.resize(size, Image.Resampling.NEAREST)
    return image


def open_video(data: bytes, rules: MediaRules = OWN) -> list[Image.Image]:
    """Frames of an animated picture (GIF, WebP, APNG) or of a film, sampled under the caps."""
    try:
        if any(data.startswith(begin, at) for at, begin in _FILMS):
            return list(_film_frames(data, rules))
        return list(_moving_frames(data, rules))
    except UnusableMedia:
        raise
    except UnidentifiedImageError:
        raise UnusableMedia(
            "The video cannot be decoded: it is no MP4, QuickTime, WebM, Matroska, AVI, GIF, "
            "WebP or PNG."
        ) from None
    except Image.DecompressionBombError:
        raise UnusableMedia(_BOMB) from None
    except MemoryError:
        raise
    except Exception:  # as for images
        raise UnusableMedia("The video cannot be decoded: it is broken or cut off.") from None


def _moving_frames(data: bytes, rules: MediaRules) -> Iterator[Image.Image]:
    movie = Image.open(io.BytesIO(data), formats=_MOVING)
    _check_size(*movie.size, rules)
    for at in _sampled(getattr(movie, "n_frames", 1), *movie.size, rules):
        movie.seek(at)
        _check_size(*movie.size, rules)  # a frame may be larger than the whole
        yield _coloured(movie, rules)


def _film_frames(data: bytes, rules: MediaRules) -> Iterator[Image.Image]:
    # Its messages are about what clients send, which is no business of the log.
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    import cv2  # comes with mlx-vlm, for the same purpose

    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    # A file without a name: nothing is left of it when the process is killed. (Given the bytes
    # themselves, OpenCV 5.0 crashes when it lets go of them.)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)  # on macOS its name stands for the descriptor itself, and where that is
        film = cv2.VideoCapture(f"/dev/fd/{file.fileno()}", cv2.CAP_FFMPEG)
        try:
            yield from _read_frames(film, rules)
        finally:
            film.release()


def _read_frames(film: Any, rules: MediaRules) -> Iterator[Image.Image]:
    import cv2

    count = int(film.get(cv2.CAP_PROP_FRAME_COUNT)) if film.isOpened() else 0
    if count < 1:
        raise UnusableMedia("The video cannot be decoded: it has no frames.")
    sides = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
    width, height = (int(film.get(side)) for side in sides)
    _check_size(width, height, rules)
    wanted = _sampled(count, width, height, rules)
    at = read = 0
    while read < len(wanted) and film.grab():
        if at == wanted[read]:
            ok, picture = film.retrieve()
            if not ok:
                break
            _check_size(picture.shape[1], picture.shape[0], rules)
            yield _coloured(Image.fromarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)), rules)
            read += 1
        at += 1
    if not read:
        raise UnusableMedia("The video cannot be decoded: it has no readable frames.")


def _sampled(count: int, width: int, height: int, rules: MediaRules) -> list[int]:
    """Which of so many frames are used: all, or as many as may be held, spread evenly."""
    pixels = width * height
    if count * pixels > _MOST_DECODED * rules.most_pixels:
        raise UnusableMedia(f"The video is too long: {count} frames of {width}x{height} pixels.")
    wanted = min(count, rules.most_frames, _most_held(rules) // pixels)
    return [at * count // wanted for at in range(wanted)]


def _check_size(width: int, height: int, rules: MediaRules) -> None:
    if min(width, height) < 1:
        raise UnusableMedia(f"A picture of {width}x{height} pixels shows nothing.")
    most = min(rules.most_pixels, _most_held(rules))
    if width * height > most:
        raise UnusableMedia(f"A picture of {width}x{height} pixels is too large: {most} at most.")


def _most_held(rules: MediaRules) -> int:
    """Pixels of all pictures of a request."""
    return min(_MOST_HELD * rules.most_pixels, rules.memory // _PIXEL)
