"""Rows of Qwen 4 that share a batch: each attends to the blocks of tokens that it chose. B1."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.models.qwen4_exp.language import QSAKVCache

from bushel.cache.indexed_kv import IndexedKV
from bushel.core import ModelError
from bushel.engine.attention_route import choose_attention
from bushel.engine.batching_check import batching_fault
from bushel.models import Model, load
from bushel.models.load import open_host
from bushel.models.row_positions import qwen4_exp

from ..families import checkpoint_dir

# Its library runs a token of each row in two ways: with sums that do not depend on the company, or,
# where it cannot make the head's so, like a prompt.
WAYS = pytest.mark.parametrize("like_a_prompt", [False, True])


def loaded(like_a_prompt: bool, monkeypatch: pytest.MonkeyPatch) -> Model:
    model = load(str(checkpoint_dir("qwen4_exp")))
    if like_a_prompt:
        language = type(model.network.language_model)
        monkeypatch.setattr(language, "_supports_batch_invariant_decode", lambda _: False)
    return model


@WAYS
def test_rows_short_and_long_get_what_they_would_alone(
    like_a_prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 5, 24 and 75 tokens, where attention leaves some out from 20 on."""
    assert batching_fault(loaded(like_a_prompt, monkeypatch)) is None


@pytest.mark.long
@WAYS
def test_control_with_the_librarys_own_mask_rows_look_at_everything(
    like_a_prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qwen4_exp, "install", lambda network: None)
    fault = batching_fault(loaded(like_a_prompt, monkeypatch))
    assert fault is not None
    assert "away from the same rows alone" in fault


def random_index(indexer: Any, rng: np.random.Generator, tokens: int) -> QSAKVCache:
    """A row that has run so many tokens."""
    single = QSAKVCache()
    places = mx.broadcast_to(mx.arange(tokens), (3, 1, tokens))
    single.update_indexer(drawn(rng, 1, tokens, indexer.head_dim), places)
    single.update_and_fetch(*[drawn(rng, 1, 1, tokens, 4)] * 2)
    return single


def drawn(rng: np.random.Generator, *shape: int) -> mx.array:
    return mx.array(rng.standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("lengths", [(3, 18, 41), (19, 19), (64, 1, 2, 300)])
def test_rows_choose_the_blocks_that_the_library_would(lengths: tuple[int, ...]) -> None:
    """It looks at all tokens again at every step; here blocks are kept while rows stay."""
    network = load(str(checkpoint_dir("qwen4_exp"))).network
    indexer = network.language_model.model.layers[1].self_attn.indexer
    library, kind = type(indexer).__mro__[1], IndexedKV()
    caches = []
    for _ in range(2):
        rng = np.random.default_rng(0)
        caches.append(kind.merge([random_index(indexer, rng, length) for length in lengths]))
    positions = list(lengths)
    left_out = 0
    for step in range(30):
        rng = np.random.default_rng(step)
        qk = drawn(rng, len(positions), 1, (indexer.n_heads + 1) * indexer.head_dim)
        places = mx.broadcast_to(mx.array(positions)[None, :, None], (3, len(positions), 1))
        ours, theirs = (
            select(indexer, qk, cache, places)
            for select, cache in zip(
                (type(indexer).select_from_projected, library.select_from_projected),
                caches,
                strict=True,
            )
        )
        assert (ours is None) == (theirs is None)
        if ours is not None:
            masks = indexer.build_mask(ours), indexer.build_mask(theirs)
            assert mx.array_equal(*masks)
            left_out += sum(positions) + len(positions) - int(masks[0].sum())
        new = drawn(rng, len(positions), 1, 1, 4)
        for cache in caches:
            cache.update_and_fetch(new, new)
        positions = [position + 1 for position in positions]
        if step == 14 and len(positions) > 2:  # the rows that stay keep what is theirs
            positions = positions[:2]
            for cache in caches:
                kind.leave(cache, [0, 1], positions)
    assert left_out > 0


def test_its_status_says_why_rows_are_padded_and_its_keys_are_not_encoded() -> None:
    path = str(checkpoint_dir("qwen4_exp"))
    routes = choose_attention(load(path), "auto")
    assert routes == {"indexed": "padded rows (pages are read whole, and not by chosen blocks)"}
    with pytest.raises(ModelError, match="its sparse attention has no quantized form"):
        load(path, kv_bits=8)


def test_whoever_prepares_requests_computes_no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker opens the checkpoint for its shapes; its library would begin to run the layers."""
    started: list[object] = []
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: started.append(arrays))
    assert open_host(str(checkpoint_dir("qwen4_exp"))).sees
    assert not started


def test_hidden_states_of_one_token_can_be_had() -> None:
    """A text of one token has an embedding, and so has the last piece of a long one."""
    model = load(str(checkpoint_dir("qwen4_exp")))
    token = mx.array([[77]])
    logits, hidden = model.forward_with_hidden(token, [0], model.make_state())
    assert hidden.shape == (1, 1, model.network.config.text_config.hidden_size)
    assert mx.allclose(logits, model.forward(token, [0], model.make_state()), atol=1e-4)
