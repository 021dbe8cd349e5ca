"""Curves of a sweep, as an SVG file or as bars of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from bushel.commands.bench.figures import CellFigures, figures
from bushel.commands.bench.record import BenchRecord

_PANEL_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 430, 342, 62, 46, 60
_LEGEND = 18  # of each line
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_BAR = 40  # characters of the longest
_EIGHTHS = " ▏▎▍▌▋▊▉"
_PANELS: tuple[tuple[str, Callable[[CellFigures], float | None]], ...] = (
    ("output tokens a second", lambda found: found.output_per_second),
    ("first token, p50, seconds", lambda found: found.first_p50),
    ("per output token, p50, milliseconds", lambda found: found.gap_p50 and found.gap_p50 * 1e3),
)
Points = list[tuple[int, float]]


def _along(records: Sequence[BenchRecord]) -> str:
    """What goes along the axis: requests at once, unless there is but one number of them."""
    numbers = {run.cell.concurrency for record in records for run in record.runs}
    return "at once" if len(numbers) > 1 else "prompt"


def _series(
    records: Mapping[str, BenchRecord], value: Callable[[CellFigures], float | None]
) -> dict[str, Points]:
    by_prompt = _along(list(records.values())) == "at once"
    lines: dict[str, Points] = {}
    for label, record in records.items():
        for cell, runs in record.cells().items():
            x, fixed = cell.concurrency, f"{cell.prompt_tokens:,} tokens of prompt"
            if not by_prompt:
                x, fixed = cell.prompt_tokens, f"{cell.concurrency} at once"
            if (found := value(figures(runs))) is not None:
                name = f"{label}, {fixed}" if len(records) > 1 else fixed
                lines.setdefault(name, []).append((x, found))
    return {name: sorted(points) for name, points in lines.items()}


# -- a file --------------------------------------------------------------------------------


def svg(records: Mapping[str, BenchRecord], title: str) -> str:
    names = list(_series(records, _PANELS[0][1]))
    height = _HEIGHT + _LEGEND * len(names)
    width = _PANEL_WIDTH * len(_PANELS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    along = {"at once": "requests at once", "prompt": "tokens of prompt"}
    axis = along[_along(list(records.values()))]
    for number, (heading, value) in enumerate(_PANELS):
        parts.append(f'<g transform="translate({number * _PANEL_WIDTH} 0)">')
        parts += _panel(heading, axis, _series(records, value), names)
        parts.append("</g>")
    for at, name in enumerate(names):
        y, colour = _HEIGHT + _LEGEND * at, _COLOURS[at % len(_COLOURS)]
        parts.append(f'<rect x="{_LEFT}" y="{y - 9}" width="18" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 26}" y="{y - 3}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    heading: str, axis: str, lines: Mapping[str, Points], names: Sequence[str]
) -> Iterator[str]:
    right, bottom = _PANEL_WIDTH - 20, _HEIGHT - _BOTTOM
    places = sorted({x for points in lines.values() for x, _ in points})
    top = max((y for points in lines.values() for _, y in points), default=1.0) or 1.0
    step = (right - _LEFT) / max(1, len(places) - 1)

    def across(x: int) -> float:
        return _LEFT + step * places.index(x)

    def up(y: float) -> float:
        return bottom - (bottom - _TOP) * y / (1.05 * top)

    yield f'<text x="{_LEFT}" y="{_TOP - 8}">{escape(heading)}</text>'
    for share in (0, 0.25, 0.5, 0.75, 1):
        level = up(share * top)
        yield f'<path d="M{_LEFT} {level:.1f}H{right}" stroke="#ddd"/>'
        place = f'x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end"'
        yield f"<text {place}>{share * top:.3g}</text>"
    for x in places:
        yield f'<text x="{across(x):.1f}" y="{bottom + 16}" text-anchor="middle">{x:,}</text>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle}" y="{bottom + 33}" text-anchor="middle">{axis}</text>'
    for at, name in enumerate(names):
        points, colour = lines.get(name, []), _COLOURS[at % len(_COLOURS)]
        placed = [(across(x), up(y)) for x, y in points]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        yield f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for at_x, at_y in placed:
            yield f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="3" fill="{colour}"/>'


# -- a terminal ----------------------------------------------------------------------------


def bars(records: Mapping[str, BenchRecord]) -> Iterator[str]:
    along = _along(list(records.values()))
    for heading, value in _PANELS:
        lines = _series(records, value)
        top = max((y for points in lines.values() for _, y in points), default=0.0)
        yield ""
        yield heading
        for name, points in lines.items():
            yield f"  {name}"
            for x, y in points:
                yield f"  {f'{x:,} {along}':>14} {_bar(y / top if top else 0)} {y:.4g}"


def _bar(share: float) -> str:
    whole, eighths = divmod(round(share * _BAR * 8), 8)
    return ("█" * whole + _EIGHTHS[eighths].strip()).ljust(1)
