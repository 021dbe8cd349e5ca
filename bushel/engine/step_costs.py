"""Measured time per unit of work, which the scheduler predicts from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import mul
from statistics import median_low
from typing import NamedTuple

from bushel.engine.plan import Costs

_STEPS = 5  # newest decode steps of about as many rows: what most of them took counts
_LONGEST = 2.0  # times what it was thought to take: what stands still for a while tells no costs
_SHORT = 0.05  # seconds that are taken for what they are, whatever was foreseen
_MEMORY = 0.9  # of a step of prompts, with every later one
_SURE = 8  # steps of prompts after which costs are known
_UNKNOWN = 1e9  # seconds that a step may be late before then
_FORGIVEN = 0.99  # of how late a step was, what is left after the next one
# A pass reads the weights, and so does a decode step: before anything tells it apart from its
# tokens, a pass takes so much of one.
_PASS = 0.5
# Beside what was measured, so much speaks for what is expected (see `_Fit`). Steps look alike, and
# noise would call passes free and tokens dear, until a step comes that looks otherwise.
_FOR_PASS, _FOR_REACH = 0.2, 0.003
_SHALLOW = 4096  # tokens before a token; where they are fewer, nothing is learnt about their cost


class Passes(NamedTuple):
    """Forward passes of prompts in one step, added up."""

    number: int = 0
    tokens: int = 0
    reach: float = 0.0  # of each token the tokens before it

    def with_chunk(self, tokens: int, done: int, *, packed: bool = False) -> Passes:
        reach = tokens * (done + tokens / 2)
        own = tokens > 0 and not packed  # what is restored as a whole runs no pass
        return Passes(self.number + own, self.tokens + tokens, self.reach + reach)

    def seconds(self, costs: Costs) -> float:
        each = (costs.prefill_pass, costs.prefill_token, costs.prefill_reach)
        return sum(number * seconds for number, seconds in zip(self, each, strict=True))


def total(passes: Sequence[Passes]) -> Passes:
    return Passes(*map(sum, zip(*passes, strict=True))) if passes else Passes()


class _Work(NamedTuple):
    """What a device does in one go: a decode step of so many rows, or a pass of prompts."""

    rows: int = 0
    passes: Passes = Passes()


class Stopwatch:
    """Attributes the time between two moments at which a step waited to what was done in it.

        step        | launch D1, wait for P0, launch P1 | launch D2, wait for P1, launch P2 | ...
        device      ........ P0 | D1 ..... P1 ................. | D2 ..... P2 .......
        attributed              | D1 and P1                     | D2 and P2

    Whatever is launched takes about as long to launch as to run: MLX lets the host get no further
    ahead of the device than ten command buffers, which is less than a pass of a large model. So a
    step waits for the prompts of the one before it, once it has launched its rows: the device has
    something to do meanwhile, and what it had done until then is known.

    behind: the device is behind the host. On a CPU a command buffer is one operation, and a step
    is charged with its own work.
    """

    def __init__(self, *, behind: bool = True) -> None:
        self._behind = behind
        self._decode: dict[int, deque[float]] = {}  # seconds of a step, by `_size` of its rows
        self._prompts = _Fit()
        self._late = 0.0
        self._since = 0.0  # when the first of what is launched began
        self._launched: list[_Work] = []  # in order, what nobody has waited for

    def costs(self, rows: int) -> Costs:
        """With a decode step of so many rows."""
        late = self._late if self._prompts.steps >= _SURE else _UNKNOWN
        return Costs(self._decode_step(rows), *self._prompts.seconds, late=late)

    def step(
        self,
        began: float,
        waited: float,
        ended: float,
        *,
        rows: int,
        passes: Sequence[Passes] = (),
        read: bool = False,
    ) -> None:
        """`rows` that decode and then `passes` of prompts: the work that this step has launched.

        waited: when all that was launched before had been waited for; in a step of prompts alone
        only decode steps are, and then each pass before the next. read: it has waited for its own
        rows, as a round of drafts does.
        """
        if not self._launched:
            self._since = began
        elif rows or not passes:
            self._done(waited, len(self._launched))
        else:
            self._done(waited, self._to_last_decode())
        self._launched += [*[_Work(rows)] * (rows > 0), *map(_work_of, passes)]
        if not self._behind or (read and not passes):
            self._done(ended, len(self._launched))
        elif not rows:
            self._done(ended, len(self._launched) - 1)

    def rest(self) -> None:
        """Nothing of what was launched matters any more."""
        self._launched = []

    def _to_last_decode(self) -> int:
        """How much was launched up to there."""
        return max((at for at, work in enumerate(self._launched, 1) if work.rows), default=0)

    def _done(self, now: float, number: int) -> None:
        """So many of what was launched."""
        if number > 0:
            self._charge(now - self._since, self._launched[:number])
            self._launched, self._since = self._launched[number:], now

    def _decode_step(self, rows: int) -> float:
        """As measured for about so many, or the nearest number of them."""
        size = _size(rows)
        nearest = min(self._decode, key=lambda other: (abs(other - size), other), default=None)
        return 0.0 if nearest is None else median_low(self._decode[nearest])

    def _charge(self, seconds: float, done: Sequence[_Work]) -> None:
        steps = [work.rows for work in done if work.rows]
        passes = total([work.passes for work in done if not work.rows])
        *others, rows = steps or [0]
        seconds = max(0.0, seconds - sum(map(self._decode_step, others)))
        if passes.tokens:
            if rows:
                decode_step = self._decode_step(rows)
                if decode_step > seconds:
                    # Shorter than a decode alone was thought to be, perhaps of other rows.
                    self._took(rows, seconds)
                    decode_step = min(seconds, self._decode_step(rows))
                seconds -= decode_step
            foreseen = passes.seconds(self.costs(rows))
            self._late = max(_FORGIVEN * self._late, min(seconds, _LONGEST * foreseen) - foreseen)
            if self._prompts.steps >= _SURE:
                seconds = min(seconds, max(_LONGEST * foreseen, _SHORT))
            self._prompts.add(passes, seconds, _PASS * self._decode_step(1))
        elif rows:
            self._took(rows, seconds)

    def _took(self, rows: int, seconds: float) -> None:
        self._decode.setdefault(_size(rows), deque(maxlen=_STEPS)).append(seconds)


def _work_of(passes: Passes) -> _Work:
    return _Work(passes=passes)


def _size(rows: int) -> int:
    """Numbers of rows whose steps take about as long: 1, 2, 3 to 4, 5 to 8, 9 to 16, ..."""
    return max(0, rows - 1).bit_length()


class _Fit:
    """seconds = passes * a + tokens * b + reach * c, by least squares; what is older counts less.

    Many short prompts cost more than one as long as all of them: each is a pass through the
    weights, and its processor's work. A token far into a long prompt costs more than its first.
    What measurements do not tell apart is put down to tokens, but for what a pass is expected to
    take (ridge regression towards that).
    """

    # What may differ from what is expected, if none of it is below zero then.
    _SOME = ((0, 1, 2), (1, 2), (0, 1))

    def __init__(self) -> None:
        self._products = [[0.0] * 3 for _ in range(3)]
        self._sums = [0.0] * 3
        self.seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)  # b, a, c
        self.steps = 0

    def add(self, passes: Passes, seconds: float, a_pass: float) -> None:
        """`a_pass`: what one is thought to take, as long as measurements do not tell."""
        self.steps += 1
        for one in range(3):
            self._sums[one] = _MEMORY * self._sums[one] + passes[one] * seconds
            for two in range(3):
                before = _MEMORY * self._products[one][two]
                self._products[one][two] = before + passes[one] * passes[two]
        expected = self._expected(a_pass)
        solutions = (self._solve(some, expected) for some in self._SOME)
        a, b, c = next((each for each in solutions if min(each) >= 0), expected)
        self.seconds = (b, a, c)

    def _expected(self, a_pass: float) -> tuple[float, float, float]:
        """Passes take so long, or less if that is more than was measured, and tokens the rest."""
        passes, tokens, _ = self._products[1]
        a_pass = min(a_pass, self._sums[1] / passes) if passes else 0.0
        return a_pass, max(0.0, self._sums[1] - passes * a_pass) / tokens, 0.0

    def _ridge(self) -> tuple[float, float, float]:
        """How much speaks against another cost than is expected."""
        _, tokens, reach = (self._products[at][at] for at in range(3))
        return _FOR_PASS, 0.0, _FOR_REACH * (1 + _SHALLOW**2 * tokens / reach if reach else 1)

    def _solve(self, some: Sequence[int], expected: Sequence[float]) -> Sequence[float]:
        """Seconds of each, if only these differ from what is expected."""
        some = [at for at in some if self._products[at][at]]
        # Scaled, so that what is nearly nothing is nearly nothing of one.
        scale = [self._products[at][at] ** 0.5 for at in some]
        rows = []
        for m, one in enumerate(some):
            found = sum(map(mul, self._products[one], expected))
            row = [self._products[one][two] / (scale[m] * scale[n]) for n, two in enumerate(some)]
            row[m] += self._ridge()[one]
            rows.append([*row, (self._sums[one] - found) / scale[m]])
        each = list(expected)
        for at, value, size in zip(some, _eliminate(rows), scale, strict=True):
            each[at] += value / size
        return each


def _eliminate(rows: list[list[float]]) -> list[float]:
    """Solve a small symmetric and definite system, its right side last."""
    count = len(rows)
    for at in range(count):
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for other in range(count):
            if other != at:
                factor = rows[other][at]
                pairs = zip(rows[other], rows[at], strict=True)
                rows[other] = [value - factor * pivot for value, pivot in pairs]
    return [row[-1] for row in rows]
