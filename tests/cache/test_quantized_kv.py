"""Quantized keys and values: what is stored depends on the token alone, and survives all moves."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx_lm.models.base as lm
import mlx_lm.models.cache as lm_cache
import mlx_vlm.models.base as vlm
import mlx_vlm.models.cache as vlm_cache
import numpy as np
import pytest

from bushel.cache import BatchState, kind_of, take_snapshot
from bushel.cache.quantized_kv import QuantizedBatch
from bushel.core import IntegrityError, Prepared
from bushel.models import Model, load

from ..families.variants import wide_dir

HEADS, WIDTH, GROUP = 2, 64, 32
# The last one outgrows its room of 256 while the others are padded.
LENGTHS = (5, 70, 254)
LIBRARIES = [(lm, lm_cache), (vlm, vlm_cache)]
BITS = (8, 4)


def numbers(*shape: int, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def tokens(length: int, seed: int) -> tuple[mx.array, mx.array]:
    """Keys and values of one row."""
    keys, values = (numbers(1, HEADS, length, WIDTH, seed=2 * seed + n) for n in (0, 1))
    return keys, values


def single(library: Any, bits: int, length: int, seed: int, chunk: int = 1000) -> Any:
    layer = library.QuantizedKVCache(group_size=GROUP, bits=bits)
    keys, values = tokens(length, seed)
    for start in range(0, length, chunk):
        piece = slice(start, start + chunk)
        layer.update_and_fetch(keys[:, :, piece], values[:, :, piece])
    return layer


def codes(layer: Any) -> list[np.ndarray]:
    """All that a single stores of its tokens."""
    return [np.array(array[:, :, : layer.offset]) for array in (*layer.keys, *layer.values)]


def same(one: Sequence[np.ndarray], two: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def fresh(library: Any, bits: int) -> list[Any]:
    return [library.QuantizedKVCache(group_size=GROUP, bits=bits)]


def joined(library: Any, bits: int) -> BatchState:
    rows = BatchState(lambda: fresh(library, bits))
    for seed, length in enumerate(LENGTHS):
        rows.join([single(library, bits, length, seed)], length)
    return rows


def step(rows: BatchState, seed: int, dtype: mx.Dtype = mx.float32) -> None:
    """One more token for every row; row i's is the same whoever else is there."""
    pairs = [tokens(1, 100 * seed + row) for row in range(len(rows))]
    keys, values = (mx.concatenate(list(parts)) for parts in zip(*pairs, strict=True))
    rows.layers[0].update_and_fetch(keys.astype(dtype), values.astype(dtype))
    rows.advance([1] * len(rows))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_chunks_store_the_same_bits(chunk: int, bits: int) -> None:
    """Each token is encoded by itself. B3."""
    for library in (lm_cache, vlm_cache):
        whole, cut = (single(library, bits, 300, 1, it) for it in (1000, chunk))
        assert same(codes(whole), codes(cut))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("library", [lm_cache, vlm_cache])
