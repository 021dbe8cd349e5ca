"""Where a prompt is cut: over all borders of short prompts, and properties of long ones."""

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bushel.core import Borders
from bushel.engine.snapshot_points import FAR, plan_snapshot_points

NEAR = 16


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    length = draw(st.integers(1, 400))
    places = st.integers(0, length)
    system, user, history = sorted(draw(st.tuples(places, places, places)))
    known = [draw(st.booleans()) for _ in range(3)]
    borders = Borders(*(at * on for at, on in zip((system, user, history), known, strict=True)))
    edges = sorted(draw(st.lists(places, max_size=6, unique=True)))
    return {
        "length": length,
        "restored": draw(st.integers(0, length - 1)),
        "borders": borders,
        "fork": draw(places),
        "every": draw(st.sampled_from([0, 1, 20, 32, 64, 100, 512])),
        "uncut": list(zip(edges[::2], edges[1::2], strict=False)),
    }


def sane(plan: dict[str, Any]) -> None:
    cuts = plan_snapshot_points(**plan)
    length, restored, borders = plan["length"], plan["restored"], plan["borders"]
    last, positions = length - 1, [cut.position for cut in cuts]
    assert positions == sorted(positions)
    assert len(set(cuts)) == len(cuts)
    for cut in cuts:
        border = getattr(borders, cut.sort, None)
        if cut.position == restored:
            # What was restored may serve as a border that follows closely, or as the whole.
            assert restored > 0
            assert cut.sort == "prompt" or 0 <= border - restored < NEAR
        else:
            assert restored < cut.position <= last
        if cut.position not in (restored, last):
            assert not any(low < cut.position < high for low, high in plan["uncut"])
        if border is not None:
            assert 0 <= border - cut.position < NEAR
    assert [cut.position for cut in cuts if cut.sort == "prompt"] == [last] * (last > 0)
    for sort in ("fork", "grid"):
        others = [restored, last, *(it.position for it in cuts if it.sort not in ("grid", sort))]
        for cut in cuts:
            if cut.sort == sort:
                assert min(abs(cut.position - other) for other in others) >= FAR
                wanted = cut.position == plan["fork"]
                assert wanted if sort == "fork" else cut.position % plan["every"] == 0
    assert sum(cut.sort == "fork" for cut in cuts) <= 1


def complete(plan: dict[str, Any]) -> None:
    """Every border that can be cut at is served by a state at, or closely before, it."""
    cuts = plan_snapshot_points(**plan)
    for sort in ("system", "user", "history"):
        border = getattr(plan["borders"], sort)
        inside = any(low < border < high for low, high in plan["uncut"])
        if plan["restored"] < border < plan["length"] - 1 and not inside:
            assert any(cut.sort == sort and 0 <= border - cut.position < NEAR for cut in cuts)


@given(plans())
def test_cuts_are_in_order_within_the_prompt_and_apart(plan: dict[str, Any]) -> None:
    sane(plan)
    complete(plan)


def test_all_plans_of_short_prompts() -> None:
    for length in range(1, 7):
        for restored, system, user, fork in product(range(length), *[range(length + 1)] * 3):
            plan = {
                "length": length,
                "restored": restored,
                "borders": Borders(system, user, length - 1),
                "fork": fork,
                "every": 2,
                "uncut": [(2, 4)],
            }
            sane(plan)


def test_a_turn_is_cut_where_the_next_one_may_part_from_it() -> None:
    cuts = plan_snapshot_points(300, 0, Borders(100, 200, 290), 0, 0)
    assert [(cut.position, cut.sort) for cut in cuts] == [
        (100, "system"),
        (200, "user"),
        (290, "history"),
        (299, "prompt"),
    ]


def test_borders_close_to_each_other_share_one_cut() -> None:
    cuts = plan_snapshot_points(300, 0, Borders(100, 100 + NEAR - 1, 290), 0, 0)
    assert [cut.position for cut in cuts] == [100, 100, 290, 299]
    cuts = plan_snapshot_points(300, 0, Borders(100, 100 + NEAR, 290), 0, 0)
    assert [cut.position for cut in cuts] == [100, 100 + NEAR, 290, 299]


def test_what_was_restored_serves_as_the_border_it_is_at() -> None:
    cuts = plan_snapshot_points(300, 200, Borders(100, 200, 290), 0, 0)
    assert [(cut.position, cut.sort) for cut in cuts] == [
        (200, "user"),
        (290, "history"),
        (299, "prompt"),
    ]
    assert [point.sort for point in plan_snapshot_points(300, 299, Borders(), 0, 0)] == ["prompt"]


def test_forks_and_the_grid_give_way() -> None:
    def of(sort: str, fork: int = 0, every: int = 0) -> list[int]:
        cuts = plan_snapshot_points(400, 10, Borders(system=100), fork, every)
        return [cut.position for cut in cuts if cut.sort == sort]

    assert of("fork", 100 + FAR) == [100 + FAR]
    assert of("fork", 100 + FAR - 1) == []
    assert of("fork", 399 - FAR) == [399 - FAR]
    assert of("fork", 399 - FAR + 1) == []
    assert of("grid", every=60) == [60, 180, 240, 300, 360]
    assert of("grid", fork=200, every=60) == [60, 240, 300, 360]


def test_nothing_is_cut_inside_an_image() -> None:
    cuts = plan_snapshot_points(
        300, 0, Borders(100, 200, 290), 150, 64, [(90, 110), (140, 160), (180, 299)]
    )
    assert [(cut.position, cut.sort) for cut in cuts] == [
        (64, "grid"),
        (128, "grid"),
        (299, "prompt"),
    ]
