"""Pictures of coloured shapes, digits and words, with what each part of them shows.

A scene's objects keep their boxes, so that a question can ask for any of them and every image
token can be labelled with what lies under it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tools.tiny.config import MIN_SIDE, Sizes
from tools.tiny.glyphs import Font, line_of
from tools.tiny.words import Draw, words_in

SHAPES = words_in(
    "circle square triangle star diamond cross heart ring rectangle hexagon crescent arrow"
)
# Centre and spread of each colour in hue, saturation and value (degrees, percent, percent).
COLOURS: dict[str, tuple[int, int, int, int, int, int]] = {
    "red": (0, 9, 88, 12, 78, 22),
    "orange": (30, 9, 95, 5, 97, 3),
    "yellow": (55, 6, 88, 12, 96, 4),
    "green": (120, 24, 80, 20, 68, 32),
    "cyan": (182, 7, 85, 15, 92, 8),
    "blue": (227, 15, 85, 15, 76, 24),
    "purple": (284, 18, 78, 22, 62, 18),
    "pink": (334, 17, 45, 21, 97, 3),
    "brown": (24, 7, 74, 16, 45, 11),
    "black": (0, 180, 8, 8, 6, 6),
    "gray": (0, 180, 4, 4, 53, 10),
    "white": (0, 180, 2, 2, 98, 2),
}
COLOUR_NAMES = tuple(COLOURS)
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
KINDS = ("nothing", *SHAPES, *CHARACTERS)
_SIZES = Sizes()
# Too alike to tell apart when one lies on the other.
_CLASH = {
    frozenset(pair)
    for pair in (
        ("black", "blue"), ("black", "brown"), ("black", "purple"), ("gray", "brown"),
        ("white", "yellow"), ("orange", "yellow"), ("orange", "red"), ("orange", "brown"),
        ("red", "brown"), ("red", "pink"), ("purple", "blue"), ("purple", "pink"),
        ("green", "cyan"), ("white", "pink"), ("white", "cyan"), ("gray", "white"),
        ("gray", "purple"), ("brown", "purple"), ("brown", "green"), ("gray", "green"),
        ("gray", "cyan"), ("black", "green"), ("yellow", "green"), ("blue", "cyan"),
        ("gray", "blue"), ("gray", "pink"), ("red", "purple"), ("black", "gray"),
    )
}  # fmt: skip


def shade(name: str, draw: Draw) -> tuple[int, int, int]:
    hue, dh, saturation, ds, value, dv = COLOURS[name]
    h = (hue + draw.rng.uniform(-dh, dh)) % 360 / 60
    s = min(1.0, max(0.0, (saturation + draw.rng.uniform(-ds, ds)) / 100))
    v = min(1.0, max(0.0, (value + draw.rng.uniform(-dv, dv)) / 100))

    def channel(offset: float) -> int:
        k = (offset + h) % 6
        return round(255 * (v - v * s * max(0.0, min(k, 4 - k, 1.0))))

    return channel(5), channel(3), channel(1)


def clash(first: str, second: str) -> bool:
    return first == second or frozenset((first, second)) in _CLASH


@dataclass
class Thing:
    """A shape, digit or word; x, y, size in fractions of the frame's shorter side."""

    kind: str  # "shape", "digit" or "word"
    name: str
    colour: str
    x: float  # centre, in fractions of the width
    y: float  # centre, in fractions of the height
    size: float


@dataclass
class Scene:
    things: list[Thing]
    background: str
    width: int
    height: int


