"""Who is loaded next: promises that hold in every state, and in traffic that never ends (B73)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.server.models.residency import LoadPhase, ResidencyPlan, Resident, plan_residency
from tests.depth import some

NOW, PATIENCE, KEEP = 100.0, 5.0, 30.0
HAS_MEMORY = ("loading", "ready", "unloading")


def model(name: str, phase: LoadPhase, need: int = 4, **more: float) -> Resident:
    return Resident(name, phase, need, **more)  # type: ignore[arg-type]


def plan(*models: Resident, limit: int = 8, keep: float | None = None) -> ResidencyPlan:
    return plan_residency(models, limit, NOW, keep_alive=keep, patience=PATIENCE)


# -- every state ----------------------------------------------------------------------------------


@st.composite
def states(draw: st.DrawFn) -> tuple[list[Resident], int]:
    """Models in any phase, of which those in memory fit."""
    limit = draw(st.integers(1, 20))
    models: list[Resident] = []
    for at in range(draw(st.integers(0, 6))):
        phase = draw(st.sampled_from(("unloaded", "queued", *HAS_MEMORY)))
        need = draw(st.integers(1, limit))
        if phase in HAS_MEMORY and taken(models) + need > limit:
            phase = "queued"
        work = draw(st.integers(0, 2)) if phase == "ready" else 0
        times = [NOW - draw(st.sampled_from((0.0, 1.0, 7.0, 60.0))) for _ in range(3)]
        wanted = times[2] if draw(st.booleans()) else None
        pinned = draw(st.booleans())
        models.append(Resident(str(at), phase, need, work, wanted, *times[:2], pinned))
    return models, limit


def taken(models: list[Resident]) -> int:
    return sum(model.need for model in models if model.phase in HAS_MEMORY)


@settings(max_examples=some(500), deadline=None)
@given(states(), st.sampled_from((None, 0.0, KEEP)))
def test_nobody_with_work_goes_and_the_budget_is_kept(
    state: tuple[list[Resident], int], keep: float | None
) -> None:
    models, limit = state
    found = plan(*models, limit=limit, keep=keep)
    by_name = {model.name: model for model in models}
    for name in found.unload:
        assert by_name[name].phase == "ready"
        assert not by_name[name].work
        assert not by_name[name].pinned
    assert all(by_name[name].phase == "queued" for name in (*found.load, *found.refuse))
    assert not {*found.load} & {*found.refuse}
    assert taken(models) + sum(by_name[name].need for name in found.load) <= limit
    assert not any(by_name[name].pinned for name in found.hold)


@settings(max_examples=some(500), deadline=None)
@given(states())
def test_nobody_goes_for_nothing(state: tuple[list[Resident], int]) -> None:
    """Without an end to idling, one is unloaded or held only where that is enough for the first
    of those that wait."""
    models, limit = state
    found = plan(*models, limit=limit)
    goes = {*found.unload, *found.hold}
    if not goes:
        return
    by_name = {model.name: model for model in models}
    loaded = taken(models) + sum(by_name[name].need for name in found.load)
    freed = sum(by_name[name].need for name in goes)
    freed += sum(model.need for model in models if model.phase == "unloading")
    waits = [it for it in models if it.phase == "queued" and it.name not in found.load]
    stays = sum(it.need for it in models if it.pinned and it.phase in HAS_MEMORY)
    possible = [it for it in waits if stays + it.need <= limit]
    first = min(possible, key=lambda model: model.since)
    assert loaded - freed + first.need <= limit


# -- single cases ---------------------------------------------------------------------------------


def test_whoever_was_not_used_for_longest_makes_way() -> None:
    old, new = model("old", "ready", used=10.0), model("new", "ready", used=20.0)
    assert plan(new, old, model("next", "queued", since=99.0)).unload == ("old",)


def test_one_in_use_makes_way_when_another_has_waited_for_long() -> None:
    busy = [model("a", "ready", work=1, since=1.0), model("b", "ready", work=1, since=2.0)]
    assert plan(*busy, model("c", "queued", since=NOW - 1)) == ResidencyPlan()
    late = plan(*busy, model("c", "queued", since=NOW - PATIENCE))
    assert (late.hold, late.unload, late.load) == ({"a"}, (), ())


def test_one_that_has_just_come_may_stay_for_a_while() -> None:
    busy = [model("a", "ready", work=1, since=NOW - 1), model("b", "ready", work=1, since=NOW - 2)]
    assert not plan(*busy, model("c", "queued", since=0.0)).hold


def test_a_small_one_does_not_take_what_a_large_one_waits_for() -> None:
    busy = model("a", "ready", work=1)
    large, small = model("l", "queued", 6, since=NOW - 2), model("s", "queued", 3, since=NOW - 1)
    assert plan(busy, large, small).load == ()
    assert plan(busy, small).load == ("s",)


def test_pinned_ones_stay_and_what_does_not_fit_beside_them_is_told() -> None:
    pinned = [model(name, "ready", pinned=True) for name in "ab"]
    soon, late = model("c", "queued", since=NOW), model("c", "queued", since=NOW - PATIENCE)
    assert plan(*pinned, soon, keep=0.0) == ResidencyPlan()
    assert plan(*pinned, late, keep=0.0) == ResidencyPlan(refuse=("c",))
    small = model("d", "queued", 1, since=NOW)
    assert plan(pinned[0], late, replace(late, name="e", need=8), small).load == ("c",)


@pytest.mark.parametrize(("used", "goes"), [(NOW - KEEP, ("a",)), (NOW - KEEP + 1, ())])
def test_an_idle_one_goes_in_its_time(used: float, goes: tuple[str, ...]) -> None:
    assert plan(model("a", "ready", used=used), keep=KEEP).unload == goes
    assert plan(model("a", "ready", used=used, work=1), keep=KEEP).unload == ()
    assert plan(model("a", "ready", used=used), keep=None).unload == ()


# -- traffic that never ends ---------------------------------------------------------------------


class Simulation:
    """Models that are asked for all the time: each has work whenever its gate is open."""

    def __init__(self, needs: list[int], limit: int, pinned: int):
        self.now, self.limit = 0.0, limit
        self.models = {
            str(at): Resident(str(at), "queued", need, wanted=0.0, pinned=at < pinned)
            for at, need in enumerate(needs)
        }
        self.served: dict[str, list[float]] = {name: [] for name in self.models}

    def step(self, seconds: float = 1.0) -> None:
        models = [*self.models.values()]
        found = plan_residency(models, self.limit, self.now, keep_alive=KEEP, patience=PATIENCE)
        assert taken(models) <= self.limit
        self.now += seconds
        for name, one in self.models.items():
            self.models[name] = self._next(one, found)

    def _next(self, one: Resident, found: ResidencyPlan) -> Resident:
        now, name = self.now, one.name
        if one.phase == "loading":
            self.served[name].append(now)
            return replace(one, phase="ready", since=now, work=1, wanted=None)
        if one.phase == "unloading":
            return replace(one, phase="queued", since=now, wanted=now)
        if name in found.load:
            return replace(one, phase="loading", since=now)
        if name in found.unload:
            return replace(one, phase="unloading", since=now)
        if one.phase != "ready":
            return one
        if name in found.hold:  # what it had runs to its end
            return replace(one, work=0, used=now, wanted=now)
        return replace(one, work=1, used=now, wanted=None)


@settings(max_examples=some(100), deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(6, 14))
def test_everyone_gets_a_turn_again_and_again(needs: list[int], limit: int) -> None:
    """Each is loaded once in a round: as long as all others take, each with its patience."""
    traffic = Simulation(needs, limit, 0)
    if sum(needs) <= limit:
        return
    round_seconds = 2 * (PATIENCE + 6) * len(needs)
    for _ in range(int(4 * round_seconds)):
        traffic.step()
    for name, times in traffic.served.items():
        resident = traffic.models[name].phase == "ready"
        gaps = [b - a for a, b in zip([0.0, *times], [*times, traffic.now], strict=True)]
        assert times, name
        assert resident or max(gaps) <= 2 * round_seconds


def test_control_without_patience_running_out_somebody_starves() -> None:
    traffic = Simulation([4, 4, 4], 8, 2)  # two that never make way
    for _ in range(200):
        traffic.step()
    assert not traffic.served["2"]
