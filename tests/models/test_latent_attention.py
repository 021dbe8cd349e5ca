"""Few tokens ask the latents of those before them; many make keys and values. Either is equal."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import deepseek_v3
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from bushel.models import latent_attention
from tests.families import checkpoint_dir

FAMILIES = [name.rpartition(".")[2] for name in latent_attention._MODULES]
BOUND = 1e-4
PROMPT, FEW, MANY = 150, 3, 40


def network(name: str) -> Any:
    loaded, _ = load_model(Path(checkpoint_dir(name)))
    return loaded


def quantized() -> Any:
    mx.random.seed(0)
    args = replace(network("deepseek_v3").args, qk_nope_head_dim=32, v_head_dim=64)
    made = deepseek_v3.Model(args)
    nn.quantize(made, 32, 4)
    return made


def replies(model: Any) -> list[mx.array]:
    """Logits of a prompt, of few tokens after it, of one, and of many."""
    cache = make_prompt_cache(model)
    starts = [0, PROMPT, PROMPT + FEW, PROMPT + FEW + 1, PROMPT + FEW + 1 + MANY]
    tokens = mx.arange(starts[-1]) * 7 % 50
    given = [model(tokens[None, start:end], cache=cache) for start, end in pairwise(starts)]
    mx.eval(given)
    return given


@pytest.fixture
def expanded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many latents keys were made of, each time."""
    lengths: list[int] = []
    make = latent_attention._Made.array

    def counted(made: Any) -> mx.array:
        lengths.append(made.latents.shape[2])
        return make(made)

    monkeypatch.setattr(latent_attention._Made, "array", counted)
    return lengths


@pytest.mark.parametrize("name", FAMILIES)
def test_few_tokens_are_answered_as_the_library_answers_them(
    name: str, expanded: list[int]
) -> None:
    """Without keys and values of what came before, which is what a round of drafts costs. B70."""
    own = replies(network(name))
    mended = network(name)
    latent_attention.install(mended)
    for ours, theirs in zip(replies(mended), own, strict=True):
        assert mx.abs(ours - theirs).max().item() < BOUND
    assert set(expanded) == {PROMPT, PROMPT + FEW + 1 + MANY}


def test_also_with_quantized_weights(expanded: list[int]) -> None:
    own = replies(quantized())
    mended = quantized()
    before = latent_attention.expanded_token(mended)
    latent_attention.install(mended)
    for ours, theirs in zip(replies(mended), own, strict=True):
        assert mx.abs(ours - theirs).max().item() < BOUND
    assert PROMPT + FEW not in expanded
    assert latent_attention.expanded_token(mended) == before == 4 * (32 + 64) * 4


def test_other_latents_would_be_seen(expanded: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: one matrix of a head in the place of another's."""
    own = replies(network("deepseek_v3"))
    mended = network("deepseek_v3")
    latent_attention.install(mended)
    make = latent_attention._OfLatents.make

    def other(linear: Any, x: mx.array, transpose: bool = True) -> mx.array:
        made = make(linear, x, transpose)
        return made[:, ::-1] if x.shape[2] == FEW else made

    monkeypatch.setattr(latent_attention._OfLatents, "make", other)
    assert mx.abs(replies(mended)[1] - own[1]).max().item() > 100 * BOUND


def test_it_is_installed_once() -> None:
    mended = network("deepseek_v3")
    latent_attention.install(mended)
    kinds = [type(part.embed_q) for part in latent_attention._latent(mended)]
    latent_attention.install(mended)
    assert [type(part.embed_q) for part in latent_attention._latent(mended)] == kinds
