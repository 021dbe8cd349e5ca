"""When steps begin, what they take, and what the next one will."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from bushel.engine.plan import Costs, Work
from bushel.engine.step_costs import Passes, Stopwatch, total

log = logging.getLogger(__name__)

_SLOW = 2.0  # times as long as was foreseen, beyond the gap that streams were promised: told


class StepTimes:
    """An engine's clock, which nothing else of it looks at."""

    def __init__(self, clock: Callable[[], float], *, behind: bool):
        """behind: the device is behind the host; see `Stopwatch`."""
        self.clock = clock
        self.stopwatch = Stopwatch(behind=behind)
        self.began = 0.0  # the present or the last step
        self._caught_up = 0.0  # when all was done that the step before the present one had launched
        self._decoded = 0.0  # when the last step began in which rows went on
        self._prompts_since = 0.0  # seconds that prompts have been given from then on
        self.waited = 0.0  # of these, in steps after that one, in which rows waited

    def costs(self, rows: int) -> Costs:
        """With a decode step of so many rows."""
        return self.stopwatch.costs(rows)

    @property
    def since_decode(self) -> float:
        """The device may be behind: what prompts have been given counts as if it were done."""
        return max(self.began - self._decoded, self._prompts_since)

    def caught_up(self) -> None:
        """All that was launched before the present step is done."""
        self._caught_up = self.clock()

    def end(
        self, rows: int, passes: Sequence[Passes], *, read: bool, decoded: bool
    ) -> tuple[float, Passes]:
        """The present step's seconds, and its passes of prompts together.

        rows: that it has launched. read: it has waited for them. decoded: rows went on in it.
        """
        together, ended = total(passes), self.clock()
        self.stopwatch.step(self.began, self._caught_up, ended, rows=rows, passes=passes, read=read)
        seconds = together.seconds(self.costs(rows))
        if decoded:
            self._decoded, self._prompts_since, self.waited = self.began, 0.0, 0.0
        else:
            self.waited += seconds
        self._prompts_since += seconds
        return ended - self.began, together

    def rest(self) -> None:
        """Nothing runs: who comes next waits for nothing."""
        self.stopwatch.rest()


def tell_slow(seconds: float, work: Work, gap: float, passes: Sequence[Passes]) -> None:
    """Streams have felt it, and somebody may wonder why."""
    if work.rows and seconds > max(gap, _SLOW * work.seconds):
        log.info(
            "a step took %.2f s instead of %.2f: %d rows, prompts of %s tokens",
            *(seconds, work.seconds, work.rows, [each.tokens for each in passes]),
        )
