"""What Bushel takes for granted in the cache classes of mlx-lm and mlx-vlm.

One named test for each thing: a release that changes it fails here before it gives a wrong token.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx_lm.models.cache as lm_cache
import mlx_vlm.models.cache as vlm_cache
import numpy as np
import pytest
from mlx.utils import tree_flatten

from bushel.cache.kv_cache import KV

pytestmark = pytest.mark.conformance
BOTH = pytest.mark.parametrize("library", [lm_cache, vlm_cache], ids=["mlx_lm", "mlx_vlm"])
HEADS, WIDTH = 2, 4


def entries(length: int, seed: int) -> mx.array:
    rng = np.random.default_rng(seed)
    return mx.array(rng.standard_normal((1, HEADS, length, WIDTH)).astype(np.float32))


def kv(library: ModuleType, length: int, seed: int) -> Any:
    cache = library.KVCache()
    if length:
        cache.update_and_fetch(entries(length, seed), entries(length, seed) + 1)
    return cache


def ring(library: ModuleType, length: int, seed: int, window: int = 8) -> Any:
    """A window that was filled one token at a time, as decoding does."""
    cache = library.RotatingKVCache(max_size=window)
    for at in range(length):
        token = entries(length, seed)[..., at : at + 1, :]
        cache.update_and_fetch(token, token + 1)
    return cache


def arrays(library: ModuleType, seed: int) -> Any:
    cache = library.ArraysCache(2)
    cache[0], cache[1] = entries(3, seed), entries(5, seed)
    return cache


def equal(one: mx.array, two: mx.array) -> bool:
    return one.shape == two.shape and bool(mx.array_equal(one, two))


# -- keys and values --------------------------------------------------------------------------


@BOTH
def test_a_kv_cache_starts_empty_and_counts_its_tokens(library: ModuleType) -> None:
    cache = kv(library, 0, 0)
    assert (cache.keys, cache.values, cache.offset) == (None, None, 0)
    cache = kv(library, 5, 1)
    assert cache.offset == 5
    assert cache.keys.shape[2] >= 5
    assert equal(cache.keys[..., :5, :], entries(5, 1))
    assert equal(cache.values[..., :5, :], entries(5, 1) + 1)


@BOTH
def test_a_kv_cache_goes_on_from_assigned_keys_and_offset(library: ModuleType) -> None:
    """Restoring a snapshot sets these three, on arrays without room to spare."""
    whole, restored = kv(library, 6, 1), library.KVCache()
    restored.keys, restored.values = entries(6, 1)[..., :4, :], entries(6, 1)[..., :4, :] + 1
    restored.offset = 4
    rest = entries(6, 1)[..., 4:, :]
    keys, values = restored.update_and_fetch(rest, rest + 1)
    assert equal(keys, whole.keys[..., :6, :])
    assert equal(values, whole.values[..., :6, :])


@BOTH
def test_merged_kv_rows_are_left_padded(library: ModuleType) -> None:
    batch = library.KVCache.merge([kv(library, 3, 1), kv(library, 7, 2), kv(library, 5, 3)])
    assert type(batch).__name__ == "BatchKVCache"
    assert batch.left_padding.tolist() == [4, 0, 2]
    assert batch.offset.tolist() == [3, 7, 5]
    assert batch._idx == 7
    assert equal(batch.keys[0:1, :, 4:7], entries(3, 1))
    assert equal(batch.values[2:3, :, 2:7], entries(5, 3) + 1)


@BOTH
def test_a_kv_batch_takes_rows_lets_them_go_and_gives_them_back(library: ModuleType) -> None:
    batch = library.KVCache.merge([kv(library, 3, 1), kv(library, 7, 2)])
    batch.extend(library.KVCache.merge([kv(library, 9, 3)]))
    assert batch.offset.tolist() == [3, 7, 9]
    assert (batch.left_padding + batch.offset).tolist() == [batch._idx] * 3
    batch.filter(mx.array([0, 1]))
    assert batch.offset.tolist() == [3, 7]
    assert (batch.left_padding + batch.offset).tolist() == [batch._idx] * 2
    for row, (length, seed) in enumerate([(3, 1), (7, 2)]):
        single = batch.extract(row)
        assert type(single) is library.KVCache
        assert single.offset == length
        assert equal(single.keys[..., :length, :], entries(length, seed))
        assert equal(single.values[..., :length, :], entries(length, seed) + 1)


def grown(library: ModuleType, lengths: Sequence[int], decoded: int) -> Any:
    """A batch that rows have joined one after the other, and that has decoded some tokens."""
    singles = [kv(library, length, seed) for seed, length in enumerate(lengths)]
    batch = library.KVCache.merge(singles[:2])
    for single in singles[2:]:
        batch.extend(library.KVCache.merge([single]))
    for step in range(decoded):
        token = mx.concatenate([entries(1, 1000 + step)] * len(lengths))
        batch.update_and_fetch(token, token + 1)
    return batch


def fields(batch: Any) -> dict[str, Any]:
    """All that a cache of keys and values consists of."""
    found = {name: getattr(batch, name, None) for name in ("offset", "left_padding", "_idx")}
    return {
        "keys": np.array(batch.keys),
        "values": np.array(batch.values),
        **{at: np.array(it) if isinstance(it, mx.array) else it for at, it in found.items()},
    }


def unlike(mine: Any, theirs: Any) -> list[str]:
    """Names of the fields that are not exactly the same."""
    one, two = fields(mine), fields(theirs)
    return [
        name
        for name in one
        if type(one[name]) is not type(two[name])
        or getattr(one[name], "dtype", None) != getattr(two[name], "dtype", None)
        or not np.array_equal(one[name], two[name])
    ]


def some_kv_rows(seed: int) -> tuple[list[int], int, list[int]]:
    """Lengths, how many tokens are decoded after them, and the rows that stay; often beyond
    the 256 tokens that the libraries make room for at once."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rng.choice([4, 20, 300]), rng.integers(3, 8), endpoint=True).tolist()
    keep = rng.choice(len(lengths), rng.integers(2, len(lengths)), replace=False)
    return lengths, int(rng.choice([0, 1, 9])), sorted(keep.tolist())


