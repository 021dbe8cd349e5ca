"""Which models are loaded and unloaded next. A pure function over plain values.

Words used here:
  need     bytes that a model takes at least while it is loaded
  work     requests that run with it or wait inside its engine; those at its gate are not work
  wanted   since when somebody waits at its gate
  held     its gate is shut, though it is loaded: what it has runs to its end, then it is unloaded

    unloaded ──> queued ──> loading ──> ready ──> unloading ──> unloaded
                 wanted     has memory       idle, or held and done

What holds, whatever is asked for and in whatever order:
  - needs of all that have memory stay below the limit;
  - nobody with work is unloaded, and nobody who is pinned;
  - memory goes to whoever has waited longest. A later one gets it before only if that leaves enough
    for all who came earlier. One that does not fit beside the pinned ones keeps nobody waiting;
  - a model that is used all the time makes way: once another has waited for `patience`, those that
    were loaded first are held, each after it has been there for `patience` itself.
So two models that never fit together, and are both always wanted, take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LoadPhase = Literal["unloaded", "queued", "loading", "ready", "unloading"]
_HAS_MEMORY = ("loading", "ready", "unloading")


@dataclass(frozen=True)
class Resident:
    """One model. since: when it came to its phase; used: when its last request ended."""

    name: str
    phase: LoadPhase
    need: int
    work: int = 0
    wanted: float | None = None
    since: float = 0.0
    used: float = 0.0
    pinned: bool = False


@dataclass(frozen=True)
class ResidencyPlan:
    load: tuple[str, ...] = ()  # of those that are queued
    unload: tuple[str, ...] = ()
    hold: frozenset[str] = frozenset()  # all whose gates are to be shut; open those of the others
    refuse: tuple[str, ...] = ()  # queued, and there was no room for `patience`, whoever goes


def plan_residency(
    models: Sequence[Resident],
    limit: int,
    now: float,
    *,
    keep_alive: float | None,
    patience: float,
) -> ResidencyPlan:
    """limit: bytes for all of these models. keep_alive: seconds without a request before one is
    unloaded; None: it stays while there is room.
    """
    unload = [model for model in models if _is_stale(model, now, keep_alive)]
    taken = sum(model.need for model in models if model.phase in _HAS_MEMORY)
    going = sum(model.need for model in models if model.phase == "unloading")
    going += sum(model.need for model in unload)
    load: list[str] = []
    reserved = 0  # by those who came earlier and wait for room
    stays = sum(model.need for model in models if model.pinned and model.phase in _HAS_MEMORY)
    queued = [model for model in models if model.phase == "queued"]
    hopeless = [model for model in queued if stays + model.need > limit]
    queue = sorted(
        (model for model in queued if model not in hopeless), key=lambda model: model.since
    )
    for model in queue:
        if taken + reserved + model.need <= limit:
            load.append(model.name)
            taken += model.need
        else:
            reserved += model.need
    waiting = [model for model in queue if model.name not in load]
    missing = taken - going - limit  # more was promised than there is by now
    if waiting:
        missing += waiting[0].need
    hold: set[str] = set()
    if missing > 0:
        since = waiting[0].since if waiting else now
        more, hold = _make_room(models, unload, missing, now, since, patience)
        unload += more
    return ResidencyPlan(
        tuple(load),
        tuple(model.name for model in unload),
        frozenset(hold),
        tuple(model.name for model in hopeless if now - model.since >= patience),
    )


def _is_stale(model: Resident, now: float, keep_alive: float | None) -> bool:
    idle = _is_idle(model) and model.wanted is None
    return idle and keep_alive is not None and now - model.used >= keep_alive


def _is_idle(model: Resident) -> bool:
    return model.phase == "ready" and not model.work and not model.pinned


def _make_room(
    models: Sequence[Resident],
    unload: Sequence[Resident],
    missing: int,
    now: float,
    waits_since: float,
    patience: float,
) -> tuple[list[Resident], set[str]]:
    """Who goes, so that so many bytes are free, and who is to finish what it has first."""
    rest = [model for model in models if model.phase == "ready" and model not in unload]
    idle = sorted((model for model in rest if _is_idle(model)), key=lambda model: model.used)
    gone: list[Resident] = []
    for model in idle:
        if missing <= 0:
            break
        gone.append(model)
        missing -= model.need
    if missing <= 0 or now - waits_since < patience:
        # Alone those that are idle would be unloaded for nothing.
        return (gone if missing <= 0 else []), set()
    hold = {model.name for model in gone}
    busy = [model for model in rest if model.work and not model.pinned]
    for model in sorted(busy, key=lambda model: model.since):
        if missing <= 0:
            break
        if now - model.since >= patience:
            hold.add(model.name)
            missing -= model.need
    return (gone, hold) if missing <= 0 else ([], set())
