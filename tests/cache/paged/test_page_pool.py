"""Who holds which page: everyone finds the tokens that they wrote, whoever else writes."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.cache.paged.page_kernels import PAGE
from bushel.cache.paged.page_pool import PageList, PagePool, pages_of
from bushel.core import IntegrityError

# What happens, to which of those who are there, and how many tokens it is about.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("begin", "write", "fork", "leave", "keep", "restore", "forget", "shrink")),
        st.integers(0, 99),
        st.integers(1, 3 * PAGE),
    ),
    max_size=40,
)


class Held:
    """Someone's pages, and the tokens that are to be in them."""

    def __init__(self, pages: PageList, tokens: list[int]):
        self.pages, self.tokens = pages, tokens


class Followed:
    """A pool of one layer whose keys are the numbers of their tokens."""

    def __init__(self) -> None:
        self.pool = PagePool(1)
        self.rows: list[Held] = []
        self.kept: list[Held] = []
        self.written = 0

    def write(self, row: Held, count: int) -> None:
        position, store = len(row.tokens), self.pool.layers[0]
        self.pool.make_writable(row.pages, position, count)
        new = list(range(self.written, self.written + count))
        self.written += count
        keys = mx.broadcast_to(
            mx.array(new, dtype=mx.float32)[None, None, :, None], (1, 2, count, 8)
        )
        store.fit(self.pool.capacity, keys, keys)
        pages = row.pages.ids[position // PAGE : pages_of(position + count)]
        store.write(pages, position % PAGE, keys, -keys)
        row.tokens.extend(new)

    def happens(self, what: str, whom: int, count: int) -> None:
        row = self.rows[whom % len(self.rows)] if self.rows else None
        held = self.kept[whom % len(self.kept)] if self.kept else None
        if what == "begin":
            self.rows.append(Held(self.pool.new(), []))
            self.write(self.rows[-1], count)
        elif what == "write" and row:
            self.write(row, count)
        elif what == "fork" and row:
            self.rows.append(Held(row.pages.share(), [*row.tokens]))
        elif what == "leave" and row:
            self.rows.remove(row)
        elif what == "keep" and row:
            end = min(count, len(row.tokens))
            self.kept.append(Held(row.pages.share(0, pages_of(end), kept=True), row.tokens[:end]))
        elif what == "restore" and held:
            end = min(count, len(held.tokens))
            self.rows.append(Held(held.pages.share(0, pages_of(end)), held.tokens[:end]))
        elif what == "forget" and held:
            self.kept.remove(held)
        elif what == "shrink":
            self.pool.resize(self.pool.used)

    def check(self) -> None:
        self.pool.check_integrity()
        for held in (*self.rows, *self.kept):
            keys, values = self.pool.layers[0].read(held.pages.ids, 0, len(held.tokens))
            expected = np.array(held.tokens, np.float32)
            np.testing.assert_array_equal(np.array(keys)[0, 1, :, 3], expected)
            np.testing.assert_array_equal(np.array(values)[0, 0, :, 0], -expected)


@given(EVENTS)
def test_everyone_finds_their_own_tokens(events: list[tuple[str, int, int]]) -> None:
    """However rows come, part, leave, are kept and restored. B62."""
    followed = Followed()
    for event in events:
        followed.happens(*event)
        followed.check()
    followed.rows.clear()
    followed.kept.clear()
    followed.check()
    assert followed.pool.used == 0


FORK = [("begin", 0, 20), ("fork", 0, 1), ("write", 0, 1), ("write", 1, 1)]


def played(events: list[tuple[str, int, int]]) -> Followed:
    followed = Followed()
    for event in events:
        followed.happens(*event)
    return followed


def test_rows_that_part_share_all_but_the_page_in_which_they_do() -> None:
    """And a row alone with its page goes on in it. B62."""
    followed = played(FORK)
    first, second = (row.pages.ids for row in followed.rows)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert followed.pool.used == 3


def test_what_is_kept_of_a_row_costs_no_page_and_no_copy() -> None:
    """Only who comes back to a page that was written on takes a copy. B62."""
    followed = played([("begin", 0, 20), ("keep", 0, 20), ("write", 0, 5)])
    assert followed.pool.used == followed.pool.of_rows == followed.pool.of_kept == 2
    followed.happens("restore", 0, 20)  # the row has gone on in the last page, this one cannot
    followed.happens("write", 1, 1)
    assert followed.pool.used == 3
    followed.check()


def test_a_shared_page_that_is_written_in_place_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PagePool, "_may_write", lambda *_: True)
    with pytest.raises(AssertionError):
        played(FORK).check()


def test_a_page_that_is_given_out_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    release = PagePool._release

    def early(self: PagePool, pages: PageList) -> None:
        release(self, pages)
        self._free.extend(page for page in pages.ids if page not in self._free)

    monkeypatch.setattr(PagePool, "_release", early)
    followed = played([("begin", 0, 20), ("fork", 0, 1), ("leave", 1, 1)])
    with pytest.raises(IntegrityError):
        followed.pool.check_integrity()


def lost(pool: PagePool, rows: list[Held]) -> None:
    pool._free.pop()


def unheld(pool: PagePool, rows: list[Held]) -> None:
    rows[0].pages.ids.append(pool._free[-1])


def taken_twice(pool: PagePool, rows: list[Held]) -> None:
    rows[0].pages.ids[0] = rows[1].pages.ids[0]


@pytest.mark.parametrize("fault", [lost, unheld, taken_twice])
def test_a_pool_that_is_wrong_is_noticed(fault: Any) -> None:
    followed = played([("begin", 0, 40), ("begin", 0, 40), ("begin", 0, 9), ("leave", 2, 1)])
    followed.pool.check_integrity()
    ids = [[*row.pages.ids] for row in followed.rows]
    fault(followed.pool, followed.rows)
    with pytest.raises(IntegrityError):
        followed.pool.check_integrity()
    for row, before in zip(followed.rows, ids, strict=True):
        row.pages.ids[:] = before  # so that they can be dropped


