"""Texts that a decoder embeds share passes with others, and give what they give alone (B1, B61)."""

from __future__ import annotations

from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel import LLM
from bushel.core.options import Attention
from bushel.engine.prefill import Prefill
from bushel.models.pooling import Pooling
from tests.depth import often
from tests.engine.mixed_requests import ids
from tests.families import checkpoint_dir

TEXTS = [ids(length, seed)["prompt_token_ids"] for seed, length in enumerate((3, 40, 9, 75, 17, 1))]
BOUND = 1e-5


def opened(name: str, attention: Attention, pooling: Pooling, **options: Any) -> LLM:
    """Nothing is known of costs, which would say how much padding is worth a pass."""
    llm = LLM(str(checkpoint_dir(name)), attention=attention, max_batch=8, **options)
    assert llm._engine is not None
    llm._engine._times.clock = lambda: 0.0
    llm._engine.model.pooling = pooling
    return llm


def counted(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every forward pass from now on."""
    assert llm._engine is not None
    model, rows = llm._engine.model, list[int]()
    forward, prefill = model.forward, model.prefill

    def run(tokens: mx.array, *rest: Any) -> mx.array:
        rows.append(tokens.shape[0])
        return forward(tokens, *rest)

    def run_alone(*arguments: Any) -> mx.array:
        rows.append(1)
        return prefill(*arguments)

    monkeypatch.setattr(model, "forward", run)
    monkeypatch.setattr(model, "prefill", run_alone)
    return rows


@pytest.mark.parametrize(
    ("name", "attention", "pooling"),
    often(
        product(("llama", "qwen3"), ("pages", "padded"), ("last", "mean")),
        *(("qwen3", "pages", "last"), ("llama", "padded", "mean")),
    ),
)
def test_texts_together_give_what_each_gives_alone_in_as_many_passes_as_were_planned(
    name: str, attention: Attention, pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that nobody planned would be a gap in everybody's streams. B1, B61."""
    with opened(name, attention, pooling, prefix_cache=False) as llm:
        expected = [llm.embed([text])[0] for text in TEXTS]
        rows = counted(llm, monkeypatch)
        assert np.abs(np.array(llm.embed(TEXTS)) - expected).max() < BOUND
    assert sum(rows) == len(TEXTS)
    assert max(rows) > 1


@pytest.mark.parametrize("name", often(["llama", "qwen3_5", "gemma3"], "qwen3_5"))
def test_a_text_again_and_longer_ones_after_it(name: str) -> None:
    """From what was kept of it: of a recurrent model too. B32."""
    longer = [[*text, 20, 21, 22] for text in TEXTS]
    with opened(name, "auto", "last", prefix_cache=False) as llm:
        expected = [llm.embed([text])[0] for text in (*TEXTS, *longer)]
    with opened(name, "auto", "last") as llm:
        for _ in range(2):
            found = [llm.embed([text])[0] for text in (*TEXTS, *longer)]
            assert np.abs(np.array(found) - expected).max() < BOUND
        assert llm.status()["cache"]["reused_tokens"] > 0


def test_prompts_of_chats_in_the_same_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text and a question, each as alone. B1."""
    asked = {"prompt_token_ids": ids(30, 9)["prompt_token_ids"]}
    with opened("llama", "padded", "mean", prefix_cache=False) as llm:
        [vector] = llm.embed([TEXTS[1]])
        [alone] = llm.generate([asked], {"max_tokens": 8, "temperature": 0})
        rows = counted(llm, monkeypatch)
        stream = llm.submit(asked, {"max_tokens": 8, "temperature": 0})
        [beside] = llm.embed([TEXTS[1]])
        assert rows[0] == 2
        while not stream.done:
            llm.step()
        assert stream.output.token_ids == alone.token_ids
        assert np.abs(np.array(beside) - vector).max() < BOUND


def test_control_hidden_states_of_padding_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Prefill._pool

    def of_all(job: Prefill, hidden: mx.array) -> None:
        pool(job, mx.concatenate([hidden, hidden[:1]]))

    with opened("llama", "padded", "mean", prefix_cache=False) as llm:
        expected = [llm.embed([text])[0] for text in TEXTS]
        monkeypatch.setattr(Prefill, "_pool", of_all)
        assert np.abs(np.array(llm.embed(TEXTS)) - expected).max() > BOUND
