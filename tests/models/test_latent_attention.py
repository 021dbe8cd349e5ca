"""MLA's absorbed form serves few query tokens, the expanded one many; both answer alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import deepseek_v3
from mlx_lm.models.cache import make_prompt_cache

from bushel.models import latent_attention, load
from tests.families import checkpoint_dir

FAMILIES = [name.removesuffix(".language").rpartition(".")[2] for name in latent_attention._MODULES]
BOUND = 1e-4
PROMPT, FEW, MANY = 150, 3, 40


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[mx.array]]:
    """What the library's own code says."""

    def given(name: str) -> list[mx.array]:
        with monkeypatch.context() as patch:
            patch.setattr(latent_attention, "install", lambda network: None)
            return loaded(name)

    return given


def loaded(name: str) -> list[mx.array]:
    model = load(str(checkpoint_dir(name)))
    state = model.make_state()
    given = replies(lambda tokens, start: model.forward(tokens, [start], state))
    model.close()
    return given


def quantized() -> Any:
    mx.random.seed(0)
    config = json.loads((Path(checkpoint_dir("deepseek_v3")) / "config.json").read_text())
    config |= {"qk_nope_head_dim": 32, "v_head_dim": 64}
    made = deepseek_v3.Model(deepseek_v3.ModelArgs.from_dict(config))
    nn.quantize(made, 32, 4)
    return made


def replies(run: Callable[[mx.array, int], mx.array]) -> list[mx.array]:
    """Logits of a prompt, of few tokens after it, of one, and of many."""
    starts = [0, PROMPT, PROMPT + FEW, PROMPT + FEW + 1, PROMPT + FEW + 1 + MANY]
    tokens = mx.arange(starts[-1]) * 7 % 50
    given = [run(tokens[None, start:end], start) for start, end in pairwise(starts)]
    mx.eval(given)
    return given


def by_library(network: Any) -> list[mx.array]:
    cache = make_prompt_cache(network)
    return replies(lambda tokens, _: network(tokens, cache=cache))


@pytest.fixture
def expanded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many latents keys were made of, each time."""
    lengths: list[int] = []
    make = latent_attention._LazyProjection.array

    def counted(made: Any) -> mx.array:
        lengths.append(made.latents.shape[2])
        return make(made)

    monkeypatch.setattr(latent_attention._LazyProjection, "array", counted)
    return lengths


@pytest.mark.parametrize("name", FAMILIES)
def test_few_tokens_are_answered_as_the_library_answers_them(
    name: str, own: Callable[[str], list[mx.array]], expanded: list[int]
) -> None:
    """Without keys and values of what came before, which is what a round of drafts costs. B70."""
    for ours, theirs in zip(loaded(name), own(name), strict=True):
        assert mx.abs(ours - theirs).max().item() < BOUND
    assert set(expanded) == {PROMPT, PROMPT + FEW + 1 + MANY}


def test_also_with_quantized_weights(expanded: list[int]) -> None:
    own, mended = quantized(), quantized()
    before = latent_attention.expanded_token(mended)
    latent_attention.install(mended)
    for ours, theirs in zip(by_library(mended), by_library(own), strict=True):
        assert mx.abs(ours - theirs).max().item() < BOUND
    assert PROMPT + FEW not in expanded
    assert latent_attention.expanded_token(mended) == before == 4 * (32 + 64) * 4


def test_another_heads_matrix_would_be_noticed(
    own: Callable[[str], list[mx.array]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: one matrix of a head in the place of another's."""
    make = latent_attention._AbsorbableLinear.make

    def other(linear: Any, x: mx.array, transpose: bool = True) -> mx.array:
        made = make(linear, x, transpose)
        return made[:, ::-1] if x.shape[2] == FEW else made

    monkeypatch.setattr(latent_attention._AbsorbableLinear, "make", other)
    difference = mx.abs(loaded("deepseek_v3")[1] - own("deepseek_v3")[1])
    assert difference.max().item() > 100 * BOUND


def test_it_is_installed_once() -> None:
    model = load(str(checkpoint_dir("deepseek_v3")))
    kinds = [type(part.embed_q) for part in latent_attention._latent(model.network)]
    latent_attention.install(model.network)
    assert [type(part.embed_q) for part in latent_attention._latent(model.network)] == kinds
    model.close()