@dataclass
class Picture:
    """A rendered scene. `boxes`: what lies where, in pixels."""

    image: Image.Image
    boxes: list[tuple[str, str, tuple[float, float, float, float]]]

    @cached_property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches after the processor's resizing."""
        width, height = self.image.size
        unit = _SIZES.patch * _SIZES.merge
        high, wide = (round(side / unit) * unit for side in (height, width))
        most = (_SIZES.grid * _SIZES.patch) ** 2
        if high * wide > most:
            scale = math.sqrt(height * width / most)
            high, wide = (
                max(unit, math.floor(side / scale / unit) * unit) for side in (height, width)
            )
        elif high * wide < MIN_SIDE**2:
            scale = math.sqrt(MIN_SIDE**2 / (height * width))
            high, wide = (math.ceil(side * scale / unit) * unit for side in (height, width))
        return high // _SIZES.patch, wide // _SIZES.patch

    @property
    def tokens(self) -> int:
        return self.grid[0] * self.grid[1] // _SIZES.merge**2

    def patches(self) -> NDArray[np.uint8]:
        """[P, 3 * patch²] in the processor's order."""
        rows, columns = self.grid
        side, merge = _SIZES.patch, _SIZES.merge
        size = (columns * side, rows * side)
        image = self.image
        if image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC)
        pixels = np.asarray(image).reshape(
            rows // merge, merge, side, columns // merge, merge, side, 3
        )
        return pixels.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, -1)

    def cells(self) -> NDArray[np.int8]:
        """[tokens, 2]: kind and colour of what covers each image token; -1 at its edges."""
        rows, columns = (side // _SIZES.merge for side in self.grid)
        labels = np.zeros((rows, columns, 2), np.int8)
        labels[..., 1] = -1
        down, right = rows / self.image.height, columns / self.image.width
        for kind, colour, (left, top, far, low) in self.boxes:
            x0, x1, y0, y1 = left * right, far * right, top * down, low * down
            for row in range(max(0, int(y0)), min(rows, math.ceil(y1))):
                for column in range(max(0, int(x0)), min(columns, math.ceil(x1))):
                    inside = x0 <= column + 0.5 <= x1 and y0 <= row + 0.5 <= y1
                    middle = int((x0 + x1) / 2) == column and int((y0 + y1) / 2) == row
                    if inside or middle:
                        labels[row, column] = KINDS.index(kind), COLOUR_NAMES.index(colour)
                    elif labels[row, column, 0] == 0:
                        labels[row, column, 0] = -1
        return labels.reshape(-1, 2)


def _regular(sides: int, turn: float, inner: float = 1.0) -> list[tuple[float, float]]:
    count = sides * (2 if inner < 1 else 1)
    return [
        (
            math.sin(turn + 2 * math.pi * at / count) * (inner if inner < 1 and at % 2 else 1),
            -math.cos(turn + 2 * math.pi * at / count) * (inner if inner < 1 and at % 2 else 1),
        )
        for at in range(count)
    ]


def _polygon(name: str, draw: Draw) -> list[tuple[float, float]]:
    """Corners within -1..1."""
    tilt = draw.rng.uniform(-0.2, 0.2)
    if name == "triangle":
        return _regular(3, tilt + draw.pick((0.0, 0.0, 0.0, math.pi)))
    if name == "square":
        return _regular(4, math.pi / 4 + draw.rng.uniform(-0.1, 0.1))
    if name == "diamond":
        thin = draw.rng.uniform(0.5, 0.72)
        return [(0, -1), (thin, 0), (0, 1), (-thin, 0)]
    if name == "star":
        return _regular(5, tilt, draw.rng.uniform(0.36, 0.48))
    if name == "hexagon":
        return _regular(6, draw.pick((0.0, math.pi / 6)))
    if name == "rectangle":
        flat = draw.rng.uniform(0.38, 0.58)
        if draw.chance(0.65):
            return [(-1, -flat), (1, -flat), (1, flat), (-1, flat)]
        return [(-flat, -1), (flat, -1), (flat, 1), (-flat, 1)]
    if name == "cross":
        arm = draw.rng.uniform(0.22, 0.36)
        return [(-arm, -1), (arm, -1), (arm, -arm), (1, -arm), (1, arm), (arm, arm), (arm, 1),
                (-arm, 1), (-arm, arm), (-1, arm), (-1, -arm), (-arm, -arm)]  # fmt: skip
    if name == "arrow":
        arm, head = draw.rng.uniform(0.16, 0.28), draw.rng.uniform(0.55, 0.8)
        right = [(-1, -arm), (0.1, -arm), (0.1, -head), (1, 0), (0.1, head), (0.1, arm), (-1, arm)]
        turned = [right, [(-x, y) for x, y in right], [(y, -x) for x, y in right]]
        return draw.pick([*turned, [(-y, x) for x, y in right]])
    heart = []
    for at in range(28):
        t = 2 * math.pi * at / 28
        x = math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        heart.append((x, -(y + 2.5) / 14.5))
    return heart


def _shape_mask(name: str, size: int, draw: Draw) -> Image.Image:
    mask = Image.new("L", (size, size))
    canvas = ImageDraw.Draw(mask)
    if name in ("circle", "ring"):
        canvas.ellipse([0, 0, size - 1, size - 1], fill=255)
        if name == "ring":
            hole = size * draw.rng.uniform(0.22, 0.3)
            canvas.ellipse([hole, hole, size - 1 - hole, size - 1 - hole], fill=0)
        return mask
    if name == "crescent":
        canvas.ellipse([0, 0, size - 1, size - 1], fill=255)
        shift = size * draw.rng.uniform(0.28, 0.4) * draw.pick((-1, 1))
        canvas.ellipse([shift, size * 0.02, size - 1 + shift, size * 0.98], fill=0)
        return mask
    half = (size - 1) / 2
    canvas.polygon([(half + x * half, half + y * half) for x, y in _polygon(name, draw)], fill=255)
    return mask


def _background(scene: Scene, draw: Draw, scale: int) -> Image.Image:
    size = (scene.width * scale, scene.height * scale)
    base = shade(scene.background, draw)
    if not draw.chance(0.25):
        return Image.new("RGB", size, base)
    # A gentle slope of light from side to side.
    other = tuple(max(0, min(255, part + draw.between(-18, 18))) for part in base)
    strip = Image.new("RGB", (2, 1))
    strip.putpixel((0, 0), base)
    strip.putpixel((1, 0), other)
    if draw.chance(0.5):
        strip = strip.rotate(90, expand=True)
    return strip.resize(size, Image.Resampling.BILINEAR)


def paint(scene: Scene, draw: Draw) -> Picture:
    scale = 2 if max(scene.width, scene.height) <= 160 or draw.chance(0.3) else 1
    image = _background(scene, draw, scale)
    side = min(scene.width, scene.height) * scale
    boxes = []
    for thing in scene.things:
        font = Font.draw(draw)
        size = max(6, round(thing.size * side))
        spans: list[tuple[str, float, float]]
        if thing.kind == "shape":
            mask = _shape_mask(thing.name, size, draw)
            spans = [(thing.name, 0.0, float(size))]
        else:
            mask, spans = line_of(thing.name, size, font, draw)
            most = image.width * 0.94
            if mask.width > most:
                ratio = most / mask.width
                mask = mask.resize((round(most), max(4, round(mask.height * ratio))))
                spans = [(what, a * ratio, b * ratio) for what, a, b in spans]
        box = mask.getbbox() or (0, 0, *mask.size)
        wide, high = box[2] - box[0], box[3] - box[1]
        left = min(max(thing.x * image.width - wide / 2, 1), max(1, image.width - wide - 1))
        top = min(max(thing.y * image.height - high / 2, 1), max(1, image.height - high - 1))
        at = (round(left) - box[0], round(top) - box[1])
        image.paste(shade(thing.colour, draw), at, mask)
        for what, start, stop in spans:
            edges = (left + start - box[0], top, left + stop - box[0], top + high)
            boxes.append((what, thing.colour, tuple(edge / scale for edge in edges)))
    if scale > 1:
        image = image.reduce(scale)
    if draw.chance(0.15):
        noise = np.random.default_rng(draw.between(0, 1 << 30)).integers(
            -9, 10, (image.height, image.width, 1)
        )
        noisy = np.asarray(image).astype(np.int16) + noise
        image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
    return Picture(image, boxes)  # type: ignore[arg-type]
