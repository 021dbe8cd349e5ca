"""Who holds which page: nobody's is another's, and where tokens are written follows the table."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.cache.paged.attention import PAGE, PARTITION
from bushel.cache.paged.page_table import PageTable, pages_of
from bushel.core import IntegrityError
from bushel.core.footprint import STEP

HEADS = 3
# What happens to a batch: a row of so many tokens comes, one leaves, a step of so many tokens.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(1, 5 * PAGE)),
        st.tuples(st.just("leave"), st.integers(0, 99)),
        st.tuples(st.just("step"), st.integers(1, 8)),
    ),
    max_size=40,
)


class Followed:
    """A table, and beside it what each place of the pool holds: the row's name and the token."""

    def __init__(self) -> None:
        self.table = PageTable()
        self.positions: list[int] = []
        self.names: list[int] = []
        self.pool: dict[int, tuple[int, int, int]] = {}
        self.most = 0

    def join(self, tokens: int) -> None:
        self.table.join(tokens)
        self.names.append(max(self.names, default=-1) + 1 + len(self.pool))
        self.positions.append(tokens)
        slots = np.array(self.table.slots_of_row(len(self.names) - 1, tokens, HEADS))[0]
        self._write(slots, self.names[-1], 0)

    def step(self, count: int) -> None:
        self.table.reserve(self.positions, count)
        slots = np.array(self.table.slots(HEADS))
        for row, name in enumerate(self.names):
            self._write(slots[row], name, self.positions[row])
        self.positions = [position + count for position in self.positions]
        assert self.table.after == self.positions == self.table.lengths.tolist()

    def leave(self, row: int) -> None:
        keep = [other for other in range(len(self.names)) if other != row]
        self.table.leave(keep)
        self.names = [self.names[at] for at in keep]
        self.positions = [self.positions[at] for at in keep]
        if self.table.moved is not None:
            size = HEADS * PAGE
            was = self.table.moved.tolist()
            self.pool = {
                page * size + at: self.pool[old * size + at]
                for page, old in enumerate(was)
                for at in range(size)
                if old * size + at in self.pool
            }

    def _write(self, slots: np.ndarray, name: int, first: int) -> None:
        """[heads, tokens]"""
        for head, places in enumerate(slots.tolist()):
            for at, place in enumerate(places):
                self.pool[place] = (name, head, first + at)

    def check(self) -> None:
        self.table.check_integrity(self.positions)
        for row, (name, position) in enumerate(zip(self.names, self.positions, strict=True)):
            for token in range(position):
                page = self.table.rows[row][token // PAGE]
                for head in range(HEADS):
                    place = (page * HEADS + head) * PAGE + token % PAGE
                    assert self.pool[place] == (name, head, token)


@given(EVENTS)
def test_every_row_finds_its_own_tokens_and_nobody_elses(events: list[tuple[str, int]]) -> None:
    followed = Followed()
    for what, number in events:
        if what == "join":
            followed.join(number)
        elif followed.names and what == "leave":
            followed.leave(number % len(followed.names))
        elif followed.names and what == "step":
            followed.step(number)
        followed.check()


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8), st.integers(1, 40))
def test_the_pool_is_never_larger_than_was_promised(lengths: list[int], steps: int) -> None:
    """Rows that only grow: a row's tokens, and what the libraries' caches would grow by."""
    table = PageTable()
    for length in lengths:
        table.join(length)
    for step in range(0, steps * 16, 16):
        table.reserve([length + step for length in lengths], 16)
    promised = sum(length + steps * 16 + STEP for length in lengths)
    assert table.capacity * PAGE <= promised


def test_a_step_sends_the_table_in_whole_partitions() -> None:
    """So that a kernel for few sizes serves rows of any length."""
    table = PageTable()
    table.join(5)
    table.join(PARTITION)
    table.reserve([5, PARTITION], 1)
    assert table.table.shape == (2, 2 * PARTITION // PAGE)
    assert table.offset.tolist() == [5, PARTITION]
    assert table.table[0, :1].tolist() == table.rows[0]


def test_a_row_that_leaves_moves_nobody() -> None:
    table = PageTable()
    for tokens in (40, 70, 90, 50):
        table.join(tokens)
    others = [table.rows[at] for at in (0, 2, 3)]
    table.leave([0, 2, 3])
    assert table.rows == others
    assert table.moved is None
    table.join(70)  # in what the other gave back
    assert table.capacity == sum(map(pages_of, (40, 70, 90, 50)))


@pytest.mark.parametrize("fault", ["shared", "lost", "too few"])
def test_a_table_that_is_wrong_is_noticed(fault: str) -> None:
    table = PageTable()
    table.join(40)
    table.join(40)
    table.leave([0])
    table.join(20)
    positions = [40, 20]
    if fault == "shared":
        table.rows[1][0] = table.rows[0][0]
    elif fault == "lost":
        table._free.pop()
    else:
        positions = [40, 60]
    with pytest.raises(IntegrityError):
        table.check_integrity(positions)


def test_slots_are_made_once_a_step_for_layers_of_a_kind() -> None:
    table = PageTable()
    table.join(3)
    table.join(20)
    table.reserve([3, 20], 2)
    slots = table.slots(2)
    assert table.slots(2) is slots
    assert slots.shape == (2, 2, 2)
    assert mx.all(table.slots(4)[:, 0, 0] != table.slots(4)[:, 1, 0])
