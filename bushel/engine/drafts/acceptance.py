"""How often a drafter's guesses have held in one reply."""

from __future__ import annotations

# Trials after which an old one counts half: replies change between prose and what they copy.
_HALF = 24.0
_FADE = 0.5 ** (1 / _HALF)
_WEIGHT = 4.0  # of the prior, in trials
# Tokens after which a drafter that failed is tried again, at first; twice as many each time.
_WAIT, _LONGEST_WAIT = 16, 1024


class Acceptance:
    """A function of what was counted alone: no clock, and nothing of other replies.

    prior: how likely a draft is to hold before anything is known.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._held, self._tried = 0.0, 0.0
        self._last, self._wait = 0, _WAIT

    def count(self, held: int, failed: bool, said: int = 0) -> None:
        """So many drafts held, one after the other, and whether the next one did not.

        said: tokens of the reply by then, for `retries`.
        """
        if said - self._last >= self._wait:
            self._wait = _WAIT if held else min(2 * self._wait, _LONGEST_WAIT)
        self._last = said
        for holds in (*[1.0] * held, *[0.0] * failed):
            self._held = _FADE * self._held + holds
            self._tried = _FADE * self._tried + 1

    @property
    def chance(self) -> float:
        """That the next draft holds, if those before it in its pass do."""
        return (self._held + _WEIGHT * self._prior) / (self._tried + _WEIGHT)

    @property
    def due(self) -> int:
        """Tokens of the reply when it is worth another try."""
        return self._last + self._wait

    def retried(self, said: int) -> float:
        """The chance; or the prior, if that is higher and nothing was tried for some tokens."""
        return max(self.chance, self._prior) if said >= self.due else self.chance


def along(chance: float, most: int) -> list[float]:
    """That the first draft holds, that the first two do, ..., where each has the same chance."""
    return [chance**count for count in range(1, most + 1)]
