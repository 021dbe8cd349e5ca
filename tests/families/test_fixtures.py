"""The gate on the text checkpoints: a comparison on them can only pass by being right.

A fixture whose output ignores part of its state would let an engine lose that state unseen.
BUSHEL_TEST_FAMILIES=all tries every one of them.
"""

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache, make_prompt_cache
from mlx_vlm.models.cache import KVCache

from tests.depth import often

from . import checkpoint_dir
from .checkpoint import FIRST_SPECIAL, IM_END, VOCAB, randomise
from .family import EVERY, kinds_of
from .library_loop import Solo, solo_text
from .text import COMMON, CORE, TEXT, WINDOW, load_network
from .vision import VISION

PROMPT, OTHER = np.random.default_rng(1).integers(FIRST_SPECIAL, VOCAB, (2, 60)).tolist()
FIRST_CHANGED = [OTHER[0], *PROMPT[1:]]


@pytest.fixture(scope="module", params=TEXT if EVERY else often((*CORE, *COMMON), *CORE[::2]))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(name: str) -> nn.Module:
    return load_network(name, checkpoint_dir(name))


@pytest.fixture(scope="module")
def solo(model: nn.Module) -> Solo:
    return solo_text(model, PROMPT, 24)


def moved(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.abs(one - two).max())


def test_checkpoint_has_two_layers_of_every_promised_kind(name: str, model: nn.Module) -> None:
    counts = Counter(kinds_of(make_prompt_cache(model)))
    assert set(counts) == set(TEXT[name].kinds)
    # These remember the last tokens, once for all their layers.
    assert min(counts.values()) >= 2 or name in ("longcat_flash_ngram", "longcat_flash_sparse")
    assert len(PROMPT) > 2 * WINDOW


def test_no_name_is_that_of_a_family_with_images() -> None:
    assert not set(TEXT) & set(VISION)


@pytest.mark.parametrize("name", CORE)
def test_tokenizer_round_trips_text_and_renders_a_chat(name: str) -> None:
    tokenizer = mlx_lm.load(str(checkpoint_dir(name)))[1]
    assert tokenizer.vocab_size == VOCAB
    assert IM_END in tokenizer.eos_token_ids
    said = 'Zürich 今天 👩‍🌾 {"a": [1, null]}'
    assert tokenizer.decode(tokenizer.encode(said)) == said
    chat = [{"role": "user", "content": [{"type": "text", "text": said}]}]
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert rendered == f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"


def test_another_prompt_moves_the_logprobs(model: nn.Module, solo: Solo) -> None:
    assert moved(solo.logprobs[0], solo_text(model, OTHER, 1).logprobs[0]) > 1e-2


def test_the_first_of_sixty_tokens_is_remembered(model: nn.Module, solo: Solo) -> None:
    assert moved(solo.logprobs[0], solo_text(model, FIRST_CHANGED, 1).logprobs[0]) > 1e-3


def test_chunked_prefill_equals_unchunked(name: str, model: nn.Module, solo: Solo) -> None:
    """Or it does not, and the table says so."""
    chunked = solo_text(model, PROMPT, 8, prefill_step_size=8)
    same = chunked.tokens == solo.tokens[:8]
    same = same and moved(chunked.logprobs, solo.logprobs[:8]) < 1e-4
    assert same == (not TEXT[name].equal_chunks)


def varied(solo: Solo) -> bool:
    entropy = -(np.exp(solo.logprobs) * solo.logprobs).sum(-1)
    return len(set(solo.tokens)) >= 6 and float(entropy.min()) > 0.5


def test_greedy_output_is_varied(solo: Solo) -> None:
    assert varied(solo)


def test_variety_gate_rejects_an_echoing_model() -> None:
    model = mlx_lm.load(str(checkpoint_dir("qwen3")))[0]
    randomise(model, seed=0, spread=8.0)
    assert not varied(solo_text(model, PROMPT, 24))


def leaves(caches: list) -> list:
    return [leaf for cache in caches for leaf in parts(cache)]


def parts(cache: Any) -> tuple:
    """Of either library."""
    if isinstance(kept := getattr(cache, "kv_cache", None), KVCache):  # MiniMaxM3KVCache
        return kept, cache
    return tuple(getattr(cache, "caches", (cache,)))


def swaps(mine: list, other: list) -> Iterator[tuple[str, list]]:
    """Copies of `mine` with one array taken from `other`, for every array that differs."""
    for index, (leaf, donor) in enumerate(zip(leaves(mine), leaves(other), strict=True)):
        slots = range(len(leaf.cache)) if isinstance(leaf, ArraysCache) else ()
        for slot in slots:
            caches = copy.deepcopy(mine)
            leaves(caches)[index][slot] = donor[slot]
            yield f"cache {index}, slot {slot}", caches
        for field, array in () if slots else vars(leaf).items():
            if isinstance(array, mx.array) and not mx.array_equal(array, vars(donor)[field]):
                caches = copy.deepcopy(mine)
                setattr(leaves(caches)[index], field, vars(donor)[field])
                yield f"cache {index}, {field}", caches


def test_every_array_of_state_reaches_the_logprobs(model: nn.Module) -> None:
    def after(caches: list, tokens: list[int]) -> np.ndarray:
        output = model(mx.array([tokens]), cache=caches)
        return np.array(getattr(output, "logits", output)[0, -1])

    mine, other = make_prompt_cache(model), make_prompt_cache(model)
    after(mine, PROMPT[:-1])
    after(other, OTHER[:-1])
    logits = after(copy.deepcopy(mine), PROMPT[-1:])
    silent = [
        where
        for where, caches in swaps(mine, other)
        if moved(logits, after(caches, PROMPT[-1:])) < 1e-3
    ]
    assert not silent
