"""A measurement as a JSON file: where, with what, and every request's times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bushel.commands.bench.figures import Cell, CellRun, RequestTimes, figures
from bushel.core import BushelError
from bushel.core.version import VERSION

FORMAT = 1
_LIBRARIES = ("mlx", "mlx-lm", "mlx-vlm")


@dataclass(frozen=True)
class BenchRecord:
    """about: what was measured, where and how."""

    about: dict[str, Any]
    runs: list[CellRun]

    @property
    def name(self) -> str:
        return f"{self.about.get('model')} at {self.about.get('url')}"

    def cells(self) -> dict[Cell, list[CellRun]]:
        """Rounds of every cell, in the order of the sweep."""
        found: dict[Cell, list[CellRun]] = {}
        for run in self.runs:
            found.setdefault(run.cell, []).append(run)
        return found


def about(
    url: str, model: str, server: Mapping[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """server: what it says of itself. The machine is the one that asks."""
    from bushel.doctor.system import machine

    return {
        "url": url,
        "model": model,
        "server": dict(server),
        "machine": next(machine()).words,
        "versions": {
            "bushel": VERSION,
            **{name: found for name in _LIBRARIES if (found := _version(name))},
        },
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "settings": settings,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def as_json(record: BenchRecord) -> str:
    cells = [
        {**asdict(cell), "rounds": len(runs), **asdict(figures(runs))}
        for cell, runs in record.cells().items()
    ]
    runs = [asdict(run) for run in record.runs]
    whole = {"format": FORMAT, **record.about, "cells": cells, "runs": runs}
    return json.dumps(_rounded(whole), indent=1)


def _rounded(value: Any) -> Any:
    """To microseconds."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return list(map(_rounded, value)) if isinstance(value, list) else value


def read_record(path: str) -> BenchRecord:
    """BushelError if the file is none."""
    try:
        whole = json.loads(Path(path).read_text())
        if whole["format"] != FORMAT:
            raise BushelError(f"{path} is of another version of bushel bench.")
        runs = list(_runs(whole.pop("runs")))
    except OSError as error:
        raise BushelError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise BushelError(f"{path} is not a file of bushel bench --json.") from error
    return BenchRecord(whole, runs)


def _runs(stored: Iterable[dict[str, Any]]) -> Iterable[CellRun]:
    for run in stored:
        requests: Sequence[dict[str, Any]] = run["requests"]
        yield CellRun(
            **{
                **run,
                "cell": Cell(**run["cell"]),
                "requests": [RequestTimes(**one) for one in requests],
            }
        )
