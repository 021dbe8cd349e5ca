"""Letters and digits: strokes of our own, bent and thickened at random, beside Pillow's font.

A glyph is a list of strokes in a box of width 1 and height 1, y down. A stroke is a list of
points; a leading "~" smooths it into a curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from tools.tiny.words import TRIES, Draw

_STROKES: dict[str, tuple[str, ...]] = {
    "0": (
        "~.5,0 .14,.15 .02,.5 .14,.85 .5,1 .86,.85 .98,.5 .86,.15 .5,0",
        "~.5,0 .1,.2 .1,.8 .5,1 .9,.8 .9,.2 .5,0",
    ),
    "1": ("0.15,.25 .55,0 .55,1", ".5,0 .5,1", ".2,.2 .55,0 .55,1; .15,1 .95,1"),
    "2": (
        "~.08,.28 .2,.07 .5,0 .82,.08 .92,.3 .8,.5 .45,.75 .05,1; .05,1 .95,1",
        "~.1,.25 .3,.03 .65,.02 .9,.22 .8,.5 .05,1; .05,1 .95,1",
    ),
    "3": (
        "~.1,.15 .45,0 .85,.1 .88,.35 .7,.46 .4,.48; ~.4,.48 .75,.52 .95,.72 .8,.95 .45,1 .05,.85",
        ".08,0 .9,0 .45,.42; ~.45,.42 .85,.5 .95,.75 .75,.96 .4,1 .05,.85",
    ),
    "4": (".7,1 .7,0 .05,.68 .98,.68", ".15,0 .1,.6 .95,.6; .72,.25 .72,1"),
    "5": (
        ".85,0 .2,0 .14,.45; ~.14,.45 .5,.36 .9,.5 .95,.75 .75,.96 .4,1 .06,.88",
        ".88,0 .15,0 .15,.48; ~.15,.45 .55,.38 .92,.6 .85,.9 .5,1 .08,.92",
    ),
    "6": (
        "~.8,.05 .4,.12 .1,.5 .12,.85 .5,1 .88,.85 .9,.6 .6,.45 .25,.55 .1,.72",
        "~.85,.12 .55,0 .15,.2 .06,.6 .2,.92 .55,1 .9,.85 .92,.58 .6,.42 .2,.5 .08,.65",
    ),
    "7": (".05,0 .95,0 .4,1", ".05,0 .95,0 .4,1; .25,.5 .85,.5", ".05,.15 .05,0 .95,0 .35,1"),
    "8": (
        "~.5,.46 .15,.35 .15,.1 .5,0 .85,.1 .85,.35 .5,.46 .08,.6 .08,.88 .5,1 .92,.88 .92,.6 "
        ".5,.46",
        "~.5,.48 .2,.38 .12,.18 .5,0 .88,.18 .8,.38 .5,.48; ~.5,.48 .1,.62 .04,.82 .5,1 .96,.82 .9,.62 .5,.48",  # noqa: E501
    ),
    "9": (
        "~.9,.28 .75,.48 .4,.55 .1,.4 .12,.12 .5,0 .88,.15 .9,.5 .6,.88 .2,.97",
        "~.92,.35 .7,.52 .35,.55 .08,.38 .1,.12 .45,0 .85,.1 .92,.35; .92,.3 .85,1",
    ),
    "A": ("0,1 .5,0 1,1; .2,.65 .8,.65",),
    "B": (
        "0,0 0,1; ~0,0 .6,0 .9,.12 .85,.38 .5,.47 0,.47; ~0,.47 .65,.48 .98,.65 .9,.92 .5,1 0,1",
    ),
    "C": ("~.95,.2 .7,.02 .4,0 .1,.2 0,.5 .1,.8 .4,1 .7,.98 .95,.8",),
    "D": ("0,0 0,1; ~0,0 .5,.02 .88,.2 1,.5 .88,.8 .5,.98 0,1",),
    "E": ("1,0 0,0 0,1 1,1; 0,.48 .8,.48",),
    "F": ("1,0 0,0 0,1; 0,.48 .8,.48",),
    "G": ("~.95,.2 .7,.02 .4,0 .1,.2 0,.5 .1,.8 .4,1 .75,.97 .97,.8; .97,.85 .97,.55 .6,.55",),
    "H": ("0,0 0,1; 1,0 1,1; 0,.48 1,.48",),
    "I": (".5,0 .5,1", ".5,0 .5,1; .2,0 .8,0; .2,1 .8,1"),
    "J": (".8,0 .8,.7; ~.8,.7 .7,.95 .4,1 .12,.92 .02,.7",),
    "K": ("0,0 0,1; .95,0 0,.6; .3,.42 1,1",),
    "L": ("0,0 0,1 .95,1",),
    "M": ("0,1 0,0 .5,.7 1,0 1,1", "0,1 .08,0 .5,.85 .92,0 1,1"),
    "N": ("0,1 0,0 1,1 1,0",),
    "O": ("~.5,0 .14,.12 0,.5 .14,.88 .5,1 .86,.88 1,.5 .86,.12 .5,0",),
    "P": ("0,0 0,1; ~0,0 .6,0 .95,.12 .95,.42 .6,.54 0,.54",),
    "Q": ("~.5,0 .14,.12 0,.5 .14,.88 .5,1 .86,.88 1,.5 .86,.12 .5,0; .6,.7 1,1.05",),
    "R": ("0,0 0,1; ~0,0 .6,0 .95,.12 .92,.4 .6,.5 0,.5; .5,.5 1,1",),
    "S": ("~.92,.15 .65,0 .3,0 .06,.15 .1,.38 .5,.5 .9,.62 .95,.85 .7,1 .3,1 .04,.85",),
    "T": ("0,0 1,0; .5,0 .5,1",),
    "U": ("0,0 0,.65; ~0,.65 .1,.92 .5,1 .9,.92 1,.65; 1,.65 1,0",),
    "V": ("0,0 .5,1 1,0",),
    "W": ("0,0 .25,1 .5,.25 .75,1 1,0",),
    "X": ("0,0 1,1; 1,0 0,1",),
    "Y": ("0,0 .5,.5 1,0; .5,.5 .5,1",),
    "Z": ("0,0 1,0 0,1 1,1",),
}


@dataclass(frozen=True)
class Font:
    """One way of writing; `drawn` is in strokes, otherwise Pillow's own outline font."""

    drawn: bool
    weight: float  # stroke over height
    aspect: float  # width over height of a stroke glyph
    slant: float
    wobble: float
    serif: bool
    variant: int

    @staticmethod
    def draw(draw: Draw) -> Font:
        for _ in range(TRIES):
            seed = draw.between(0, 1 << 30)
            if draw.mine(f"font {seed}"):
                break
        rng = Draw(seed).rng
        return Font(
            drawn=rng.random() < 0.55,
            weight=rng.uniform(0.06, 0.19),
            aspect=rng.uniform(0.45, 0.8),
            slant=rng.uniform(-0.1, 0.28) if rng.random() < 0.5 else 0.0,
            wobble=rng.uniform(0, 0.035) if rng.random() < 0.6 else 0.0,
            serif=rng.random() < 0.25,
            variant=rng.randrange(6),
        )


