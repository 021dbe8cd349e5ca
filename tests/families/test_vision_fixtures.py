"""The gate on the vision checkpoints: a comparison on them can only pass by being right.

A fixture whose output ignores the image, its place or its neighbours would let an engine
lose them unseen. BUSHEL_TEST_FAMILIES=all tries every one of them.
"""

import sys
from collections import Counter
from importlib.util import find_spec
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_vlm
import numpy as np
import pytest
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.models.minicpmv4_7.rope import CanvasRoPE

from bushel.models import known_families
from tests.depth import often

from . import checkpoint_dir
from .checkpoint import VOCAB
from .family import EVERY, kinds_of
from .images import LARGE, MEDIUM, SMALL, picture
from .library_vision_loop import POSITION_STATE, Solo, prepare, solo_vision
from .reference import load_reference
from .text import WINDOW
from .vision import COMMON, EXEMPLARS, NOT_MADE, VISION

QUESTION, OTHER = "What is in the picture?", "Please write a short story about it."
CHUNK = 8
SOME = sorted({*EXEMPLARS, *COMMON, "mllama", "minicpmv4_7"})


@pytest.fixture(
    scope="module", params=VISION if EVERY else often(SOME, *sorted(EXEMPLARS)[::2], "mllama")
)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def loaded(name: str) -> tuple[nn.Module, Any]:
    return load_reference(name)


@pytest.fixture(scope="module")
def solo(loaded: tuple[nn.Module, Any]) -> Solo:
    return solo_vision(*loaded, chat(loaded, 1), [picture(MEDIUM, 1)], 24)


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch, loaded: tuple[nn.Module, Any]) -> list[int]:
    """The number of tokens in every call of the language model, as they come."""
    kind = type(loaded[0].language_model)
    call, lengths = kind.__call__, []

    def spy(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        lengths.append((args[0] if args else kwargs["inputs"]).shape[1])
        return call(self, *args, **kwargs)

    monkeypatch.setattr(kind, "__call__", spy)
    return lengths


def tokenizer_of(loaded: tuple[nn.Module, Any]) -> Any:
    """Where a family has no processor, it is in its place."""
    return getattr(loaded[1], "tokenizer", loaded[1])


def chat(loaded: tuple[nn.Module, Any], images: int, question: str = QUESTION) -> str:
    content = [{"type": "image"}] * images + [{"type": "text", "text": question}]
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": content},
    ]
    return tokenizer_of(loaded).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )


def moved(one: Solo, two: Solo) -> float:
    return float(np.abs(one.logprobs[0] - two.logprobs[0]).max())


def test_checkpoint_has_two_layers_of_every_promised_kind(
    name: str, loaded: tuple[nn.Module, Any], solo: Solo
) -> None:
    counts = Counter(kinds_of(make_prompt_cache(loaded[0].language_model)))
    assert set(counts) == set(VISION[name].kinds)
    assert min(counts.values()) >= 2
    assert len(solo.prompt_ids) > 2 * WINDOW


def test_processor_needs_no_torch_and_adds_no_tokens(
    name: str, loaded: tuple[nn.Module, Any], solo: Solo
) -> None:
    assert "torch" not in sys.modules
    assert len(tokenizer_of(loaded)) == VOCAB + VISION[name].added_tokens
    behind = 0 if VISION[name].image_token else 5  # parts of an image, that no text has
    assert max(solo.prompt_ids) < VOCAB + behind


