"""Rows of chunked attention in one batch see what each of them sees alone. B1, B2."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ChunkedKVCache

from bushel.cache.chunked import BatchChunkedKVCache, ChunkedKV
from bushel.core.footprint import STEP

KIND = ChunkedKV()
CHUNK = 6


def token(row: int, position: int) -> mx.array:
    """Keys [1, 1, 1, 1] that tell whose and which they are."""
    return mx.array([[[[float(1000 * (row + 1) + position)]]]])


def alone(row: int, tokens: int) -> ChunkedKVCache:
    single = ChunkedKVCache(CHUNK)
    for position in range(tokens):
        single.maybe_trim_front()
        single.update_and_fetch(token(row, position), token(row, position))
    return single


def step(batch: BatchChunkedKVCache, rows: dict[int, int]) -> list[list[float]]:
    """What each row sees of its next token on, which it runs."""
    batch.maybe_trim_front()
    seen = batch.make_mask(1)
    new = mx.concatenate([token(row, position) for row, position in rows.items()])
    keys, _ = batch.update_and_fetch(new, new)
    for row in rows:
        rows[row] += 1
    return [
        np.array(keys[at, 0, :, 0])[np.array(seen[at, 0, 0])].tolist() for at in range(len(rows))
    ]


def expected(rows: dict[int, int]) -> list[list[float]]:
    """Of rows that are about to run a token: their chunk, and it."""
    return [
        [float(1000 * (row + 1) + at) for at in range(position // CHUNK * CHUNK, position + 1)]
        for row, position in rows.items()
    ]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["step", "join", "leave", "out and in"]), st.integers(0, 40)),
    min_size=1,
    max_size=25,
)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), CHANGES)
def test_rows_see_their_own_chunk_whoever_comes_and_goes(
    lengths: list[int], changes: list[tuple[str, int]]
) -> None:
    rows = dict(enumerate(lengths))
    batch = KIND.merge([alone(row, tokens) for row, tokens in rows.items()])
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
            singles = [
                KIND.single(batch, at, position, ChunkedKVCache(CHUNK))
                for at, position in enumerate(rows.values())
            ]
            kept = [KIND.snapshot(single, single.offset) for single in singles]
            batch = KIND.merge([KIND.restore(one, ChunkedKVCache(CHUNK)) for one in kept])
        want = expected(rows)
        assert step(batch, rows) == want
        KIND.check(batch, list(rows.values()))


def test_a_long_reply_keeps_no_more_than_its_chunk_and_some_room() -> None:
    rows = {0: 3, 1: 20}
    batch = KIND.merge([alone(row, tokens) for row, tokens in rows.items()])
    for _ in range(3 * STEP):
        want = expected(rows)
        assert step(batch, rows) == want
    assert batch.keys.shape[2] <= CHUNK + 2 * STEP


@pytest.mark.parametrize("tokens", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 2])
def test_a_row_that_is_kept_goes_on_as_the_library_would(tokens: int) -> None:
    single = alone(0, tokens)
    again = KIND.restore(KIND.snapshot(single, tokens), ChunkedKVCache(CHUNK))
    for position in range(tokens, tokens + 2 * CHUNK):
        said = []
        for each in (single, again):
            each.maybe_trim_front()
            keys, _ = each.update_and_fetch(token(0, position), token(0, position))
            said.append(np.array(keys[0, 0, -CHUNK:, 0]).tolist())
            assert each.offset == position + 1
        assert said[0][-len(said[1]) :] == said[1]
    KIND.check(again, [tokens + 2 * CHUNK])
