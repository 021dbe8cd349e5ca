"""Rows of pools in one batch hold the entries that each of them holds alone. B1, B2."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.cache.pooled_kv import PooledKV, PoolingBatch
from bushel.core import IntegrityError
from bushel.models.overlapping_pools import OverlapPoolingCache

KIND = PooledKV()
RATIO = 4
Rows = dict[int, int]  # tokens that each has run


def tokens(row: int, start: int, end: int) -> mx.array:
    """Keys [1, T, 1] that tell whose and which they are."""
    return mx.array([[[float(1000 * (row + 1) + at)] for at in range(start, end)]])


def alone(row: int, length: int) -> OverlapPoolingCache:
    single = OverlapPoolingCache(RATIO)
    for position in range(length):
        run(single, tokens(row, position, position + 1))
    return single


def run(state: OverlapPoolingCache | PoolingBatch, new: mx.array) -> mx.array:
    """An entry is the tokens of its pool, side by side."""
    if state.overlap is None:
        shape = new.shape[0], RATIO, 1
        state.overlap = mx.zeros(shape), mx.full(shape, -mx.inf)
    kv, gate, _ = state.accumulate_windows(new, new, 0)
    if kv.shape[1]:
        state.keep_overlap(kv[:, -RATIO:], gate[:, -RATIO:])
    return state.update_and_fetch(kv.reshape(kv.shape[0], -1, RATIO))


def step(batch: PoolingBatch, rows: Rows) -> list[list[float]]:
    """What each row sees after its next token, which it runs."""
    entries = run(batch, mx.concatenate([tokens(row, at, at + 1) for row, at in rows.items()]))
    mask = batch.make_mask()
    for row in rows:
        rows[row] += 1
    counts = [entries.shape[1]] * len(rows) if mask is None else mask[:, 0].sum(-1).tolist()
    assert counts == batch.offset.tolist()
    return [np.array(entries[at, :count]).ravel().tolist() for at, count in enumerate(counts)]


def expected(rows: Rows) -> list[list[float]]:
    """Of rows that are about to run a token: the pools that are whole then."""
    return [
        [float(1000 * (row + 1) + at) for at in range((position + 1) // RATIO * RATIO)]
        for row, position in rows.items()
    ]


def last_pools(rows: Rows) -> list[list[float]]:
    return [
        [float(1000 * (row + 1) + at) for at in range(end - RATIO, end)] if end else [0.0] * RATIO
        for row, end in ((row, position // RATIO * RATIO) for row, position in rows.items())
    ]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["step", "join", "leave", "out and in"]), st.integers(0, 20)),
    min_size=1,
    max_size=15,
)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 18), min_size=2, max_size=4), CHANGES)
def test_rows_hold_their_own_entries_whoever_comes_and_goes(
    lengths: list[int], changes: list[tuple[str, int]]
) -> None:
    rows = dict(enumerate(lengths))
    batch = KIND.merge([alone(row, length) for row, length in rows.items()])
    for change, number in changes:
        if change == "join":
            row = max(rows) + 1
            KIND.join(batch, [alone(row, 1 + number)])
            rows[row] = 1 + number
        elif change == "leave" and len(rows) > 2:
            keep = [at for at in range(len(rows)) if at != number % len(rows)]
            rows = {row: rows[row] for at, row in enumerate(rows) if at in keep}
            KIND.leave(batch, keep, list(rows.values()))
        elif change == "out and in":
            kept = [
                KIND.snapshot(
                    KIND.single(batch, at, position, OverlapPoolingCache(RATIO)), position
                )
                for at, position in enumerate(rows.values())
            ]
            batch = KIND.merge([KIND.restore(one, OverlapPoolingCache(RATIO)) for one in kept])
        KIND.check(batch, list(rows.values()))
        seen = expected(rows)
        assert step(batch, rows) == seen
        assert batch.overlap[0][..., 0].tolist() == last_pools(rows)


def test_a_row_that_is_taken_out_goes_on_as_it_would_have_alone() -> None:
    lengths = {0: 3, 1: 9, 2: 12}
    batch = KIND.merge([alone(row, length) for row, length in lengths.items()])
    step(batch, dict(lengths))
    for row, length in lengths.items():
        taken = KIND.single(batch, row, length + 1, OverlapPoolingCache(RATIO))
        KIND.check(taken, [length + 1])
        whole = alone(row, length + 1)
        new = tokens(row, length + 1, length + 9)
        assert mx.array_equal(run(taken, new), run(whole, new))
        assert taken.remainder == whole.remainder


def test_pools_of_other_lengths_than_their_rows_are_noticed() -> None:
    batch = KIND.merge([alone(0, 5), alone(1, 9)])
    KIND.check(batch, [5, 9])
    with pytest.raises(IntegrityError, match="tokens"):
        KIND.check(batch, [5, 10])
    batch.pooled = batch.pooled[:, :1]
    with pytest.raises(IntegrityError, match="room for 1 of 2"):
        KIND.check(batch, [5, 9])


def test_memory_of_a_row_grows_by_an_entry_for_every_pool() -> None:
    """What a row is promised is what it takes, whether it has an entry yet or not."""
    for length in (1, 40):
        (piece,) = KIND.size(alone(0, length), length)
        assert piece.fixed == 4 * RATIO * 4  # keys and gates that wait, and as many of the last
        assert piece.buffers == 5
    assert piece.per_token == RATIO * 4 // RATIO
