"""DeepSeek V4 says the same however its prompt is cut, alone and in company."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_vlm
import numpy as np
import pytest
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.models.deepseek_v4.language import Indexer
from PIL import Image

from bushel import LLM, SamplingParams
from bushel.core import RequestError
from bushel.engine.batching_check import batching_fault
from bushel.models import Model, load
from bushel.models.overlapping_pools import WholeIndexer
from tests.families import checkpoint_dir
from tests.families.checkpoint import FIRST_SPECIAL, VOCAB
from tests.families.vision_pools import DEEPSEEK_IMAGE
from tests.parity.run import BOUND

from .altered_checkpoints import change_weights, copied, set_json

# In the fixture: pools of 4 and 128, a window of 16, and an index from seven pools on.
TEXT = np.random.default_rng(5).integers(FIRST_SPECIAL, VOCAB, 150).tolist()
CUTS = {
    "odd": (3, 4, 31),
    "where pools begin": (64, 128),
    "after every token": (*range(26, 34), *range(124, 132)),
}


@cache
def path() -> str:
    return str(checkpoint_dir("deepseek_v4"))


@pytest.fixture(scope="module")
def model() -> Model:
    return load(path())


@pytest.fixture(scope="module")
def library() -> nn.Module:
    """As mlx-vlm loads it, which Bushel has no part in; it runs any number of tokens in one go."""
    network = mlx_vlm.load(path())[0].language_model
    network.train()
    return network


def logprobs(network: nn.Module, ids: Sequence[int], state: list[Any], cuts: Sequence[int]) -> Any:
    """After every token [n, VOCAB]."""
    pieces = [
        network(mx.array([ids[start:end]]), cache=state).logits[0]
        for start, end in pairwise([0, *cuts, len(ids)])
    ]
    logits = mx.concatenate(pieces)
    return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_a_cut_changes_nothing(model: Model, library: nn.Module, cuts: tuple[int, ...]) -> None:
    """Held to one pass of the library over the whole text; the library's own pieces are not
    equal to it, which is why it is mended.
    """
    whole = logprobs(library, TEXT, make_prompt_cache(library), ())
    language = model.network.language_model
    assert np.abs(logprobs(language, TEXT, model.make_state(), cuts) - whole).max() < BOUND
    assert np.abs(logprobs(library, TEXT, make_prompt_cache(library), cuts) - whole).max() > 1e-2


@pytest.fixture
def small_blocks(model: Model) -> Iterator[Model]:
    """An index of so few entries a block that mlx-vlm would look at blocks first."""
    indexers = [part for part in model.network.modules() if hasattr(part, "index_block")]
    before = [(part.index_block, part.index_keep) for part in indexers]
    for part in indexers:
        part.index_block, part.index_keep = 2, 4
    yield model
    for part, (block, keep) in zip(indexers, before, strict=True):
        part.index_block, part.index_keep = block, keep


def test_long_texts_have_no_blocks_that_a_cut_would_move(small_blocks: Model) -> None:
    language = small_blocks.network.language_model
    whole = logprobs(language, TEXT, small_blocks.make_state(), ())
    for cuts in CUTS.values():
        cut = logprobs(language, TEXT, small_blocks.make_state(), cuts)
        assert np.abs(cut - whole).max() < BOUND
    assert batching_fault(small_blocks) is None


def test_blocks_would_change_what_rows_say_in_company(small_blocks: Model) -> None:
    """The control: with mlx-vlm's own index, the check at load finds the difference."""
    indexers = [part for part in small_blocks.network.modules() if type(part) is WholeIndexer]
    for part in indexers:
        part.__class__ = Indexer
    fault = batching_fault(small_blocks)
    for part in indexers:
        part.__class__ = WholeIndexer
    assert fault is not None
    assert "away from the same rows alone" in fault


def test_rows_on_both_sides_of_every_border_say_what_each_says_alone(library: nn.Module) -> None:
    """A batch of rows that come to 16, 28 and 128 tokens while others are behind. B1, B2."""
    lengths = (121, 127, 5, 128, 25, 14)
    params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True, logprobs=VOCAB)
    with LLM(path(), prefill_chunk=32) as llm:
        rows = [TEXT[at : at + length] for at, length in enumerate(lengths)]
        handles = [llm.submit({"prompt_token_ids": row}, params) for row in rows]
        while not all(handle.done for handle in handles):
            llm.step()
        assert llm.status()["lane"] == "batch"
        for row, handle in zip(rows, handles, strict=True):
            said = [*row, *handle.output.token_ids[:-1]]
            alone = logprobs(library, said, make_prompt_cache(library), ())[len(row) - 1 :]
            found = np.empty_like(alone)
            for at, entry in enumerate(handle.output.logprobs or []):
                ids, values = zip(*entry.top, strict=True)
                found[at, list(ids)] = values
            assert np.abs(found - alone).max() < BOUND


def test_a_text_model_that_only_mlx_vlm_has_is_served(tmp_path: Path) -> None:
    """Most checkpoints of the family see nothing: they load all the same, and refuse pictures."""
    text = copied("deepseek_v4", tmp_path)
    set_json(text / "config.json", vision_n_layers=0)
    sees = ("vision.", "aligner.", "image_", "bias_vl", "layers.0.ffn.gate.e_score")
    change_weights(
        text,
        lambda weights: {
            name: array for name, array in weights.items() if not any(it in name for it in sees)
        },
    )
    model = load(str(text))
    assert not model.host.sees
    assert batching_fault(model) is None
    with pytest.raises(RequestError, match="text model"):
        model.host.prepare(DEEPSEEK_IMAGE, [Image.new("RGB", (32, 32))])