@pytest.mark.parametrize("kind", ["image", "image_url", "input_image"])
def test_chat_template_writes_the_placeholder_for_an_image(
    name: str, loaded: tuple[nn.Module, Any], kind: str
) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": kind}, {"type": "text", "text": QUESTION}]},
    ]
    assert tokenizer_of(loaded).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    ) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\n{VISION[name].placeholder}{QUESTION}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_image_sizes_give_the_promised_numbers_of_tokens(
    name: str, loaded: tuple[nn.Module, Any]
) -> None:
    def image_tokens(size: tuple[int, int]) -> int:
        inputs = prepare(*loaded, chat(loaded, 1), [picture(size)])
        ids = inputs.pop("input_ids")
        if VISION[name].mark is None:
            return int((ids == VISION[name].image_token_id).sum())
        marks = int((ids == VISION[name].mark).sum())
        pixels = inputs.pop("pixel_values")
        embedded = loaded[0].get_input_embeddings(ids, pixels, **inputs).inputs_embeds
        return embedded.shape[1] - ids.shape[1] + marks

    assert tuple(map(image_tokens, (SMALL, MEDIUM, LARGE))) == VISION[name].image_tokens


def test_another_image_moves_the_logprobs(loaded: tuple[nn.Module, Any], solo: Solo) -> None:
    other = solo_vision(*loaded, chat(loaded, 1), [picture(MEDIUM, 2)], 1)
    assert other.prompt_ids == solo.prompt_ids
    assert moved(solo, other) > 1e-2


def test_another_text_moves_the_logprobs(loaded: tuple[nn.Module, Any], solo: Solo) -> None:
    other = solo_vision(*loaded, chat(loaded, 1, OTHER), [picture(MEDIUM, 1)], 1)
    assert moved(solo, other) > 1e-2


def test_two_images_of_different_sizes_both_matter(
    name: str, loaded: tuple[nn.Module, Any]
) -> None:
    if VISION[name].most_images < 2:
        pytest.skip("its processor takes one image")

    def pair(first: int, second: int) -> Solo:
        images = [picture(SMALL, first), picture(LARGE, second)]
        return solo_vision(*loaded, chat(loaded, 2), images, 1)

    assert moved(pair(1, 2), pair(3, 2)) > 1e-2
    assert moved(pair(1, 2), pair(1, 3)) > 1e-2


# To others whose cuts change a text they do not with a picture.
CUTS_MATTER = {"phi3_v_long"}
SIZES = [
    pytest.param((), marks=pytest.mark.long),
    pytest.param((MEDIUM,), marks=pytest.mark.long),
    (SMALL, LARGE),
]


@pytest.mark.parametrize("sizes", SIZES, ids=len)
def test_chunked_prefill_equals_unchunked_where_promised(
    name: str, loaded: tuple[nn.Module, Any], sizes: tuple, forwards: list[int]
) -> None:
    if VISION[name].most_images < len(sizes):
        pytest.skip("its processor takes one image")
    prompt = chat(loaded, len(sizes))
    images = [picture(size, seed) for seed, size in enumerate(sizes)]
    cuts = VISION[name].cuts if images else VISION[name].cuts_of_text
    whole = solo_vision(*loaded, prompt, images, 4)
    forwards.clear()
    chunked = solo_vision(*loaded, prompt, images, 4, prefill_step_size=CHUNK)
    assert max(forwards) == (len(whole.prompt_ids) if "refused" in cuts else CHUNK)
    family = VISION[name]
    differs = family.equal_chunks or family.whole_passes
    if cuts in ("wrong", "whole") or (differs and (not images or name in CUTS_MATTER)):
        assert moved(chunked, whole) > 1e-2
    else:
        assert chunked.tokens == whole.tokens
        assert np.abs(chunked.logprobs - whole.logprobs).max() < 1e-4


def varied(solo: Solo) -> bool:
    entropy = -(np.exp(solo.logprobs) * solo.logprobs).sum(-1)
    return len(set(solo.tokens)) >= 6 and float(entropy.min()) > 0.5


def test_greedy_output_is_varied(solo: Solo) -> None:
    assert varied(solo)


