"""Deterministic test images: every seed is another picture, at any size."""

import numpy as np
from PIL import Image

SMALL, MEDIUM, LARGE = (32, 32), (64, 48), (96, 64)


def picture(size: tuple[int, int] = SMALL, seed: int = 0) -> Image.Image:
    """A picture of `size` (width, height): a colour gradient under a few solid boxes.

    Both survive the resizing and averaging that processors do; noise would not.
    """
    width, height = size
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 255, (2, 2, 3))
    across = np.linspace(0, 1, width)[None, :, None]
    down = np.linspace(0, 1, height)[:, None, None]
    top = corners[0, 0] * (1 - across) + corners[0, 1] * across
    bottom = corners[1, 0] * (1 - across) + corners[1, 1] * across
    pixels = top * (1 - down) + bottom * down
    for _ in range(4):
        left, right = np.sort(rng.integers(0, width + 1, 2))
        upper, lower = np.sort(rng.integers(0, height + 1, 2))
        pixels[upper:lower, left:right] = rng.uniform(0, 255, 3)
    return Image.fromarray(pixels.round().astype(np.uint8))


def solid(size: tuple[int, int], colour: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", size, colour)