@BOTH
def test_rows_leave_a_kv_batch_as_by_the_librarys_own_filter(library: ModuleType) -> None:
    """`KV.leave` does without it, because it waits for the device in every layer."""
    for seed in range(40):
        lengths, decoded, keep = some_kv_rows(seed)
        mine, theirs = (grown(library, lengths, decoded) for _ in range(2))
        KV().leave(mine, keep, [lengths[row] + decoded for row in keep])
        theirs.filter(mx.array(keep))
        assert unlike(mine, theirs) == [], (lengths, decoded, keep)
        # What was left goes on, and can be left again.
        token = mx.concatenate([entries(1, 9)] * len(keep))
        for batch in (mine, theirs):
            batch.update_and_fetch(token, token + 1)
        KV().leave(mine, [1, 0], [lengths[row] + decoded + 1 for row in (keep[1], keep[0])])
        theirs.filter(mx.array([1, 0]))
        assert unlike(mine, theirs) == [], (lengths, decoded, keep)


@BOTH
def test_a_row_is_taken_from_a_kv_batch_as_by_the_librarys_own_extract(library: ModuleType) -> None:
    """`KV.single` does without it, for the same reason."""
    for seed in range(20):
        lengths, decoded, _ = some_kv_rows(seed)
        batch = grown(library, lengths, decoded)
        for row, length in enumerate(lengths):
            mine = KV().single(batch, row, length + decoded, library.KVCache())
            theirs = batch.extract(row)
            assert type(mine) is type(theirs)
            assert unlike(mine, theirs) == [], (lengths, decoded, row)


