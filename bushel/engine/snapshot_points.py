"""Where a prompt is cut so that its state can be kept: a pure function, without MLX.

    prompt   | system + tools | … | last user message | … tool rounds … | generation prompt |
    cuts                      ^ system    ^ grid      ^ user            ^ history          ^ prompt

The last is one token before the end. Every cut is one more pass over the weights, so those close
to another are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bushel.core import Borders

# A border that follows another cut within so many tokens is served by that one.
_NEAR = 16
# Cuts that no conversation asks for give way to any other within so many tokens.
FAR = 32


@dataclass(frozen=True)
class SnapshotPoint:
    position: int
    sort: str  # of the snapshot that is taken there (`cache.prefix.radix_tree`)


def plan_snapshot_points(
    length: int,
    restored: int,
    borders: Borders,
    fork: int,
    every: int,
    uncut: Sequence[tuple[int, int]] = (),
) -> tuple[SnapshotPoint, ...]:
    """In order, for what is left of a prompt of `length` after its first `restored` tokens.

    fork: where another prompt was seen to go on otherwise, or 0. every: the grid of long prompts.
    A cut at `restored` itself says what the state that was restored serves as.
    """
    last = length - 1

    def possible(position: int) -> bool:
        inside = any(low < position < high for low, high in uncut)
        return restored < position < last and not inside

    cuts: list[SnapshotPoint] = []
    for sort in ("system", "user", "history"):
        position = getattr(borders, sort)
        places = [*([restored] if restored else []), *(cut.position for cut in cuts)]
        serves = [place for place in places if 0 <= position - place < _NEAR]
        if serves:
            cuts.append(SnapshotPoint(serves[-1], sort))
        elif possible(position):
            cuts.append(SnapshotPoint(position, sort))
    taken = [restored, last, *(cut.position for cut in cuts)]
    if possible(fork) and all(abs(fork - other) >= FAR for other in taken):
        cuts.append(SnapshotPoint(fork, "fork"))
        taken.append(fork)
    for position in range(every, last, every) if every > 0 else ():
        if possible(position) and all(abs(position - other) >= FAR for other in taken):
            cuts.append(SnapshotPoint(position, "grid"))
    if last > 0:
        cuts.append(SnapshotPoint(last, "prompt"))
    return tuple(sorted(cuts, key=lambda cut: cut.position))
