"""Figures of a load, side by side: a table, pictures, and a file for other programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.field.records import Run, percentile, spread
from benchmarks.plot import Point, draw

OURS = "Bushel"
_SHARES = (10, 25, 50, 75, 90, 99)  # percent of replies, for pictures


@dataclass(frozen=True)
class Result:
    """One side under one load. limits, bares: seconds for each run, where they can be told."""

    part: str
    load: str
    side: str
    runs: list[Run]
    verdicts: dict[str, int]
    limits: Sequence[float] = ()
    bares: Sequence[float] = ()
    peak: int | None = None
    note: str = ""

    @property
    def wrong(self) -> int:
        """Replies that are not what each prompt gets alone, or that are missing."""
        return self.verdicts.get("wrong", 0) + self.verdicts.get("failed", 0)

    @property
    def speeds(self) -> list[float]:
        return [run.speed for run in self.runs]

    @property
    def firsts(self) -> list[float]:
        return [first for run in self.runs for first in run.firsts]

    @property
    def gaps(self) -> list[float]:
        return [gap for run in self.runs for gap in run.gaps]

    def shares(self, seconds: Sequence[float]) -> list[float]:
        """By run, of so many seconds in those that it took; none if replies are missing."""
        if not seconds or self.verdicts.get("failed"):
            return []
        return [least / run.seconds for least, run in zip(seconds, self.runs, strict=True)]


HEAD = (
    "load", "side", "tok/s (quartiles)", "Bushel / side", "first p50 / p99 s",
    "largest gap p50 / p95 s", "peak GB", "of limit", "of bare", "replies",
)  # fmt: skip


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _with_spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle, low, high = spread(values)
    return f"{_number(middle)} ({_number(low)} … {_number(high)})"


def ratios(ours: Result, other: Result) -> list[float]:
    """By round, how many times as fast ours was; none where a side did not do all of the work."""
    if ours.verdicts.get("failed") or other.verdicts.get("failed"):
        return []
    pairs = zip(ours.speeds, other.speeds, strict=False)
    return [mine / theirs for mine, theirs in pairs if theirs > 0]


def _percent(shares: Sequence[float]) -> str:
    if not shares:
        return "-"
    middle, low, high = (100 * share for share in spread(shares))
    return f"{middle:.0f} % ({low:.0f} … {high:.0f})"


def _replies(result: Result) -> str:
    said = ", ".join(f"{count} {name}" for name, count in result.verdicts.items() if count)
    return f"{said}; {result.note}" if result.note and said else said or result.note


def cells(result: Result, ours: Result | None) -> tuple[str, ...]:
    beside = ours is not None and ours is not result
    return (
        result.load,
        result.side,
        _with_spread(result.speeds),
        _with_spread(ratios(ours, result)) if ours is not None and beside else "",
        " / ".join(_number(percentile(result.firsts, share)) for share in (50, 99)),
        " / ".join(_number(percentile(result.gaps, share)) for share in (50, 95)),
        "-" if result.peak is None else f"{result.peak / 1e9:.2f}",
        _percent(result.shares(result.limits)),
        _percent(result.shares(result.bares)),
        _replies(result),
    )


def table(results: Sequence[Result]) -> str:
    """Results of one part."""
    ours = {result.load: result for result in results if result.side == OURS}
    lines = [HEAD, *(cells(result, ours.get(result.load)) for result in results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _point(x: float, values: Sequence[float]) -> Point:
    middle, low, high = spread(values)
    return x, middle, low, high


def pictures(results: Sequence[Result], folder: Path) -> None:
    """Of every load, when first tokens came; of closed loops, tokens a second over clients."""
    for part, load in dict.fromkeys((result.part, result.load) for result in results):
        lines = {
            result.side: [_point(at, [percentile(result.firsts, at)]) for at in _SHARES]
            for result in results
            if (result.part, result.load) == (part, load) and result.firsts
        }
        name = f"first-token-{part}-{load}".replace(", ", "-").replace(" ", "-")
        if lines:
            title = f"{part}, {load}: seconds to the first token"
            draw(folder / f"{name}.png", title, "percent of replies", lines)
    for part in dict.fromkeys(result.part for result in results):
        loops: dict[str, list[Point]] = {}
        for result in results:
            count, _, kind = result.load.partition(" ")
            if result.part == part and kind == "clients" and any(result.speeds):
                loops.setdefault(result.side, []).append(_point(int(count), result.speeds))
        if loops:
            target = folder / f"clients-{part}.png"
            draw(target, f"{part}: tokens a second, closed loops", "clients", loops)


def as_json(results: Sequence[Result], about: dict[str, Any]) -> str:
    rows = [
        {
            "part": result.part,
            "load": result.load,
            "side": result.side,
            "tokens_per_second": result.speeds,
            "seconds": [run.seconds for run in result.runs],
            "first_token": result.firsts,
            "largest_gap": result.gaps,
            "peak_bytes": result.peak,
            "limit_seconds": list(result.limits),
            "bare_seconds": list(result.bares),
            "replies": result.verdicts,
            "note": result.note,
        }
        for result in results
    ]
    return json.dumps({**about, "results": rows}, indent=1)