def test_a_pool_grows_by_a_part_of_itself_and_no_further_than_it_may() -> None:
    followed = played([("begin", 0, 48)] * 40)
    pool = followed.pool
    assert 120 <= pool.capacity < 160
    asked: list[int] = []
    pool.reclaim = asked.append
    pool.fit(120)
    assert pool.capacity == 120
    for _ in range(3):
        followed.happens("begin", 0, 48)
    assert asked  # to let go of what is only kept; rows get theirs all the same
    assert pool.capacity == pool.used == 129
    followed.check()


def test_others_are_asked_before_a_pool_outgrows_its_limit() -> None:
    followed = played([("begin", 0, 48), ("keep", 0, 48), ("begin", 0, 48), ("leave", 0, 1)])
    pool = followed.pool
    pool.fit(pool.used)

    def forget(count: int) -> None:
        followed.kept.clear()

    pool.reclaim = forget
    followed.rows.append(Held(pool.new(), []))
    followed.write(followed.rows[-1], 48)
    assert pool.capacity == 6
    followed.check()


# -- too little memory ---------------------------------------------------------------------------


class ThreeLayers:
    """A pool in which somebody has written, and of whose arrays one cannot be made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.pool, self.patch, self.tokens = PagePool(3), patch, 40
        self.first = self.pool.new()  # in the way: its pages go before the pool shrinks
        self.pages = self.pool.new()
        self.pool.make_writable(self.first, 0, 2 * PAGE)
        self.pool.make_writable(self.pages, 0, self.tokens)
        for number, layer in enumerate(self.pool.layers):
            layer.fit(self.pool.capacity, self.keys(0), self.keys(0))
            layer.write(self.pages.ids, 0, self.keys(number), -self.keys(number))

    def keys(self, layer: int) -> mx.array:
        numbers = mx.arange(100 * layer, 100 * layer + self.tokens, dtype=mx.float32)
        return mx.broadcast_to(numbers[None, None, :, None], (1, 2, self.tokens, 8))

    def without_memory(self, allowed: int, change: Any) -> None:
        """This change, while so many evaluations of arrays have room."""
        left, real = [allowed], mx.eval

        def evaluate(*arrays: Any) -> None:
            if not left[0]:
                raise RuntimeError("[malloc] Unable to allocate 123456789 bytes.")
            left[0] -= 1
            real(*arrays)

        with self.patch.context() as patch:
            patch.setattr(mx, "eval", evaluate)
            change()

    def check(self) -> None:
        self.pool.check_integrity()
        assert self.pool.computable()
        for number, layer in enumerate(self.pool.layers):
            keys, values = layer.read(self.pages.ids, 0, self.tokens)
            np.testing.assert_array_equal(np.array(keys), np.array(self.keys(number)))
            np.testing.assert_array_equal(np.array(values), -np.array(self.keys(number)))


# Three for each layer: what was written to it, its keys, its values.
@pytest.mark.parametrize("allowed", range(9))
@pytest.mark.parametrize("shrinks", [False, True])
def test_a_pool_whose_size_cannot_be_changed_is_what_it_was(
    allowed: int, shrinks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever layer's keys or values there is no memory for. And it may be changed later."""
    three = ThreeLayers(monkeypatch)
    pool = three.pool
    if shrinks:
        pool.trim(three.first, 0)
        three.without_memory(allowed, lambda: pool.resize(3))
        assert pool.capacity in (3, 32)
    else:
        with pytest.raises(RuntimeError, match="malloc"):
            three.without_memory(allowed, lambda: pool.resize(90))
        assert pool.capacity == 32
    three.check()
    for capacity in (60, 90, pool.used):
        pool.resize(capacity)
        three.check()
        assert (pool.capacity, pool.nbytes) == (capacity, capacity * pool.page_bytes)


def test_a_pool_that_could_not_grow_has_given_back_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = ThreeLayers(monkeypatch)
    pool, resize = three.pool, type(three.pool.layers[2]).resize
    before = pool.nbytes

    def full(layer: Any, capacity: int, *args: Any) -> None:
        if layer is pool.layers[2]:
            raise RuntimeError("[malloc] Unable to allocate 123456789 bytes.")
        resize(layer, capacity, *args)

    with monkeypatch.context() as patch:
        patch.setattr(type(pool.layers[2]), "resize", full)
        with pytest.raises(RuntimeError, match="malloc"):
            pool.resize(90)
    assert pool.nbytes == before
    three.check()


def test_a_page_that_cannot_be_copied_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = played([("begin", 0, 20), ("fork", 0, 1), ("write", 0, 1)])

    def full(*_: Any) -> None:
        raise RuntimeError("[malloc] Unable to allocate 123456789 bytes.")

    with monkeypatch.context() as patch:
        patch.setattr(type(followed.pool.layers[0]), "copy", full)
        with pytest.raises(RuntimeError, match="malloc"):
            followed.pool.make_writable(followed.rows[1].pages, 20, 1)
    followed.check()
    followed.happens("write", 1, 1)
    followed.check()


def test_layers_of_fewer_pages_than_their_pool_are_noticed() -> None:
    """By who asks after a fault, too: all that was computed goes then."""
    followed = played([("begin", 0, 40), ("begin", 0, 40)])
    assert followed.pool.computable()
    followed.pool.layers[0].resize(5)
    assert not followed.pool.computable()
    with pytest.raises(IntegrityError, match="a layer of 5 pages"):
        followed.pool.check_integrity()