@BOTH
def test_control_a_row_of_another_length_is_unlike(library: ModuleType) -> None:
    batch, theirs = (grown(library, [3, 9, 5], 1) for _ in range(2))
    single = KV().single(batch, 0, 5, library.KVCache())
    assert unlike(single, theirs.extract(0)) == ["keys", "values", "offset"]
    KV().leave(batch, [0, 2], [4, 5])
    theirs.filter(mx.array([0, 2]))
    assert unlike(batch, theirs) == ["keys", "values", "left_padding", "_idx"]


def test_lm_kv_batches_do_not_change_offsets_in_place() -> None:
    """Models read the offset before the update and use it after."""
    batch = lm_cache.KVCache.merge([kv(lm_cache, 3, 1), kv(lm_cache, 7, 2)])
    before = batch.offset
    token = mx.concatenate([entries(1, 4), entries(1, 5)])
    batch.update_and_fetch(token, token)
    assert (before.tolist(), batch.offset.tolist()) == ([3, 7], [4, 8])


@BOTH
def test_a_merged_row_is_a_copy(library: ModuleType) -> None:
    single = kv(library, 3, 1)
    batch = library.KVCache.merge([single, kv(library, 7, 2)])
    token = mx.concatenate([entries(1, 4), entries(1, 5)])
    batch.update_and_fetch(token, token)
    assert single.offset == 3
    assert equal(single.keys[..., :3, :], entries(3, 1))


# -- windows ----------------------------------------------------------------------------------


@BOTH
def test_a_window_without_pinned_tokens_keeps_the_last_ones(library: ModuleType) -> None:
    cache = ring(library, 11, 1)
    assert (cache.keep, cache.max_size, cache.offset) == (0, 8, 11)
    order = mx.argsort(mx.array([(at - cache._idx) % 8 for at in range(8)]))
    assert equal(cache.keys[..., order, :], entries(11, 1)[..., 3:, :])


@BOTH
@pytest.mark.parametrize("lengths", [(3, 6), (11, 5), (20, 9)])
def test_merged_windows_are_in_temporal_order(library: ModuleType, lengths: Sequence[int]) -> None:
    """Snapshots rely on it: a batch of one holds the window alone, oldest first."""
    batch = library.RotatingKVCache.merge([ring(library, n, n) for n in lengths])
    assert type(batch).__name__ == "BatchRotatingKVCache"
    assert batch.max_size == 8
    assert batch.offset.tolist() == list(lengths)
    width = min(8, max(lengths))
    assert batch.keys.shape[2] == width
    for row, length in enumerate(lengths):
        seen = min(length, 8)
        assert equal(batch.keys[row : row + 1, :, -seen:], entries(length, length)[..., -seen:, :])


@BOTH
def test_a_window_batch_takes_rows_lets_them_go_and_gives_them_back(library: ModuleType) -> None:
    lengths = (11, 5, 20)
    singles = [ring(library, n, n) for n in lengths]
    batch = library.RotatingKVCache.merge(singles[:2])
    batch.extend(library.RotatingKVCache.merge(singles[2:]))
    batch.filter(mx.array([1, 2]))
    assert batch.offset.tolist() == [5, 20]
    for row, length in enumerate((5, 20)):
        single = batch.extract(row)
        assert type(single) is library.RotatingKVCache
        assert (single.offset, single.max_size, single.keep) == (length, 8, 0)
        token = entries(1, 99)
        mine, _ = single.update_and_fetch(token, token)
        other, _ = ring(library, length, length).update_and_fetch(token, token)
        assert sorted(np.array(mine)[0, 0, :, 0]) == sorted(np.array(other)[0, 0, :, 0])