def test_a_row_is_stored_in_a_batch_as_alone(library: Any, bits: int) -> None:
    """Bit for bit, through merge, join, growth, leave and back to one row. B3."""
    for row in range(len(LENGTHS)):
        rows = joined(library, bits)
        for seed in range(1, 6):
            step(rows, seed)
        rows.check_integrity()
        keep = sorted({row, (row + 1) % 3})
        rows.leave(keep)
        rows.check_integrity()
        rows.leave([keep.index(row)])
        rows.check_integrity()
        alone = single(library, bits, LENGTHS[row], row)
        for seed in range(1, 6):
            alone.update_and_fetch(*tokens(1, 100 * seed + row))
        assert type(rows.layers[0]) is type(alone)
        assert same(codes(rows.layers[0]), codes(alone))
        other = single(library, bits, LENGTHS[row], row + 1)
        assert not same(codes(rows.layers[0])[:1], codes(other)[:1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("heads", [HEADS, 3 * HEADS])
@pytest.mark.parametrize(("base", "library"), LIBRARIES, ids=["mlx-lm", "mlx-vlm"])
def test_the_libraries_attend_to_a_padded_batch_as_to_a_row(
    base: Any, library: Any, heads: int, bits: int
) -> None:
    """With their own mask for one row, and with ours for several; with and without groups. B3."""
    new = [tokens(1, 50 + row) for row in range(len(LENGTHS))]
    asked = numbers(len(LENGTHS), heads, 1, WIDTH, seed=9)

    def attend(layer: Any, queries: mx.array, keys: mx.array, values: mx.array) -> np.ndarray:
        mask = layer.make_mask(1, return_array=False, window_size=None)
        found = layer.update_and_fetch(keys, values)
        # A copy: the libraries scale the queries in place.
        answer = base.scaled_dot_product_attention(
            queries + 0, *found, cache=layer, scale=WIDTH**-0.5, mask=mask
        )
        return np.array(answer)

    batch = joined(library, bits).layers[0]
    keys, values = (mx.concatenate(list(parts)) for parts in zip(*new, strict=True))
    together = attend(batch, asked, keys, values)
    for row, length in enumerate(LENGTHS):
        alone = attend(single(library, bits, length, row), asked[row : row + 1], *new[row])
        assert np.abs(together[row] - alone[0]).max() < 1e-5
    unmasked = joined(library, bits).layers[0]
    unmasked._first = mx.zeros_like(unmasked._first)
    assert np.abs(attend(unmasked, asked, keys, values) - together).max() > 1e-2


@pytest.mark.parametrize("new", [1, 4])
@pytest.mark.parametrize("window", [None, 16])
def test_the_mask_is_that_of_plain_batches(new: int, window: int | None) -> None:
    batch = joined(lm_cache, 8).layers[0]
    plain = lm_cache.BatchKVCache(list(batch.left_padding))
    plain._idx = batch._idx
    expected = plain.make_mask(new, window_size=window)
    assert np.array_equal(np.array(batch.make_mask(new, window_size=window)), np.array(expected))


# -- size -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("bits", BITS)
def test_size_is_bits_and_two_numbers_per_group(bits: int, dtype: mx.Dtype) -> None:
    """16 bits per number become 9 or 5 with groups of 32, 8.5 or 4.5 with 64. B3, B56."""
    for group in (32, 64):
        plain = lm_cache.KVCache()
        plain.update_and_fetch(*(token.astype(dtype) for token in tokens(256, 1)))
        layer = plain.to_quantized(group_size=group, bits=bits)
        per_number = bits + 2 * 8 * dtype.size / group
        found = take_snapshot([layer], 256).nbytes
        assert found == 2 * HEADS * 256 * WIDTH * per_number / 8
        assert found / plain.nbytes == per_number / (8 * dtype.size)


@pytest.mark.parametrize(("bits", "share"), [(8, 9 / 16), (4, 5 / 16)])
def test_a_batch_takes_the_share_of_its_bits(bits: int, share: float) -> None:
    """Half and a quarter of bfloat16, and one sixteenth of it for the scales of groups of 32."""

    def batch(layer: Callable[[], Any]) -> int:
        rows = BatchState(lambda: [layer()])
        for seed, length in enumerate((256, 100)):
            state = layer()
            state.update_and_fetch(*(token.astype(mx.bfloat16) for token in tokens(length, seed)))
            rows.join([state], length)
        step(rows, 1, mx.bfloat16)
        room = rows.layers[0].keys
        assert (room if isinstance(room, mx.array) else room[0]).shape[2] == 512
        return rows.nbytes

    quantized = batch(lambda: lm_cache.QuantizedKVCache(group_size=GROUP, bits=bits))
    assert quantized / batch(lm_cache.KVCache) == pytest.approx(share, rel=1e-3)


# -- in a model -------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["llama_wide", "qwen3_5_wide"])
def model(request: pytest.FixtureRequest) -> Model:
    return load(str(wide_dir(request.param)), kv_bits=4)


def prefilled(model: Model, length: int) -> list[Any]:
    state = model.make_state()
    model.prefill(model.embed(Prepared(tuple(range(40, 40 + length)))), 0, length, state)
    return state


def test_only_plain_layers_are_quantized(model: Model) -> None:
    names = [type(layer).__name__ for layer in model.make_state()]
    linear = "ArraysCache" if "qwen3_5" in model.name else "QuantizedKVCache"
    assert names == [linear, "QuantizedKVCache"] * 2
    assert {kind_of(layer).name for layer in model.make_state()} <= {"quantized", "recurrent"}


@pytest.mark.parametrize("length", [0, 9, 70])
def test_restored_state_goes_on_where_it_was_copied(model: Model, length: int) -> None:
    """Original and copy say the same, and the snapshot is left as it was. B3, B56."""
    state = prefilled(model, length) if length else model.make_state()
    snapshot = take_snapshot(state, length)
    before = [
        np.array(array, copy=True)
        for layer in snapshot.layers
        for array in layer.arrays
        if array is not None
    ]
    copy = snapshot.restore(model.make_state())
    for at in range(length, length + 4):
        one, two = (np.array(model.forward(mx.array([[at]]), [at], it)) for it in (state, copy))
        assert np.array_equal(one, two)
    for layer in copy:
        kind_of(layer).check(layer, [length + 4])
    after = [
        np.array(array) for layer in snapshot.layers for array in layer.arrays if array is not None
    ]
    assert same(before, after)


def shifted(batch: QuantizedBatch) -> None:
    batch.offset = batch.offset + 1


def padded(batch: QuantizedBatch) -> None:
    batch.left_padding = tuple(pad + 1 for pad in batch.left_padding)


def row_lost(batch: QuantizedBatch) -> None:
    batch.values = (*batch.values[:2], batch.values[2][:-1])


def cut_short(batch: QuantizedBatch) -> None:
    batch.keys = (batch.keys[0][:, :, :100], *batch.keys[1:])


@pytest.mark.parametrize("damage", [shifted, padded, row_lost, cut_short])
def test_damaged_state_is_noticed(damage: Callable[[QuantizedBatch], None]) -> None:
    rows = joined(lm_cache, 8)
    rows.check_integrity()
    damage(rows.layers[0])
    with pytest.raises(IntegrityError):
        rows.check_integrity()
