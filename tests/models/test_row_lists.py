"""Families of mlx-vlm whose batches are lists of rows: Unlimited-OCR, and DeepSeek V4.1.

What reads their pictures is too large for a checkpoint here, so the networks are made from their
configs, and shown text.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx_vlm.models import deepseek_v41, unlimited_ocr
from mlx_vlm.models.deepseek_v41.engram import NgramHashState

from bushel.cache.compressed import Compressed
from bushel.cache.prefix import cannot_restore
from bushel.cache.row_list import ByRow
from bushel.core import Prepared
from bushel.models.known_families import cuts_matter
from bushel.models.vision.vision_model import VisionModel
from tests.depth import one_in
from tests.families.checkpoint import VOCAB
from tests.families.text import BASE
from tests.parity.mutations import rows_swapped, wrong_rows_kept

from .batched_rows import BOUND, model_of, steady, words, worst

RING, WINDOW, WHOLE = 4, 8, 2048
TOKENS = 12  # more than a ring holds, and than a window or two groups do


def ring() -> VisionModel:
    def without_eyes(network: Any) -> None:
        network.sam_model = network.vision_model = None

    config = {
        "model_type": "unlimited_ocr",
        "vocab_size": VOCAB,
        "text_config": {
            **BASE,
            "model_type": "deepseek_v2",
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "v_head_dim": 16,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "sliding_window_size": RING,
        },
        "vision_config": {"model_type": "vision"},
        "projector_config": {"input_dim": 64, "n_embed": 64},
    }
    return model_of(unlimited_ocr, config, change=without_eyes)


def compressed() -> VisionModel:
    """With n-grams of its last tokens beside, and candidates that one layer chooses for another."""
    grams = list(range(VOCAB // 2)) * 2

    def with_grams(network: Any) -> None:
        language = network.language_model
        language.engram_hash = NgramHashState(language.config, language.layout, token_map=grams)

    heads, size = 2, 97
    config = {
        **BASE,
        "model_type": "deepseek_v41",
        "head_dim": 32,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "o_groups": 2,
        "o_lora_rank": 32,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": WINDOW,
        "compress_ratios": [0, 4, 1, 1],
        "kv_source_layer_ids": [1, 2],
        "index_source_layer_ids": [1, 2, 3],
        "index_n_heads": 2,
        "index_head_dim": 32,
        "index_topk": 4,
        "candidate_source_layer_id": 2,
        "candidate_topk_blocks": 2,
        "candidate_block_size": 2,
        "hc_mult": 2,
        "hc_sinkhorn_iters": 2,
        "engram_layer_ids": [1],
        "engram_num_embeddings": [4096],
        "engram_max_ngram_size": 3,
        "engram_vocab_size": size,
        "engram_n_heads": heads,
        "engram_head_dim": 16,
        "engram_compressed_vocab_size": VOCAB // 2,
        "vision_num_layers": 1,
        "vision_hidden_size": 32,
        "vision_num_heads": 2,
        "vision_intermediate_size": 32,
    }
    return model_of(deepseek_v41, config, change=with_grams)


MADE: dict[str, Callable[[], VisionModel]] = {"ring": ring, "compressed": compressed}


@pytest.fixture(scope="module", params=one_in(2, MADE))
def model(request: pytest.FixtureRequest) -> VisionModel:
    return MADE[request.param]()


LENGTHS = (21, 3, 40, 8)  # on both sides of a window and of a group's end


def difference(model: VisionModel) -> float:
    prompts = [Prepared(words(length, length)) for length in LENGTHS]
    return worst(model, prompts, WHOLE, TOKENS)


def test_rows_that_share_a_batch_are_as_they_are_alone(model: VisionModel) -> None:
    """Rows come, leave, are kept and come back. B1, B2."""
    assert model.single is None
    assert difference(model) < BOUND


@pytest.mark.long
@pytest.mark.parametrize("mistake", [rows_swapped, wrong_rows_kept])
def test_rows_that_are_taken_for_each_other_are_noticed(
    model: VisionModel, mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    mistake(_kind(model))(monkeypatch)
    monkeypatch.setattr(ByRow, "check", lambda *_: None)
    monkeypatch.setattr(Compressed, "check", lambda *_: None)
    assert difference(model) > 100 * BOUND


def _kind(model: VisionModel) -> Any:
    from bushel.cache.kinds import kind_of

    return type(kind_of(model.make_state()[0]))


def test_compressed_rows_are_kept_and_a_rings_reply_is_not() -> None:
    """What a ring's reply wrote has seen less than a prompt would: no prompt goes on from it."""
    for make, kept in ((ring, False), (compressed, True)):
        model = make()
        state = model.make_state()
        mx.eval(model.forward(mx.array([[7]]), [0], state))
        assert (cannot_restore(state) is None and cuts_matter(model.network) is None) == kept


@pytest.mark.long
def test_a_prompt_of_compressed_attention_may_be_cut_anywhere() -> None:
    model = compressed()
    prompts = [steady(model, length, TOKENS) for length in LENGTHS]
    assert worst(model, prompts, 5, TOKENS) < BOUND