@BOTH
@pytest.mark.parametrize("length", [3, 8, 20])
def test_a_window_goes_on_from_assigned_fields(library: ModuleType, length: int) -> None:
    """Restoring a snapshot sets keys, values, offset and _idx."""
    row = library.RotatingKVCache.merge([ring(library, length, 1)])
    restored = library.RotatingKVCache(max_size=8)
    restored.keys, restored.values = row.keys, row.values
    restored.offset, restored._idx = length, row.keys.shape[2]
    for seed in range(3):
        token = entries(1, seed + 50)
        mine, _ = restored.update_and_fetch(token, token)
    other = ring(library, length, 1)
    for seed in range(3):
        token = entries(1, seed + 50)
        expected, _ = other.update_and_fetch(token, token)
    assert restored.offset == other.offset
    assert sorted(np.array(mine)[0, 0, :, 0]) == sorted(np.array(expected)[0, 0, :, 0])


# -- recurrent and composite state ------------------------------------------------------------


@BOTH
def test_recurrent_rows_are_stacked_sliced_and_appended(library: ModuleType) -> None:
    batch = library.ArraysCache.merge([arrays(library, 1), arrays(library, 2)])
    assert type(batch) is library.ArraysCache
    batch.extend(arrays(library, 3))
    batch.filter(mx.array([0, 2]))
    assert len(batch.cache) == 2
    assert equal(batch.cache[0], mx.concatenate([entries(3, 1), entries(3, 3)]))
    assert equal(batch.cache[1], mx.concatenate([entries(5, 1), entries(5, 3)]))
    assert equal(batch[1], batch.cache[1])


@BOTH
def test_recurrent_finalize_clears_padding_and_lengths(library: ModuleType) -> None:
    """Left behind, the padding grows by one unevaluated node per step and layer."""
    batch = library.ArraysCache.merge([library.ArraysCache(2), library.ArraysCache(2)])
    batch.left_padding, batch.lengths = mx.array([0, 0]), mx.array([3, 4])
    batch.finalize()
    assert batch.left_padding is None
    assert batch.lengths is None
    assert batch.make_mask(1) is None


@BOTH
def test_a_fresh_recurrent_cache_has_empty_slots(library: ModuleType) -> None:
    cache = library.ArraysCache(3)
    assert cache.cache == [None] * 3
    assert (cache.left_padding, cache.lengths) == (None, None)


@BOTH
def test_a_composite_is_a_tuple_of_caches(library: ModuleType) -> None:
    parts = (arrays(library, 1), kv(library, 3, 1))
    cache = library.CacheList(*parts)
    assert tuple(cache.caches) == parts
    assert cache[1] is parts[1]


@BOTH
def test_every_cache_tells_its_state(library: ModuleType) -> None:
    """What has to be evaluated after a chunk is read from it."""
    caches = [kv(library, 3, 1), ring(library, 3, 1), arrays(library, 1)]
    caches.append(library.CacheList(*caches))
    for cache in caches:
        leaves: Any = tree_flatten(cache.state)
        assert any(isinstance(leaf, mx.array) and leaf.size for _, leaf in leaves)


# -- pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [3, 8, 13])
def test_a_pooling_cache_tells_its_entries_from_what_waits(length: int) -> None:
    """`remainder` tokens wait at the beginning of buffers of a whole pool; entries are counted."""
    cache = vlm_cache.PoolingCache(4)
    tokens = entries(length, 1)[:, 0]
    ready, gates, start = cache.accumulate_windows(tokens, 2 * tokens, 0)
    pooled = cache.update_and_fetch(mx.unflatten(ready, 1, (-1, 4)).sum(2) if ready.size else ready)
    whole = length // 4
    assert (pooled.shape[1], cache.size(), cache.remainder, start) == (whole, whole, length % 4, 0)
    assert equal(gates, 2 * ready)
    if waiting := length % 4:
        assert cache.buf_kv.shape == cache.buf_gate.shape == (1, 4, WIDTH)
        assert equal(cache.buf_kv[:, :waiting], tokens[:, -waiting:])
    assert (cache.pooled is None) == (whole == 0)
