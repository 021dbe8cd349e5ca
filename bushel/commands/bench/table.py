"""Figures as people read them: a line for every cell, and ratios of two measurements."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bushel.commands.bench.figures import Cell, CellFigures, CellRun, figures
from bushel.commands.bench.record import BenchRecord

_HEAD = (
    (
        "",
        "",
        "",
        "",
        "output",
        "total",
        "first token",
        "",
        "per token",
        "",
        "largest",
        "cached",
        "",
    ),
    (
        *("prompt", "at once", "answers", "req/s", "tok/s", "tok/s"),
        *("p50", "p95", "p50", "p95", "gap", "tokens", "errors"),
    ),
)
_WIDTHS = (7, 8, 8, 8, 9, 10, 12, 9, 10, 9, 9, 8, 7)
# What a comparison shows.
_COMPARED: tuple[tuple[str, Callable[[CellFigures], float | None]], ...] = (
    ("output tok/s", lambda found: found.output_per_second),
    ("req/s", lambda found: found.requests_per_second),
    ("first p50", lambda found: found.first_p50),
    ("first p95", lambda found: found.first_p95),
    ("per token p50", lambda found: found.gap_p50),
    ("per token p95", lambda found: found.gap_p95),
)


def head() -> str:
    return "\n".join(_line(words) for words in _HEAD)


def row(cell: Cell, runs: Sequence[CellRun]) -> str:
    found = figures(runs)
    prompt = cell.prompt_tokens if found.counted_prompt is None else round(found.counted_prompt)
    return _line(
        (
            f"{prompt:,}",
            str(cell.concurrency),
            str(found.requests),
            f"{found.requests_per_second:.2f}",
            f"{found.output_per_second:.1f}",
            f"{found.total_per_second:.1f}",
            *map(_seconds, (found.first_p50, found.first_p95, found.gap_p50, found.gap_p95)),
            _seconds(found.largest_gap),
            f"{found.cached_tokens:,}",
            str(found.errors),
        )
    )


def _line(words: Sequence[str]) -> str:
    pairs = zip(words, _WIDTHS, strict=True)
    return "".join(f"{word:>{width}}" for word, width in pairs).rstrip()


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def compared(a: BenchRecord, b: BenchRecord) -> Iterator[str]:
    """Each figure of B over that of A, by the medians of their rounds; in brackets what the
    rounds leave open, where there are several.
    """
    yield f"A  {a.name}, {a.about.get('when')}"
    yield f"B  {b.name}, {b.about.get('when')}"
    yield "Ratios are B over A: more is better for tok/s and req/s, less for times."
    ours, theirs = a.cells(), b.cells()
    shared = [cell for cell in ours if cell in theirs]
    if not shared:
        yield "They have no cell in common."
        return
    yield ""
    yield f"{'prompt':>7}{'at once':>9}" + "".join(f"{name:>20}" for name, _ in _COMPARED)
    for cell in shared:
        ratios = (ratio(ours[cell], theirs[cell], value) for _, value in _COMPARED)
        yield f"{cell.prompt_tokens:>7,}{cell.concurrency:>9}" + "".join(
            f"{_ratio_words(one):>20}" for one in ratios
        )
    rounds = min(len(runs) for cell in shared for runs in (ours[cell], theirs[cell]))
    if rounds < 2:
        yield "One round says nothing of the spread: --rounds 5 does."
    if left := len(ours.keys() ^ theirs.keys()):
        yield f"{left} cells are in one of them alone."


def ratio(
    ours: Sequence[CellRun],
    theirs: Sequence[CellRun],
    value: Callable[[CellFigures], float | None],
) -> tuple[float, float, float] | None:
    """Of medians over rounds, and the lowest and highest of one round over another."""
    first = [found for run in ours if (found := value(figures([run])))]
    second = [found for run in theirs if (found := value(figures([run])))]
    if not first or not second:
        return None
    middle = statistics.median(second) / statistics.median(first)
    return middle, min(second) / max(first), max(second) / min(first)


def _ratio_words(found: tuple[float, float, float] | None) -> str:
    if found is None:
        return "-"
    middle, low, high = found
    return f"{middle:.2f}" if low == high else f"{middle:.2f} ({low:.2f}-{high:.2f})"
