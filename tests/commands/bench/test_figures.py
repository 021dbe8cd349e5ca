"""Figures of `bushel bench` against numpy, over recorded times and made-up ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.commands.bench.chart import bars, svg
from bushel.commands.bench.figures import Cell, CellRun, RequestTimes, figures, percentile
from bushel.commands.bench.record import BenchRecord, as_json, read_record
from bushel.commands.bench.table import compared, ratio

seconds = st.floats(0, 1e3, allow_nan=False)


@st.composite
def requests(draw: st.DrawFn) -> RequestTimes:
    start = draw(seconds)
    times = sorted(start + draw(seconds) for _ in range(draw(st.integers(0, 6))))
    return RequestTimes(
        start,
        max([start, *times]),
        times,
        prompt_tokens=draw(st.integers(1, 100)),
        cached_tokens=draw(st.integers(0, 100)),
        output_tokens=len(times),
        error=draw(st.sampled_from(["", "", "", "refused"])),
    )


@given(st.lists(seconds, min_size=1), st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], percent: float) -> None:
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


@given(st.lists(requests(), max_size=12), st.floats(1e-3, 1e3))
def test_figures_are_those_of_numpy(made: list[RequestTimes], took: float) -> None:
    found = figures([CellRun(Cell(1, 1, 1), 0, took, made)])
    good = [one for one in made if not one.error]
    assert (found.requests, found.errors) == (len(good), len(made) - len(good))
    assert found.requests_per_second == pytest.approx(len(good) / took)
    output = sum(one.output_tokens for one in good)
    assert found.output_per_second == pytest.approx(output / took)
    total = output + sum(one.prompt_tokens for one in good)
    assert found.total_per_second == pytest.approx(total / took)
    assert found.cached_tokens == sum(one.cached_tokens for one in good)
    firsts = [one.times[0] - one.start for one in good if one.times]
    spans = [(one.times[-1] - one.times[0]) / (len(one.times) - 1) for one in good if one.times[1:]]
    gaps = [later - time for one in good for time, later in pairwise(one.times)]
    for value, values, percent in (
        (found.first_p50, firsts, 50),
        (found.first_p95, firsts, 95),
        (found.gap_p50, spans, 50),
        (found.gap_p95, spans, 95),
        (found.largest_gap, gaps, 100),
    ):
        assert value == (pytest.approx(np.percentile(values, percent)) if values else None)


def run(number: int, took: float, rows: int = 1) -> CellRun:
    """Two replies of three tokens."""
    made = [RequestTimes(0.0, took, [took / 3, took / 2, took], 8, 0, 3) for _ in range(2)]
    return CellRun(Cell(rows, 8, 3), number, took, made)


def record(*runs: CellRun) -> BenchRecord:
    return BenchRecord({"model": "a <model>", "url": "http://x", "when": "today"}, list(runs))


def test_ratios_are_of_medians_with_what_rounds_leave_open() -> None:
    slow, fast = [run(at, 2.0 + at) for at in range(3)], [run(at, 1.0) for at in range(3)]
    middle, low, high = ratio(slow, fast, lambda found: found.output_per_second) or (0, 0, 0)
    assert (middle, low, high) == pytest.approx((3.0, 2.0, 4.0))
    middle, low, high = ratio(slow, fast, lambda found: found.first_p50) or (0, 0, 0)
    assert (middle, low, high) == pytest.approx((1 / 3, 1 / 4, 1 / 2))
    lines = list(compared(record(*slow), record(*fast, run(0, 1.0, rows=9))))
    assert "3.00 (2.00-4.00)" in lines[5]
    assert lines[-1] == "1 cells are in one of them alone."
    assert "One round" in list(compared(record(slow[0]), record(fast[0])))[-1]
    assert list(compared(record(slow[0]), record(run(0, 1.0, rows=2))))[-1].startswith("They have")


def test_what_is_written_can_be_read(tmp_path) -> None:
    made = record(run(0, 2.5), run(1, 3.5, rows=4))
    path = tmp_path / "a.json"
    path.write_text(as_json(made))
    assert read_record(str(path)).runs == [
        CellRun(one.cell, one.round, one.seconds, [rounded(it) for it in one.requests])
        for one in made.runs
    ]


def rounded(one: RequestTimes) -> RequestTimes:
    times = [round(time, 6) for time in one.times]
    return RequestTimes(one.start, one.end, times, one.prompt_tokens, 0, one.output_tokens)


@pytest.mark.parametrize("rows", [(1, 4), (2, 2)])
def test_pictures_are_whole(rows: tuple[int, int]) -> None:
    from xml.etree import ElementTree

    made = record(*(run(0, 1.0 + at, count) for at, count in enumerate(rows)))
    for records in ({"A": made}, {"A": made, "B": made}):
        picture = ElementTree.fromstring(svg(records, made.name))
        lines = picture.findall(".//{http://www.w3.org/2000/svg}polyline")
        assert len(lines) == 3 * len(records)
        assert any("█" in line for line in bars(records))


def test_a_picture_of_nothing_is_one() -> None:
    assert svg({"A": record()}, "nothing").startswith("<svg")
    assert list(bars({"A": record()}))