def test_an_earlier_prompt_leaves_no_trace(loaded: tuple[nn.Module, Any], solo: Solo) -> None:
    model = loaded[0].language_model
    for attribute in POSITION_STATE:
        if hasattr(model, attribute):
            setattr(model, attribute, mx.full((3, 1, 400), 77))
    again = solo_vision(*loaded, chat(loaded, 1), [picture(MEDIUM, 1)], 4)
    assert np.array_equal(again.logprobs, solo.logprobs[:4])


def test_image_positions_matter_where_they_have_three_axes(
    name: str, loaded: tuple[nn.Module, Any], solo: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    if VISION[name].positions != "axes":
        pytest.skip("positions are counted")
    owner = CanvasRoPE if name == "minicpmv4_7" else type(loaded[0].language_model)
    index = owner.get_rope_index

    def counted(self: Any, ids: Any, *args: Any, **kwargs: Any) -> tuple:
        positions, delta = map(np.asarray, index(self, ids, *args, **kwargs))
        counts = np.arange(ids.shape[1])
        axes_last = positions.shape[:2] == ids.shape
        flat = np.broadcast_to(counts[:, None] if axes_last else counts, positions.shape)
        found = flat, np.zeros_like(delta)
        return found if owner is CanvasRoPE else tuple(map(mx.array, found))

    monkeypatch.setattr(owner, "get_rope_index", counted)
    flat = solo_vision(*loaded, chat(loaded, 1), [picture(MEDIUM, 1)], 1)
    assert moved(solo, flat) > 1e-2


def test_what_is_not_made_is_known_to_the_library_and_said_to_be_nothing() -> None:
    """A family is tried by the tests, or its reason stands beside its name."""
    for family in NOT_MADE:
        assert find_spec(f"mlx_vlm.models.{family}") is not None
        assert family not in known_families._EXACT["mlx_vlm"]
    assert not NOT_MADE.keys() & {it.config["model_type"] for it in VISION.values()}


def test_deepstack_features_matter() -> None:
    loaded = mlx_vlm.load(str(checkpoint_dir("qwen3_vl")))
    prompt, images = chat(loaded, 1), [picture(MEDIUM, 1)]
    whole = solo_vision(*loaded, prompt, images, 1)
    for merger in loaded[0].vision_tower.deepstack_merger_list:
        last = merger.linear_fc2
        weight, last.weight = last.weight, last.weight * 0
        assert moved(whole, solo_vision(*loaded, prompt, images, 1)) > 1e-2
        last.weight = weight


def test_cutting_a_bidirectional_image_changes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = mlx_vlm.load(str(checkpoint_dir("gemma4_bidir")))
    prompt, images = chat(loaded, 1), [picture(MEDIUM, 1)]
    whole = solo_vision(*loaded, prompt, images, 1)
    monkeypatch.setattr(
        type(loaded[0].language_model), "chunked_prefill_policy", lambda self, **_: True
    )
    cut = solo_vision(*loaded, prompt, images, 1, prefill_step_size=CHUNK)
    assert moved(whole, cut) > 1e-2


def test_glm4v_chunks_are_exact_with_explicit_positions() -> None:
    model, _ = loaded = mlx_vlm.load(str(checkpoint_dir("glm4v")))
    prompt, images = chat(loaded, 2), [picture(SMALL, 1), picture(LARGE, 2)]
    whole = solo_vision(*loaded, prompt, images, 1)
    inputs = prepare(*loaded, prompt, images)
    ids, pixels, mask = (inputs.pop(key) for key in ("input_ids", "pixel_values", "attention_mask"))
    embeds = model.get_input_embeddings(ids, pixels, mask=mask, **inputs).inputs_embeds
    positions, cache = model.language_model._position_ids, make_prompt_cache(model.language_model)
    for start in range(0, ids.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        output = model.language_model(
            ids[:, part],
            inputs_embeds=embeds[:, part],
            cache=cache,
            position_ids=positions[..., part],
        )
    logits = output.logits[:, -1]
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    assert np.abs(np.array(logprobs) - whole.logprobs).max() < 1e-4
