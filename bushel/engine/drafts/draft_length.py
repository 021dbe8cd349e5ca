"""How many drafted tokens pay: a pure function of acceptance so far and of what passes cost."""

from __future__ import annotations

from collections.abc import Sequence

from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile

# A pass of several tokens has to be worth so many times a plain step: costs are measured once, and
# what rows have shown is a guess.
_WORTH = 1.03
# Drafts that are hardly ever accepted are left out, even where their pass has room for them:
# masks and penalties are worked out for each.
_LEAST = 0.1


def draft_lengths(
    chances: Sequence[Sequence[float]], profile: CostProfile, most: int = MOST_DRAFTS
) -> list[int]:
    """Drafted tokens of each row in the next pass; none where a plain step says more per second.

    chances: by row, that its first token is accepted, that its first two are, and so on. All rows
    share a pass, as wide as the row with the longest draft makes it. most: columns of it, beside a
    plain step's, that there is room for: what fills rows up is computed like drafts.
    """
    rows = len(chances)
    hopeful = [[chance for chance in row if chance >= _LEAST] for row in chances]
    said = float(rows)  # tokens that the pass is expected to add
    best, longest = _WORTH * said / profile.cost(rows, 1) if rows else 0.0, 0
    deepest = min(profile.deepest, most // max(rows, 1), max(map(len, hopeful), default=0))
    for count in range(1, deepest + 1):
        said += sum(row[count - 1] for row in hopeful if len(row) >= count)
        if (rate := said / profile.cost(rows, count + 1)) > best:
            best, longest = rate, count
    return [min(len(row), longest) for row in hopeful]


def may_pay(rows: int, profile: CostProfile, most: int = MOST_DRAFTS) -> bool:
    """Whether drafts would, if all of them were accepted."""
    return any(draft_lengths([[1.0] * profile.deepest] * rows, profile, most))
