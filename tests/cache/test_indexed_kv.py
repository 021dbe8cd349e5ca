"""Rows of sparse attention in one batch choose from an index of their own tokens. B1, B2."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_vlm.models.qwen4_exp.language import QSAKVCache

from bushel.cache.indexed_kv import IndexedKV
from bushel.cache.kinds import kind_of
from bushel.cache.prefix.kv_segment import SegmentLayout
from bushel.cache.prefix.token_key import Key
from bushel.core import IntegrityError
from tests.depth import some

KIND = IndexedKV()
AXES = np.array([0, 100, 200])  # three axes of positions, each another


def number(row: int, position: int) -> float:
    return float(1000 * (row + 1) + position)


def run(layer: Any, tokens: list[tuple[int, int]]) -> None:
    """The next token of every row, as the library's attention keeps it: index first."""
    keys = mx.array([[[[number(*token)]]] for token in tokens])
    places = mx.array([position for _, position in tokens])[None, :, None] + AXES[:, None, None]
    layer.update_indexer(keys[:, 0] + 0.5, mx.array(places))
    layer.update_and_fetch(keys, -keys)


def alone(row: int, tokens: int) -> QSAKVCache:
    single = QSAKVCache()
    for position in range(tokens):
        run(single, [(row, position)])
    return single


def held(layer: Any, at: int, position: int) -> list[list[float]]:
    """What one row of a batch, or a lone one, holds: keys, values, index, and its places."""
    kv = getattr(layer, "kv_cache", layer)
    end = getattr(layer, "_idx", position)
    used = slice(end - position, end)
    arrays = kv.keys[at, 0, used, 0], kv.values[at, 0, used, 0], layer.index_keys[at, used, 0]
    return [array.tolist() for array in (*arrays, *layer.index_position_ids[:, at, used])]


def expected(row: int, position: int) -> list[list[float]]:
    keys = [number(row, at) for at in range(position)]
    places = [[int(at + axis) for at in range(position)] for axis in AXES]
    return [keys, [-key for key in keys], [key + 0.5 for key in keys], *places]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["step", "join", "leave", "out and in"]), st.integers(0, 40)),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=some(40))
@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), CHANGES)
def test_rows_keep_their_own_index_whoever_comes_and_goes(
    lengths: list[int], changes: list[tuple[str, int]]
) -> None:
    rows = dict(enumerate(lengths))
    batch = KIND.merge([alone(row, tokens) for row, tokens in rows.items()])
    assert kind_of(batch).name == kind_of(QSAKVCache()).name == KIND.name
    for change, count in changes:
        if change == "join":
            row = max(rows) + 1
            KIND.join(batch, [alone(row, 1 + count)])
            rows[row] = 1 + count
        elif change == "leave" and len(rows) > 2:
            keep = [at for at in range(len(rows)) if at != count % len(rows)]
            rows = {row: rows[row] for at, row in enumerate(rows) if at in keep}
            KIND.leave(batch, keep, list(rows.values()))
        elif change == "out and in":
            singles = [
                KIND.single(batch, at, position, QSAKVCache())
                for at, position in enumerate(rows.values())
            ]
            kept = [KIND.snapshot(single, single.offset) for single in singles]
            batch = KIND.merge([KIND.restore(one, QSAKVCache()) for one in kept])
        run(batch, list(rows.items()))
        rows = {row: position + 1 for row, position in rows.items()}
        for at, (row, position) in enumerate(rows.items()):
            assert held(batch, at, position) == expected(row, position)
        KIND.check(batch, list(rows.values()))


def key_of(length: int) -> Key:
    return np.arange(length)


@pytest.mark.parametrize("end", [1, 6, 8, 21])
def test_what_is_kept_of_a_row_in_a_batch_goes_on_alone(end: int) -> None:
    """Cut by token, in two pieces, out of a batch; put together, it goes on like the row."""
    batch = KIND.merge([alone(0, 21), alone(1, 30)])
    layout = SegmentLayout.of([alone(0, 1)])
    pieces = [(start, stop) for start, stop in ((0, 5), (5, end)) if start < min(stop, end)]
    segments = [layout.cut([batch], 0, key_of(21), start, min(stop, end)) for start, stop in pieces]
    fresh = QSAKVCache()
    layout.assemble(segments, key_of(end), 40, [fresh])
    for position in range(end, end + 6):
        KIND.check(fresh, [position])
        assert held(fresh, 0, position) == expected(0, position)
        run(fresh, [(0, position)])


def test_an_index_that_lacks_a_token_is_noticed() -> None:
    single = alone(0, 9)
    KIND.check(single, [9])
    single.index_keys = single.index_keys[:, 1:]
    with pytest.raises(IntegrityError, match="an index of 8 tokens"):
        KIND.check(single, [9])


def test_a_rows_size_counts_its_index() -> None:
    """A server that did not would promise memory that it has not. B56."""
    (piece,) = KIND.size(alone(0, 300), 300)
    keys_and_values, index, places = 2 * 4, 4, 3 * 4
    assert piece.per_token == keys_and_values + index + places


def test_keys_of_blocks_are_made_again_for_rows_that_meet() -> None:
    """The library makes them where attention asks for some: a row's may lack the newest."""
    rows = [alone(row, 12) for row in range(2)]
    for single in rows:
        single.index_block_keys, single.index_block_ratio = mx.zeros((1, 1, 2, 1)), 4
    assert KIND.merge(rows).index_block_keys is None


def test_keys_may_be_kept_in_fewer_bits_and_the_index_stays_exact() -> None:
    """Rounded, it would choose other blocks: much is lost where little was to be."""
    single = QSAKVCache()
    single.update_indexer(mx.ones((1, 1, 64)), mx.zeros((3, 1, 1), mx.int32))
    single.update_and_fetch(mx.ones((1, 1, 1, 64)), mx.ones((1, 1, 1, 64)))
    groups = SegmentLayout.of([single], bits=8).groups
    assert [(group.width, len(group.slots), group.bits) for group in groups] == [
        (64, 2, 8),
        (64, 1, None),
        (3, 1, None),
    ]
