"""Pictures as clients send them, decoded under rules.

Sizes are read from headers before anything is decoded, and what a file says of itself is checked
again against what comes out of it. What still takes too long here ends with its process.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from bushel.chat.media.media_source import UnusableMedia
from bushel.core.wire import MediaRules

# Pillow warns of what `check_size` refuses, and raises beyond twice its own limit.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
BOMB = "A picture of so many pixels is too large: it is never decoded."

# What Pillow may take the bytes for. Others start programs (EPS), draw (SVG, PDF, WMF), or have
# decoders that few people use and fewer attack.
_PICTURES = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
# In pictures of the largest size. All that one request may hold: 1 GiB at the default, at
# Pillow's four bytes a pixel, which the processor copies a few times.
_MOST_HELD = 4
# Bytes of memory that a pixel takes: Pillow's four, the array a processor makes of it, and what
# it makes of that. Measured: 14 for one picture of 64 million, 11 for two.
_PIXEL = 16


def open_image(data: bytes, rules: MediaRules) -> Image.Image:
    """The first picture in it, as mlx-vlm's own loader turns and converts it."""
    try:
        image = Image.open(io.BytesIO(data), formats=_PICTURES)
        check_size(*image.size, rules)
        image.load()
        return _upright(image, rules)
    except UnusableMedia:
        raise
    except UnidentifiedImageError:
        raise UnusableMedia(
            "The image cannot be decoded: it is no PNG, JPEG, WebP, GIF, BMP or TIFF."
        ) from None
    except Image.DecompressionBombError:
        raise UnusableMedia(BOMB) from None
    except MemoryError:
        raise
    except Exception:  # a broken file raises whatever its decoder stumbles over
        raise UnusableMedia("The image cannot be decoded: it is broken or cut off.") from None


def from_pixels(picture: Image.Image | np.ndarray, rules: MediaRules) -> Image.Image:
    """A picture that a script has in memory. Of an array nobody can tell what its numbers mean,
    unless they are bytes."""
    if isinstance(picture, np.ndarray):
        grey = picture.ndim == 2
        colours = picture.ndim == 3 and picture.shape[2] in (3, 4)
        if picture.dtype != np.uint8 or not (grey or colours):
            raise UnusableMedia(
                "An array must be of uint8, and (height, width), or that and 3 or 4 channels, "
                f"not {picture.dtype} {picture.shape}."
            )
        picture = Image.fromarray(picture)
    return _upright(picture, rules)


def _upright(image: Image.Image, rules: MediaRules) -> Image.Image:
    check_size(*image.size, rules)
    return coloured(ImageOps.exif_transpose(image), rules)


def coloured(image: Image.Image, rules: MediaRules) -> Image.Image:
    """In three bytes a pixel, and large enough for a processor: of a few pixels, all are larger."""
    if image.mode.startswith("I"):  # 16 bits of grey, of which Pillow would cut off the upper ones
        image = Image.fromarray((np.asarray(image).clip(0, 0xFFFF) >> 8).astype(np.uint8))
    image = image.convert("RGB")
    scale = -(-rules.least_side // min(image.size))
    if scale > 1:
        size = image.width * scale, image.height * scale
        check_size(*size, rules)
        image = image.resize(size, Image.Resampling.NEAREST)
    return image


def check_size(width: int, height: int, rules: MediaRules) -> None:
    if min(width, height) < 1:
        raise UnusableMedia(f"A picture of {width}x{height} pixels shows nothing.")
    most = min(rules.most_pixels, most_held(rules))
    if width * height > most:
        raise UnusableMedia(f"A picture of {width}x{height} pixels is too large: {most} at most.")


def most_held(rules: MediaRules) -> int:
    """Pixels of all pictures of a request."""
    return min(_MOST_HELD * rules.most_pixels, rules.memory // _PIXEL)
