"""Lines over a logarithmic scale as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 900, 440, 70, 40, 130, 50
_COLOURS = ("#d62728", "#1f77b4", "#2ca02c")

Point = tuple[float, float, float, float]  # x, y, and the lowest and highest y that were seen


def _ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    first = max((it for it in steps if it <= low), default=low)
    last = min((it for it in steps if it >= high), default=high)
    return [it for it in steps if first <= it <= last]


def draw(target: Path, title: str, below: str, lines: Mapping[str, Sequence[Point]]) -> None:
    """One line for each name, through its points; a bar shows their spread."""
    font = ImageFont.load_default(13)
    points = [point for line in lines.values() for point in line]
    ticks = _ticks(min(it[2] for it in points), max(it[3] for it in points))
    last = max(it[0] for it in points)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    image = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    pen = ImageDraw.Draw(image)

    def across(x: float) -> float:
        return _LEFT + (right - _LEFT) * x / (last + 1)

    def up(y: float) -> float:
        share = math.log(y / ticks[0]) / math.log(ticks[-1] / ticks[0])
        return bottom - (bottom - _TOP) * share

    pen.text((_LEFT, 12), title, fill="black", font=font)
    pen.text((_LEFT, bottom + 26), below, fill="black", font=font)
    for tick in ticks:
        pen.line([_LEFT, up(tick), right, up(tick)], fill="#e4e4e4")
        pen.text((12, up(tick) - 8), f"{tick:g}", fill="black", font=font)
    for x in sorted({it[0] for it in points}):
        pen.text((across(x) - 6, bottom + 6), f"{x:g}", fill="black", font=font)
    pen.rectangle([_LEFT, _TOP, right, bottom], outline="#999999")
    beside: list[float] = []  # where names stand
    for (name, line), colour in zip(lines.items(), _COLOURS, strict=False):
        placed = [(across(x), up(y)) for x, y, _, _ in line]
        pen.line(placed, fill=colour, width=2)
        for x, y, low, high in line:
            pen.line([across(x), up(low), across(x), up(high)], fill=colour)
            pen.ellipse([across(x) - 3, up(y) - 3, across(x) + 3, up(y) + 3], fill=colour)
        name_at = placed[-1][1] - 8
        while any(abs(name_at - other) < 16 for other in beside):
            name_at += 1
        beside.append(name_at)
        pen.text((right + 10, name_at), name, fill=colour, font=font)
    image.save(target, optimize=True)
