"""Measured time per unit of work, which the scheduler predicts from."""

from __future__ import annotations

from bushel.engine.schedule import Costs

_WEIGHT = 0.3  # of the newest measurement


class Stopwatch:
    """Attributes the time of a step to the work started in the step before it.

    The device is one step behind the host: what a step waits for was launched earlier.
    """

    def __init__(self) -> None:
        self.costs = Costs()
        self._work: tuple[bool, int] = (False, 0)

    def step(self, seconds: float, *, decode: bool, tokens: int) -> None:
        was_decode, was_tokens = self._work
        costs = self.costs
        if was_tokens:
            decode_step = costs.decode_step
            if was_decode:
                # A step shorter than a decode was thought to be corrects that thought.
                decode_step = min(decode_step, seconds)
                seconds -= decode_step
            fresh = _blend(costs.prefill_token, seconds / was_tokens)
            self.costs = Costs(decode_step, fresh)
        elif was_decode:
            self.costs = Costs(_blend(costs.decode_step, seconds), costs.prefill_token)
        self._work = (decode, tokens)


def _blend(old: float, new: float) -> float:
    return new if old == 0 else (1 - _WEIGHT) * old + _WEIGHT * new
