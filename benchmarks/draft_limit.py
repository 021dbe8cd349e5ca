"""How many times as fast a row alone could be with drafts: what is around its passes left out."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from bushel.cache import BatchState
from bushel.engine.engine import Engine
from bushel.engine.row_state import new_row
from bushel.models import Model

_WIDTHS = (2, 4)  # of passes that are looked at where no draft was made


def _alone(model: Model, drafts: bool) -> BatchState:
    state = new_row(model)
    mx.eval(model.forward(mx.zeros((1, 64), mx.uint32), [0], state))
    rows = BatchState(model.make_state, model.pages, drafts=drafts)
    rows.join(state, 64)
    return rows


class BareStep:
    """Tokens of one row, each begun before the one before it has been read."""

    def __init__(self, model: Model):
        self._model, self._rows = model, _alone(model, drafts=False)
        self._token = mx.zeros((1, 1), mx.uint32)

    def seconds(self, steps: int = 10) -> float:
        """Of one of them."""
        found, start = list[float](), time.perf_counter()
        for _ in range(steps):
            self._rows.reserve(1)
            logits = self._model.forward(self._token, self._rows.positions, self._rows.layers)
            self._rows.advance([1])
            before, self._token = self._token, mx.argmax(logits, axis=-1)
            mx.async_eval(self._token)
            before.tolist()
            end = time.perf_counter()
            found.append(end - start)
            start = end
        return statistics.median(found)


class BarePass:
    """Passes of so many tokens of one row, all of which are kept."""

    def __init__(self, model: Model, width: int):
        self._model, self._rows = model, _alone(model, drafts=True)
        self._width = width

    def seconds(self, turns: int = 4) -> float:
        """Of one of them."""
        tokens, found = mx.zeros((1, self._width), mx.uint32), list[float]()
        for _ in range(turns):
            self._rows.reserve(self._width)
            start = time.perf_counter()
            self._rows.begin_draft([self._width])
            logits = self._model.forward(tokens, self._rows.positions, self._rows.layers)
            mx.eval(mx.argmax(logits, axis=-1))
            found.append(time.perf_counter() - start)
            self._rows.end_draft([self._width])
        return statistics.median(found)


@dataclass(frozen=True)
class Way:
    """To say so many tokens: by passes as wide as that, and plain steps for the rest."""

    tokens: float
    passes: float
    width: float  # between two whole ones: some passes are of either
    plain: float = 0


class Limit:
    """The best of some ways, over a bare step for each token.

    Measured in turns with what it is a limit of: a host is not always as fast.
    """

    def __init__(self, model: Model, drafting: float, ways: Sequence[Way]):
        """drafting: seconds of the drafter for each token of a draft."""
        self._drafting, self._ways = drafting, ways
        self._step = BareStep(model)
        widths = {round(way.width) for way in ways for round in (math.floor, math.ceil)}
        self._passes = {width: BarePass(model, width) for width in sorted(widths)}
        self._found: list[float] = []

    @classmethod
    def of_rounds(cls, engine: Engine, widths: Sequence[int], tokens: int, accepted: int) -> Limit:
        """For rounds as wide as that, of which so many drafts were accepted."""
        plain = tokens - len(widths) - accepted  # tokens of steps in which nobody drafted
        way = Way(tokens, len(widths), statistics.mean(widths), plain)
        return cls(engine.model, _drafting(engine), [way])

    @classmethod
    def at_rate(cls, engine: Engine, rate: float) -> Limit:
        """Where nothing was drafted: what drafts would have given of which so many hold."""
        ways = [
            Way(tokens=sum(rate**at for at in range(width)), passes=1, width=width)
            for width in _WIDTHS
        ]
        return cls(engine.model, _drafting(engine), ways)

    def look(self) -> None:
        step = self._step.seconds()
        passes = {width: each.seconds() for width, each in self._passes.items()}
        self._found.append(max(self._times(way, step, passes) for way in self._ways))

    def _times(self, way: Way, step: float, passes: dict[int, float]) -> float:
        low, high = math.floor(way.width), math.ceil(way.width)
        share = way.width - low  # of passes of the wider sort
        wide = (1 - share) * passes[low] + share * passes[high]
        wide += self._drafting * (way.width - 1)
        return way.tokens * step / (way.passes * wide + way.plain * step)

    def __float__(self) -> float:
        return statistics.median(self._found)


def _drafting(engine: Engine) -> float:
    return max((each[0] for each in engine.speculation.drafting.values()), default=0.0)
