"""Which states take drafts, and what a batch of such rows refuses and hands out."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.cache import kind_of
from bushel.cache.drafts import no_drafts, sizes, widest
from bushel.core import IntegrityError
from bushel.models import load, recurrent_rollback
from tests.depth import often, one_in
from tests.families import checkpoint_dir
from tests.families.text import WINDOW

from .scripts import BOUND, Rows

NOT_ROLLED_BACK = "rejected tokens cannot be rolled back in "
UNVERIFIED = "speculative decoding is not verified for this model family"
REASONS = {
    "llama": None,
    "gemma3_text": None,
    "qwen3_5": None,
    "qwen3_5_vl": None,
    "falcon_h1": None,
    "rwkv7": NOT_ROLLED_BACK + "its recurrent layers",
    "llama4": NOT_ROLLED_BACK + "ChunkedKVCache",
    "deepseek_v41": NOT_ROLLED_BACK + "LayerCache",
    "mllama": NOT_ROLLED_BACK + "CrossMemory",
    "limite": UNVERIFIED,
    "phi3_v": None,
    "phi3_v_long": UNVERIFIED,
}


def rows(name: str, *lengths: int) -> Rows:
    rows = Rows(load(str(checkpoint_dir(name))))
    rows.join(lengths)
    return rows


@pytest.mark.parametrize("name", REASONS)
def test_a_model_that_cannot_go_back_says_from_what(name: str) -> None:
    model = load(str(checkpoint_dir(name)))
    assert no_drafts(model.make_state(), model.network) == REASONS[name]


def test_quantized_keys_take_no_drafts() -> None:
    from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache

    assert no_drafts([QuantizedKVCache()], None) == NOT_ROLLED_BACK + "QuantizedKVCache"
    pinned = RotatingKVCache(max_size=8, keep=4)
    assert no_drafts([pinned], None) == NOT_ROLLED_BACK + "RotatingKVCache"


@pytest.mark.parametrize("kept", [[0, 1], [1, 3]], ids=str)
def test_no_more_is_kept_of_a_draft_than_there_is_and_not_nothing(kept: list[int]) -> None:
    batch = rows("llama", 5, 9).batch
    batch.begin_draft([3, 2])
    with pytest.raises(IntegrityError, match=r"kept of drafts of \[3, 2\]"):
        batch.end_draft(kept)


def test_a_draft_that_is_too_wide_is_refused() -> None:
    batch = rows("llama", 5, 9).batch
    with pytest.raises(IntegrityError, match="a draft of 99 columns, and not 33"):
        batch.begin_draft([99, 2])


def test_a_draft_ends_once() -> None:
    some = rows("llama", 5, 9)
    some.draft([3, 2], [1, 2])
    with pytest.raises(IntegrityError, match="no draft has begun"):
        some.batch.end_draft([1, 1])


def test_a_row_that_has_run_no_token_takes_no_draft() -> None:
    model = load(str(checkpoint_dir("qwen3_5")))
    batch = Rows(model).batch
    batch.join(model.make_state(), 0)
    with pytest.raises(IntegrityError, match="has run no token"):
        batch.begin_draft([2])


LEFT = ("llama", "llama_sliding", "gemma3_text", "gpt_oss", "qwen3_5", "lfm2")
WIDEST = ("llama", "llama_sliding", "gpt_oss", "qwen3_5_vl", "mamba2")


@pytest.mark.parametrize("name", often(WIDEST, "qwen3_5_vl"))
def test_the_widest_draft_there_is_leaves_no_trace(name: str) -> None:
    """Far past the end of a window's ring, and at it."""
    some = rows(name, 3 * WINDOW, 5)
    most = widest(some.batch.layers)
    for _ in range(3):
        some.draft([most, 2], [most, 1])
        some.draft([2, most], [1, 1])
        some.draft([most, most], [1, most])
        some.step()
    assert some.worst < 1e-4


@pytest.mark.parametrize(
    "name", one_in(2, ["llama", "gemma3_text", "qwen3_5", "qwen3_5_vl", "falcon_h1"])
)
def test_a_row_leaves_as_its_librarys_own_single(name: str) -> None:
    """So that it can go anywhere: into a snapshot, a file, another batch."""
    some = rows(name, 2 * WINDOW, 5)
    some.draft([4, 2], [2, 1])
    for row, alone in enumerate(some.alone):
        single = some.batch.single(row)
        assert [type(layer) for layer in single] == [type(layer) for layer in alone.state]
        token = mx.array([[70]])
        said = some.model.forward(token, [alone.position], single)
        expected = some.model.forward(token, [alone.position], alone.state)
        np.testing.assert_allclose(np.array(said), np.array(expected), atol=1e-4)


