"""Pictures and films as files, honest and not."""

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from tests.families.images import MEDIUM, picture

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


def encoded(image: Image.Image, form: str = "PNG", **more: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **more)
    return buffer.getvalue()


def moving(
    form: str, count: int, size: tuple[int, int] = MEDIUM, duration: int = 100, seed: int = 0
) -> bytes:
    """`duration` of a frame, in milliseconds."""
    frames = [picture(size, seed + at) for at in range(count)]
    return encoded(frames[0], form, save_all=True, append_images=frames[1:], duration=duration)


def film(
    path: Path,
    count: int,
    size: tuple[int, int] = MEDIUM,
    code: str = "mp4v",
    fps: float = 8,
    seed: int = 0,
) -> bytes:
    """`path` tells the container by its ending."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*code), fps, size)
    for at in range(count):
        writer.write(cv2.cvtColor(np.asarray(picture(size, seed + at)), cv2.COLOR_RGB2BGR))
    writer.release()
    return path.read_bytes()


def without_length(matroska: bytes) -> bytes:
    """As browsers write what they record: nothing says how long it is."""
    duration = matroska.index(b"\x44\x89\x88")  # an element of eight bytes, which becomes a void
    return matroska[:duration] + b"\xec\x89" + bytes(9) + matroska[duration + 11 :]


def chunk(kind: bytes, data: bytes) -> bytes:
    """Of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, rows: bytes, extra: Sequence[bytes] = ()) -> bytes:
    """Of 8 bits grey; `rows` need not be as many as it says."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", head), *extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


SMALL_ROWS = bytes(9 * 8)  # of a picture of 8x8