def _curve(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Catmull-Rom through the points; closed where the ends meet."""
    closed = math.dist(points[0], points[-1]) < 1e-6
    before = points[-2] if closed else points[0]
    after = points[1] if closed else points[-1]
    wide = [before, *points, after]
    out = []
    for a, b, c, d in zip(wide, wide[1:], wide[2:], wide[3:], strict=False):
        for step in range(4):
            t = step / 4
            out.append(
                tuple(
                    0.5
                    * (
                        2 * q
                        + (r - p) * t
                        + (2 * p - 5 * q + 4 * r - s) * t * t
                        + (3 * q - p - 3 * r + s) * t**3
                    )
                    for p, q, r, s in zip(a, b, c, d, strict=True)
                )
            )
    out.append(points[-1])
    return out  # type: ignore[return-value]


@cache
def _paths(glyph: str, variant: int) -> list[tuple[bool, list[tuple[float, float]]]]:
    options = _STROKES[glyph]
    paths = []
    for stroke in options[variant % len(options)].split(";"):
        smooth = stroke.strip().startswith("~")
        numbers = [pair.split(",") for pair in stroke.strip().lstrip("~").split()]
        paths.append((smooth, [(float(x), float(y)) for x, y in numbers]))
    return paths


def _draw_strokes(glyph: str, height: int, font: Font, draw: Draw) -> Image.Image:
    pen = max(1.5, font.weight * height)
    inner = height - pen
    width = inner * font.aspect * (0.35 if glyph in "I" else 1.0)
    lean = abs(font.slant) * height
    size = (math.ceil(width + pen + lean) + 1, math.ceil(height * 1.04) + 1)
    mask = Image.new("L", size)
    canvas = ImageDraw.Draw(mask)
    rng = draw.rng

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = point[0] + rng.uniform(-font.wobble, font.wobble)
        y = point[1] + rng.uniform(-font.wobble, font.wobble)
        shift = font.slant * (1 - y) * height + (lean if font.slant < 0 else 0)
        return pen / 2 + x * width + shift, pen / 2 + y * inner

    for smooth, points in _paths(glyph, font.variant):
        placed = [place(point) for point in points]
        if smooth and points[0] == points[-1]:
            placed[-1] = placed[0]
        line = _curve(placed) if smooth else placed
        canvas.line(line, fill=255, width=max(1, round(pen)), joint="curve")
        ends = {line[0], line[-1]}
        radius = pen / 2
        for x, y in ends:
            if font.serif and not smooth and not pen * 1.5 <= y <= height - pen * 1.5:
                canvas.line([(x - pen, y), (x + pen, y)], fill=255, width=max(1, round(pen * 0.6)))
            elif font.variant % 2:
                canvas.ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
    return mask


@cache
def _outline(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)  # type: ignore[return-value]


def _draw_outline(glyph: str, height: int, font: Font) -> Image.Image:
    size = max(8, round(height / 0.72 / 4) * 4)
    bold = round(size * max(0.0, font.weight - 0.1) * 0.5)
    face = _outline(size)
    left, top, right, bottom = face.getbbox(glyph, stroke_width=bold)
    mask = Image.new("L", (math.ceil(right - left) + 1, math.ceil(bottom - top) + 1))
    ImageDraw.Draw(mask).text((-left, -top), glyph, fill=255, font=face, stroke_width=bold)
    stretch = 0.75 + font.aspect * 0.45
    scale = height / max(mask.height, 1) if glyph.isupper() or glyph.isdigit() else 1.0
    scale = min(scale, 1.6)
    wide = max(2, round(mask.width * stretch * scale))
    mask = mask.resize((wide, max(2, round(mask.height * scale))), Image.Resampling.BILINEAR)
    if font.slant:
        lean = abs(font.slant) * mask.height
        offset = -lean if font.slant > 0 else 0.0
        mask = mask.transform(
            (math.ceil(mask.width + lean), mask.height),
            Image.Transform.AFFINE,
            (1, font.slant, offset, 0, 1, 0),
            Image.Resampling.BILINEAR,
        )
    return mask


def glyph(character: str, height: int, font: Font, draw: Draw) -> Image.Image:
    """A mask of about that height."""
    if font.drawn and character in _STROKES:
        return _draw_strokes(character, height, font, draw)
    return _draw_outline(character, height, font)


def line_of(
    text: str, height: int, font: Font, draw: Draw
) -> tuple[Image.Image, list[tuple[str, float, float]]]:
    """A mask with the text on one line, and where each character starts and ends."""
    masks = [glyph(character, height, font, draw) for character in text]
    gap = max(1, round(height * (0.1 + font.weight * 0.5)))
    width = sum(mask.width for mask in masks) + gap * (len(masks) - 1)
    tall = max(mask.height for mask in masks)
    line = Image.new("L", (width, tall + height // 3))
    at, spans = 0, []
    for character, mask in zip(text, masks, strict=True):
        drop = height // 4 if character in "gjpqy" else 0
        line.paste(mask, (at, max(0, min(height, tall) - mask.height) + drop))
        spans.append((character, float(at), float(at + mask.width)))
        at += mask.width + gap
    return line, spans
