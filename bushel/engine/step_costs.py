"""Measured time per unit of work, which the scheduler predicts from."""

from __future__ import annotations

from bushel.engine.plan import Costs

_WEIGHT = 0.3  # of the newest decode step
_MEMORY = 0.8  # of a step of prompts, with every later one


class Stopwatch:
    """Attributes the time of a step to the work that it waited for.

    behind: the device is one step behind the host, so that a step waits for what the one before
    it launched. On a CPU MLX computes most of a step while it is being launched.
    """

    def __init__(self, *, behind: bool = True) -> None:
        self.costs = Costs()
        self._behind = behind
        self._line = _Line()
        self._work: tuple[bool, int, int] = (False, 0, 0)

    def step(self, seconds: float, *, decode: bool, tokens: int, chunks: int = 1) -> None:
        """`decode`, `tokens` and `chunks`: the work that this step started."""
        started = (decode, tokens, chunks)
        self._charge(seconds, *(self._work if self._behind else started))
        self._work = started

    def _charge(self, seconds: float, decode: bool, tokens: int, chunks: int) -> None:
        costs = self.costs
        if tokens:
            decode_step = costs.decode_step
            if decode:
                # A step shorter than a decode was thought to be corrects that thought.
                decode_step = min(decode_step, seconds)
                seconds -= decode_step
            self._line.add(chunks, tokens, seconds)
            per_chunk, per_token = self._line.fit()
            self.costs = Costs(decode_step, per_token, per_chunk)
        elif decode:
            fresh = _blend(costs.decode_step, seconds)
            self.costs = Costs(fresh, costs.prefill_token, costs.prefill_chunk)


class _Line:
    """seconds = chunks * a + tokens * b, by least squares; what is older counts less.

    Many short prompts cost more than one as long as all of them: each is a pass through the
    weights, and its processor's work.
    """

    def __init__(self) -> None:
        self._cc = self._ct = self._tt = self._cs = self._ts = 0.0

    def add(self, chunks: int, tokens: int, seconds: float) -> None:
        self._cc = _MEMORY * self._cc + chunks * chunks
        self._ct = _MEMORY * self._ct + chunks * tokens
        self._tt = _MEMORY * self._tt + tokens * tokens
        self._cs = _MEMORY * self._cs + chunks * seconds
        self._ts = _MEMORY * self._ts + tokens * seconds

    def fit(self) -> tuple[float, float]:
        """a and b, neither below zero. If only one can be told, it is b."""
        spread = self._cc * self._tt - self._ct * self._ct
        if spread > 1e-6 * self._cc * self._tt:
            a = (self._cs * self._tt - self._ts * self._ct) / spread
            b = (self._ts * self._cc - self._cs * self._ct) / spread
            if a >= 0 and b >= 0:
                return a, b
            if b < 0:
                return self._cs / self._cc, 0.0
        return 0.0, self._ts / self._tt


def _blend(old: float, new: float) -> float:
    return new if old == 0 else (1 - _WEIGHT) * old + _WEIGHT * new
