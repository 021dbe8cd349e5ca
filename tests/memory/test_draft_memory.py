"""Drafts are in the memory plan: they fit beside rows, and make way where they do not."""

import itertools
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.core.footprint import Memory
from bushel.engine.footprint import footprint
from bushel.engine.request_queue import GROWTH
from bushel.models import Model
from bushel.models.mtp import MTPHead
from tests.depth import often, rarely
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt
from tests.parity.drafting import oracle

REQUESTS = [(900, 0), (40, 1), (700, 2), (300, 3), (1000, 4), (20, 5), (600, 6), (64, 7)] * 2
PARAMS = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
FAMILIES = ("llama", "gemma3_text", "qwen3_5")


def model_of(llm: LLM) -> Model:
    assert llm._engine is not None
    return llm._engine.model


@pytest.mark.long
@pytest.mark.parametrize("name", rarely(FAMILIES, lambda name: name != "qwen3_5"))
def test_a_flood_with_drafts_stays_under_the_limit(name: str) -> None:
    """Rows that all draft as deep as they can, with room for a few of them. B50, B59."""
    path, asked = str(checkpoint_dir(name)), [prompt(*it) for it in REQUESTS]
    with LLM(path, speculate="off") as llm:
        replies = [out.token_ids for out in llm.generate(asked, PARAMS)]
        limit = 4 * footprint(model_of(llm)).peak(3, 1024, 16)
    with LLM(path, memory_limit=limit, headroom=0) as llm:
        engine = llm._engine
        assert engine is not None
        known = {
            tuple(one["prompt_token_ids"]): reply for one, reply in zip(asked, replies, strict=True)
        }
        engine.speculation = replace(oracle(known, 1000), most=engine.speculation.most)
        engine._rows.reset(engine._new_batch())
        weights = footprint(engine.model).weights
        mx.synchronize()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        outs = llm.generate(asked, PARAMS)
        peak = weights + mx.get_peak_memory() - before
    assert [out.token_ids for out in outs] == replies
    assert sum(out.usage.accepted_tokens for out in outs) > 100
    assert peak <= limit


@pytest.mark.parametrize("name", often(FAMILIES, "llama"))
def test_rows_that_join_after_a_long_one_stay_under_the_limit(name: str) -> None:
    """They get no more room than they need, although somebody is there who met it. B50."""
    path = str(checkpoint_dir(name))
    with LLM(path, speculate="lookup") as llm:
        memory = llm._own_engine().admission.memory
        assert memory is not None
        limit = max(memory.footprint.peak(3, 1700, 64), memory.footprint.peak(32, 64, 64))
    options: Any = {"memory_limit": limit, "headroom": 0, "prefix_cache": False}
    with LLM(path, speculate="lookup", **options) as llm:
        memory = llm._own_engine().admission.memory
        assert memory is not None
        mx.synchronize()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        long = llm.submit(prompt(1500), replace(PARAMS, max_tokens=4))
        rows = [llm.submit(prompt(10, 1), replace(PARAMS, max_tokens=100))]
        while not long.done:
            llm.step()
        rows += [llm.submit(prompt(10, seed), PARAMS) for seed in range(2, 33)]
        while not all(row.done for row in rows):
            llm.step()
        peak = memory.footprint.weights + mx.get_peak_memory() - before
        assert llm.status()["max_decode_batch"] == 32
    assert peak <= limit


@pytest.mark.parametrize("speculate", often(["off", "auto"], "auto"))
def test_rows_are_looked_at_before_they_outgrow_their_promise(
    speculate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tokens they say in a step, and although nobody else comes. B55, B63."""
    path, params = str(checkpoint_dir("llama")), replace(PARAMS, max_tokens=120)
    with LLM(path, speculate="off") as llm:
        (right,) = llm.generate(prompt(40), params)
    with LLM(path, speculate="off") as llm:
        engine = llm._own_engine()
        if speculate == "auto":
            known = {tuple(prompt(40)["prompt_token_ids"]): right.token_ids}
            engine.speculation = oracle(known, 1000)
            engine._rows.reset(engine._new_batch())
        looks, fit = [0], engine._sharing.fit

        def noted(promised: Memory | None) -> None:
            looks.append(len(handle.output.token_ids))
            fit(promised)

        monkeypatch.setattr(engine._sharing, "fit", noted)
        handle = llm.submit(prompt(40), params)
        while not handle.done:
            llm.step()
        assert handle.output.token_ids == right.token_ids
        assert (handle.output.usage.accepted_tokens > 60) == (speculate == "auto")
        steps = [*looks, len(right.token_ids)]
        assert max(then - now for now, then in itertools.pairwise(steps)) <= GROWTH
        assert len(looks) < len(right.token_ids)


def test_where_memory_is_short_replies_come_without_drafts() -> None:
    """What could be served without them is not refused because of them."""
    path = str(checkpoint_dir("llama"))
    with LLM(path, speculate="off") as llm:
        limit = footprint(model_of(llm)).peak(2, 300, 16)
    with LLM(path, memory_limit=limit, headroom=0) as llm:
        (out,) = llm.generate(prompt(40), PARAMS)
        told = llm.status()["speculation"]
    assert len(out.token_ids) == PARAMS.max_tokens
    assert told["why_off"] == "there is too little memory for drafts"


def test_a_heads_weights_and_state_are_counted() -> None:
    with LLM("bushel:tiny", speculate="off") as llm:
        plain = llm._engine.admission.memory.footprint  # type: ignore[union-attr]
    with LLM("bushel:tiny") as llm:
        head = model_of(llm).mtp
        drafted = llm._engine.admission.memory.footprint  # type: ignore[union-attr]
    assert isinstance(head, MTPHead)
    assert drafted.weights - plain.weights == 4 * 689_536  # its parameters, in float32
    assert drafted.drafts > 0
    assert drafted.state(1, 1024) > plain.state(1, 1024)
