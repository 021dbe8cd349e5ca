"""Images and videos as clients send them, to decoded pictures.

Only data: URLs and local paths are opened here; nothing is fetched from a network.
"""

from __future__ import annotations

import base64
import binascii
import io
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlparse

from PIL import Image, UnidentifiedImageError

from bushel.core import RequestError

MAX_PIXELS = 64 * 1024 * 1024
MAX_FRAMES = 64


def _refuse(what: str) -> RequestError:
    return RequestError(what, code="invalid_media", param="messages")


def read_source(url: str) -> bytes:
    """The bytes behind a data: URL, a file: URL or a path."""
    if url.startswith("data:"):
        head, comma, body = url.partition(",")
        if not comma:
            raise _refuse("A data: URL has no comma between its type and its data.")
        try:
            if head.endswith(";base64"):
                return base64.b64decode(unquote_to_bytes(body), validate=True)
        except binascii.Error as error:
            raise _refuse(f"A data: URL holds broken base64: {error}.") from error
        return unquote_to_bytes(body)
    scheme = urlparse(url).scheme
    if scheme in ("http", "https"):
        raise _refuse("Remote media is not fetched; send a data: URL instead.")
    path = Path(unquote_to_bytes(url[7:]).decode() if scheme == "file" else url)
    try:
        return path.read_bytes()
    except OSError as error:  # not str(error), which repeats the name, however long
        raise _refuse(f"The media file cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise _refuse(f"The media file cannot be read: {error}.") from error


def open_image(data: bytes) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data))
        _check_frame(image.width, image.height)
        image.load()
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise _refuse(f"An image cannot be decoded: {error}.") from error
    return image.convert("RGB")


def _sampled(count: int) -> list[int]:
    """Which of so many frames are used: all, or MAX_FRAMES spread evenly."""
    wanted = min(count, MAX_FRAMES)
    return [at * count // wanted for at in range(wanted)]


def open_video(data: bytes) -> list[Image.Image]:
    """Frames of an animated picture (GIF, WebP, APNG) or of a film, sampled under the cap."""
    try:
        movie = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        return _open_film(data)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise _refuse(f"A video cannot be decoded: {error}.") from error
    _check_frame(movie.width, movie.height)
    frames = []
    try:
        for at in _sampled(getattr(movie, "n_frames", 1)):
            movie.seek(at)
            frames.append(movie.convert("RGB"))
    except (OSError, ValueError, EOFError) as error:
        raise _refuse(f"A video cannot be decoded: {error}.") from error
    return frames


def _open_film(data: bytes) -> list[Image.Image]:
    import cv2  # comes with mlx-vlm, for the same purpose

    with tempfile.NamedTemporaryFile(prefix="bushel-", suffix=".video") as file:
        file.write(data)
        file.flush()
        film = cv2.VideoCapture(file.name)
        try:
            count = int(film.get(cv2.CAP_PROP_FRAME_COUNT))
            if not film.isOpened() or count < 1:
                raise _refuse("A video cannot be decoded: no known format, or no frames.")
            size = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
            _check_frame(*(int(film.get(side)) for side in size))
            wanted, frames = set(_sampled(count)), []
            for at in range(count):
                ok, picture = film.read()
                if not ok:
                    break
                if at in wanted:
                    frames.append(Image.fromarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)))
        finally:
            film.release()
    if not frames:
        raise _refuse("A video cannot be decoded: it has no readable frames.")
    return frames


def _check_frame(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise _refuse(f"A picture of {width}x{height} pixels is too large.")


def load_media(kind: str, source: Any) -> Any:
    """An image, or a list of frames, from what a content part holds."""
    url = source.get("url") if isinstance(source, dict) else source
    if isinstance(url, Image.Image):
        return url.convert("RGB")
    if not isinstance(url, str) or not url:
        raise _refuse(f"{kind} needs a url.")
    data = read_source(url)
    return open_image(data) if kind == "image_url" else open_video(data)
