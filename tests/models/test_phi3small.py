"""phi3small, whose sparse layers see near blocks, and of the others some by head.

Its head writes to token ids beyond any small vocabulary, so there is no checkpoint of it here.
"""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import phi3small

from bushel.core import Prepared
from bushel.models.text_model import TextModel
from tests.families.checkpoint import VOCAB
from tests.families.text import BASE

from .batched_rows import BOUND, text_model_of, words, worst

BLOCK, WHOLE, TOKENS = 32, 2048, 12


def made() -> TextModel:
    config = {
        **BASE,
        "model_type": "phi3small",
        "num_hidden_layers": 4,
        "ff_intermediate_size": 64,
        "gegelu_limit": 20.0,
        "layer_norm_epsilon": 1e-5,
        "dense_attention_every_n_layers": 2,
        "blocksparse_block_size": BLOCK,
        "blocksparse_num_local_blocks": 1,
        "blocksparse_vert_stride": 3,
    }

    def few_ids(network: Any) -> None:
        network._dummy_tokenizer_ids = mx.array([VOCAB - 1])

    return text_model_of(phi3small, config, few_ids)


def difference(model: TextModel) -> float:
    """Some rows come to their next block on the way, and some have blocks that are not seen."""
    prompts = [Prepared(words(length, length)) for length in (4 * BLOCK - 3, 20, 90, BLOCK)]
    return worst(model, prompts, WHOLE, TOKENS)


def test_rows_that_share_a_batch_are_as_they_are_alone() -> None:
    """Each sees the blocks that its own length gives it. B1."""
    model = made()
    assert model.single is None
    assert difference(model) < BOUND


def test_blocks_of_padded_rows_would_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the library counts them from the longest row's beginning."""
    model = made()
    sparse = type(model.network.layers[0].self_attn)
    own = sparse._in_blocks

    def padded(self: object, offset: object, tokens: int, columns: int) -> object:
        return own(self, 0 * offset + columns - tokens, tokens, columns)  # type: ignore[operator]

    monkeypatch.setattr(sparse, "_in_blocks", padded)
    assert difference(model) > 100 * BOUND
