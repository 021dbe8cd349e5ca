"""A drafter that knows what every row says, and is wrong now and then: what drafts do is tried with
every acceptance there is, whatever a random model can guess of itself.
"""

from collections.abc import Collection, Mapping, Sequence

from bushel.core import IntegrityError
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile
from bushel.engine.drafts.drafter import KeptRound
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply

DEEPEST = 5
# As if wider passes and more rows cost nothing: everybody drafts as deep as they can.
FREE = CostProfile(((1.0,) * (DEEPEST + 1),) * 32)

Known = Mapping[tuple[int, ...], Sequence[int]]  # replies by prompt


class Oracle:
    """A `Drafter`. Rows draft to different depths, some not at all, by how much they have said."""

    name, deepest, wants_hidden = "oracle", DEEPEST, False

    def __init__(self, known: Known, vocab: int):
        self._known, self._vocab = known, vocab
        self._rows: list[Reply] = []

    def join(self, rows: Collection[PrefilledRow]) -> None:
        self._rows += [ready.sequence for ready in rows]

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in keep]

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        return [[1.0] * (self._depth(row) - ahead) for row in self._rows]

    def _depth(self, row: Reply) -> int:
        said, length = len(row.tokens), len(row.request.prompt.ids)
        return min((3 * said + length) % (DEEPEST + 1), row.draft_room)

    def propose(self, depths: Sequence[int]) -> list[list[int]]:
        return [self._draft(row, depth) for row, depth in zip(self._rows, depths, strict=True)]

    def _draft(self, row: Reply, depth: int) -> list[int]:
        said = len(row.tokens)
        reply = self._known[tuple(row.request.prompt.ids)]
        places = range(said, min(said + depth, len(reply)))
        wrong = len(row.request.prompt.ids)
        return [(reply[at] + ((5 * at + wrong) % 7 == 0)) % self._vocab for at in places]

    def kept(self, round: KeptRound) -> None:
        if len(round.kept) != len(self._rows):
            raise IntegrityError(f"{round.kept} of {len(self._rows)} rows")

    def check_integrity(self) -> None:
        pass


def oracle(known: Known, vocab: int) -> Speculation:
    return Speculation((lambda: Oracle(known, vocab),), FREE, None)
