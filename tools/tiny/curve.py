"""The run's losses and held-out shares as a picture."""

from __future__ import annotations

import json
import math
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _HEIGHT, _MARGIN = 1100, 460, 56
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


def _panel(
    pen: ImageDraw.ImageDraw, top: int, title: str, lines: dict[str, list[tuple[float, float]]],
    low: float, high: float, steps: float,
) -> None:  # fmt: skip
    font = ImageFont.load_default(13)
    left, right, bottom = _MARGIN, _WIDTH - 190, top + _HEIGHT - _MARGIN
    pen.rectangle([left, top, right, bottom], outline="#999999")
    pen.text((left, top - 20), title, fill="black", font=font)
    for part in range(5):
        value = low + (high - low) * part / 4
        y = bottom - (bottom - top) * part / 4
        pen.line([left, y, right, y], fill="#e4e4e4")
        pen.text((6, y - 8), f"{value:.2f}", fill="black", font=font)
        x = left + (right - left) * part / 4
        pen.text((x - 12, bottom + 6), f"{steps * part / 4:.0f}", fill="black", font=font)
    for at, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        placed = [
            (
                left + (right - left) * x / steps,
                bottom - (bottom - top) * (min(max(y, low), high) - low) / (high - low),
            )
            for x, y in points
        ]
        if len(placed) > 1:
            pen.line(placed, fill=colour, width=2)
        pen.text((right + 10, top + 13 * at), name, fill=colour, font=ImageFont.load_default(11))


def draw(log: Path, target: Path) -> None:
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    losses: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        for name in ("text", "ahead", "kind", "colour"):
            if name in entry:
                value = math.log10(max(entry[name], 1e-4))
                losses.setdefault(name, []).append((entry["step"], value))
        for name, share in entry.get("probe", {}).items():
            shares.setdefault(name, []).append((entry["step"], share))
    steps = max(entry["step"] for entry in entries)
    image = Image.new("RGB", (_WIDTH, 2 * _HEIGHT + 20), "white")
    pen = ImageDraw.Draw(image)
    _panel(pen, 30, "loss on training rows, log10, by step", losses, -3.0, 1.0, steps)
    title = "held-out conversations with every token right, by step"
    _panel(pen, _HEIGHT + 40, title, shares, 0.0, 1.0, steps)
    image.save(target, optimize=True)
