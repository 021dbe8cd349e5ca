"""Keys and values kept in fewer bits: what fits, and what it does to log-probabilities."""

import numpy as np
import pytest

from bushel import LLM, BushelError
from bushel.core import Prepared
from tests.depth import one_in
from tests.families import checkpoint_dir
from tests.families.variants import wide_dir

from .caching_llm import _PARAMS, Answer, _answer, _submit, words

PROMPT = Prepared(words(150, 1))
# Largest difference of a log-probability; measured on these two models: 1.7e-2 and 5.4e-3 with 8
# bits, 6.6e-1 and 8.7e-2 with 4. (Of bushel:tiny's replies: none, and 1.1e-4.)
BOUNDS = {None: 1e-4, 8: 5e-2, 4: 1.0}


def ask(llm: LLM) -> Answer:
    handle = _submit(llm, PROMPT, "", _PARAMS)
    while not handle.done:
        llm.step()
    return _answer(handle)


@pytest.mark.parametrize("bits", BOUNDS)
@pytest.mark.parametrize("name", one_in(2, ["llama_wide", "qwen3_5_wide"]))
def test_fewer_bits_cost_little(name: str, bits: int | None) -> None:
    with LLM(str(wide_dir(name)), cache_kv_bits=bits) as llm:
        first, again = ask(llm), ask(llm)
        assert (first.cached, again.cached) == (0, len(PROMPT.ids) - 1)
        difference = float(np.abs(first.logprobs[0] - again.logprobs[0]).max())
        assert difference <= BOUNDS[bits]
        if bits is not None:
            assert difference > 0  # it was quantized at all


@pytest.mark.parametrize(("bits", "factor"), [(8, 3.5), (4, 6.0)])
def test_more_of_it_fits(bits: int, factor: float) -> None:
    """Of float32; of 16 bits, half as much more."""
    sizes = []
    for kept in (None, bits):
        with LLM(str(wide_dir("llama_wide")), cache_kv_bits=kept) as llm:
            ask(llm)
            sizes.append(llm.cache_stats()["edge_bytes"])
    assert sizes[0] >= factor * sizes[1]


def test_heads_that_cannot_be_quantized_are_kept_as_they_are() -> None:
    with LLM(str(checkpoint_dir("llama")), cache_kv_bits=8) as llm:  # 16 wide
        first, again = ask(llm), ask(llm)
        assert again.cached == len(PROMPT.ids) - 1
        assert np.abs(first.logprobs - again.logprobs).max() <= 1e-4


def test_snapshots_are_never_quantized() -> None:
    sizes = []
    for kept in (None, 4):
        with LLM(str(wide_dir("qwen3_5_wide")), cache_kv_bits=kept) as llm:
            ask(llm)
            sizes.append(llm.cache_stats()["snapshot_bytes"])
    assert sizes[0] == sizes[1] > 0


def test_other_numbers_of_bits_are_refused() -> None:
    with pytest.raises(BushelError, match="8 or 4"):
        LLM(str(checkpoint_dir("llama")), cache_kv_bits=3)