def test_what_is_cut_out_of_a_row_is_what_it_was_given() -> None:
    some = rows("llama", 20, 5)
    some.draft([4, 2], [2, 1])
    (layer, *_), position = some.batch.layers, some.batch.positions[1]
    keys, values = kind_of(layer).cut(layer, 1, position, 2, position)
    alone = some.alone[1].state[0]
    np.testing.assert_allclose(np.array(keys), np.array(alone.keys[:, :, 2:position]), atol=1e-5)
    np.testing.assert_allclose(
        np.array(values), np.array(alone.values[:, :, 2:position]), atol=1e-5
    )


@pytest.mark.parametrize("kept", [0, 1 << 30], ids=["again", "chosen"])
@pytest.mark.parametrize(
    "name", one_in(2, ["qwen3_5", "qwen3_5_vl", "mamba2", "falcon_h1", "lfm2"])
)
def test_a_draft_holds_no_more_memory_than_is_planned_for_it(
    name: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of states before it and what it notes, beside the states themselves."""
    monkeypatch.setattr(recurrent_rollback, "KEPT_STATES", kept)
    columns = 6
    some = rows(name, 2 * WINDOW, 2 * WINDOW)
    batch, state = some.batch, some.alone[0].state
    plain = [size for layer in state for size in kind_of(layer).size(layer, 2 * WINDOW)]
    drafting = sizes(state, 2 * WINDOW, columns)
    pairs = zip(drafting, plain, strict=True)
    planned = 2 * sum(size.fixed - other.fixed for size, other in pairs)
    tokens = mx.array([[70] * columns] * 2)
    batch.begin_draft([columns] * 2)
    mx.eval(some.model.forward(tokens, batch.positions, batch.layers))
    mx.synchronize()
    while_open = mx.get_active_memory()
    batch.end_draft([columns] * 2)
    held = while_open - mx.get_active_memory()
    assert planned / 8 < held <= planned


def test_a_ring_is_planned_with_its_spare_slots() -> None:
    some = rows("llama_sliding", 3 * WINDOW + 8)
    (window, *_) = {size.window for size in sizes(some.alone[0].state, 3 * WINDOW + 8, 4)}
    assert window == some.batch.layers[0].keys.shape[2]


@pytest.mark.parametrize("name", often(LEFT, "llama_sliding", "qwen3_5"))
def test_a_long_row_takes_its_room_along(name: str) -> None:
    """Those that stay, and those that join them, hold what they need. B55."""
    some = rows(name, 900, 10)
    some.draft([4, 2], [4, 1])
    some.leave(0, back=False)
    some.batch.check_integrity()
    (position,) = some.batch.positions
    footprints = sizes(some.alone[0].state, position, 4)
    assert some.batch.nbytes <= sum(size.row(position) for size in footprints)
    some.join([20, 5])
    (*_, longest) = sorted(some.batch.positions)
    assert some.batch.nbytes <= 3 * sum(size.row(longest) for size in footprints)
    some.draft([4, 2, 3], [1, 2, 3])
    some.step()
    assert some.worst < BOUND


@pytest.mark.parametrize("name", often(LEFT, "llama_sliding", "llama"))
def test_what_a_long_row_has_held_is_free_when_it_has_left(name: str) -> None:
    """No row that stays is a view of it."""
    batch = rows(name, 900, 10).batch
    both = batch.nbytes
    mx.eval([layer.state for layer in batch.layers])
    mx.synchronize()
    before = mx.get_active_memory()
    batch.leave([1])
    mx.eval([layer.state for layer in batch.layers])
    mx.synchronize()
    freed = before - mx.get_active_memory()
    assert freed >= 0.9 * (both - batch.nbytes) > 0


def drop_row(layer: Any) -> None:
    layer.keys = layer.keys[:-1]


def shorten(layer: Any) -> None:
    layer.keys = layer.keys[:, :, :10]


def forget(layer: Any) -> None:
    layer.lengths.set([3, 4])


@pytest.mark.parametrize("name", one_in(3, ["llama", "llama_sliding"]))
@pytest.mark.parametrize("damage", [drop_row, shorten, forget])
def test_layers_that_contradict_their_rows_are_noticed(
    name: str, damage: Callable[[Any], None]
) -> None:
    batch = rows(name, 20, 5).batch
    batch.check_integrity()
    damage(batch.layers[0])
    with pytest.raises(IntegrityError):
        batch.check_integrity()
