"""How often a drafter's tokens have been accepted in one reply."""

from __future__ import annotations

# Trials after which an old one counts half: replies change between prose and what they copy.
_HALF = 24.0
_FADE = 0.5 ** (1 / _HALF)
_WEIGHT = 4.0  # of the prior, in trials
# Tokens after which a drafter that failed is tried again, at first; twice as many each time.
_WAIT, _LONGEST_WAIT = 16, 1024


class Acceptance:
    """A function of what was counted alone: no clock, and nothing of other replies.

    prior: how likely a drafted token is to be accepted before anything is known.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._accepted, self._tried = 0.0, 0.0
        self._last, self._wait = 0, _WAIT

    def count(self, accepted: int, rejected: bool, reply_tokens: int = 0) -> None:
        """So many drafted tokens were accepted, and whether the one after them was rejected.

        reply_tokens: of the reply by then, for `retried`.
        """
        if reply_tokens - self._last >= self._wait:
            self._wait = _WAIT if accepted else min(2 * self._wait, _LONGEST_WAIT)
        self._last = reply_tokens
        for counted in (*[1.0] * accepted, *[0.0] * rejected):
            self._accepted = _FADE * self._accepted + counted
            self._tried = _FADE * self._tried + 1

    @property
    def chance(self) -> float:
        """That the next drafted token is accepted, if those before it in its pass are."""
        return (self._accepted + _WEIGHT * self._prior) / (self._tried + _WEIGHT)

    @property
    def due(self) -> int:
        """Tokens of the reply when it is worth another try."""
        return self._last + self._wait

    def retried(self, reply_tokens: int) -> float:
        """The chance; or the prior, if that is higher and nothing was tried for some tokens."""
        return max(self.chance, self._prior) if reply_tokens >= self.due else self.chance


def along(chance: float, most: int) -> list[float]:
    """That the first token is accepted, that the first two are, ..., each with the same chance."""
    return [chance**count for count in range(1, most + 1)]
