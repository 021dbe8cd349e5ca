"""What a step is told of pages: one table for all layers, sent when it has changed."""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx
import pytest

from bushel.cache.paged.attention import PARTITION
from bushel.cache.paged.page_kernels import PAGE
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.page_table import PageTable
from bushel.core import IntegrityError


def table_of(*tokens: int) -> PageTable:
    """Of rows that have run so many."""
    table = PageTable(PagePool())
    for count in tokens:
        pages = table.pool.new()
        table.pool.make_writable(pages, 0, count)
        table.join(pages)
    return table


def test_a_step_sends_the_table_in_whole_partitions() -> None:
    """So that a kernel for few sizes serves rows of any length."""
    table = table_of(5, PARTITION)
    table.reserve([5, PARTITION], 1)
    assert table.table.shape == (2, 2 * PARTITION // PAGE)
    assert isinstance(table.offset, mx.array)
    assert table.offset.tolist() == [5, PARTITION]
    assert table.lengths.tolist() == table.after == [6, PARTITION + 1]
    assert table.table[0, :1].tolist() == table.rows[0].ids


def test_a_lone_row_stands_where_the_libraries_say_it_stands() -> None:
    table = table_of(40)
    table.reserve([40], 1)
    assert table.offset == 40


def test_the_table_is_sent_again_only_when_a_row_takes_a_page_comes_or_goes() -> None:
    table = table_of(14, 20)
    positions = [14, 20]
    sent = []
    for _ in range(3 * PAGE):
        table.reserve(positions, 1)
        positions = table.after
        sent.append(table.table)
        for row, pages in enumerate(table.rows):
            assert table.table[row, : len(pages.ids)].tolist() == pages.ids
    changes = sum(one is not other for one, other in pairwise(sent))
    assert changes == 6  # three pages of either row
    table.leave([1])
    table.reserve(positions[1:], 1)
    assert table.table[0, : len(table.rows[0].ids)].tolist() == table.rows[0].ids


def test_a_row_that_leaves_moves_nobody() -> None:
    """Their pages are what they were, and its own are free. B62."""
    table = table_of(40, 70, 90, 50)
    others = [[*table.rows[at].ids] for at in (0, 2, 3)]
    used = table.pool.used
    table.leave([0, 2, 3])
    assert [pages.ids for pages in table.rows] == others
    assert table.pool.used == used - 5


def test_pages_that_are_renumbered_are_found() -> None:
    table = table_of(40, 70, 90)
    table.reserve([40, 70, 90], 1)
    table.leave([1, 2])
    table.pool.resize(0)  # as small as it can be
    table.reserve([71, 91], 1)
    for row, pages in enumerate(table.rows):
        assert table.table[row, : len(pages.ids)].tolist() == pages.ids
    table.pool.check_integrity()


def test_a_row_with_too_few_pages_is_noticed() -> None:
    table = table_of(40, 20)
    table.check_integrity([40, 20])
    with pytest.raises(IntegrityError):
        table.check_integrity([40, 60])
    with pytest.raises(IntegrityError):
        table.check_integrity([40])


def test_slots_are_made_once_a_step_for_layers_of_a_kind() -> None:
    table = table_of(3, 20)
    table.reserve([3, 20], 2)
    slots = table.slots(2)
    assert table.slots(2) is slots
    assert slots.shape == (2, 2, 2)
    assert mx.all(table.slots(4)[:, 0, 0] != table.slots(4)[:, 1, 0])
