"""How many drafts pay: a pure function of what rows have shown and of what passes cost."""

from __future__ import annotations

from collections.abc import Sequence

from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile

# A pass of several tokens has to be worth so many times a plain step: costs are measured once, and
# what rows have shown is a guess.
_WORTH = 1.03
# Drafts that hardly ever hold are left out, even where others of their pass make room for them:
# masks and penalties are worked out for each.
_LEAST = 0.1


def depths(
    chances: Sequence[Sequence[float]], profile: CostProfile, most: int = MOST_DRAFTS
) -> list[int]:
    """Drafts of each row in the next pass; none at all where a plain step says more per second.

    chances: by row, that its first draft holds, that its first two do, and so on. All rows share a
    pass, as wide as the row with the most drafts makes it. most: columns of it, beside a plain
    step's, that there is room for: what fills rows up is computed like drafts.
    """
    rows = len(chances)
    hopeful = [[chance for chance in row if chance >= _LEAST] for row in chances]
    said = float(rows)  # tokens that the pass is expected to add
    best, depth = _WORTH * said / profile.cost(rows, 1) if rows else 0.0, 0
    deepest = min(profile.deepest, most // max(rows, 1), max(map(len, hopeful), default=0))
    for count in range(1, deepest + 1):
        said += sum(row[count - 1] for row in hopeful if len(row) >= count)
        if (rate := said / profile.cost(rows, count + 1)) > best:
            best, depth = rate, count
    return [min(len(row), depth) for row in hopeful]


def may_pay(rows: int, profile: CostProfile, most: int = MOST_DRAFTS) -> bool:
    """Whether drafts would, if all of them held."""
    return any(depths([[1.0] * profile.deepest] * rows, profile, most))
