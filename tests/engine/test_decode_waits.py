"""Decoding that waits for prompts changes no answer (B1, B61)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bushel import LLM, SamplingParams
from bushel.engine import batch_membership
from bushel.engine.engine import Engine
from bushel.engine.plan import Costs, Plan
from bushel.engine.step_costs import Passes, Stopwatch
from tests.depth import often
from tests.engine.constrained_requests import Pair, alone, shaped, talk, thinking
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt

FREE = SamplingParams(max_tokens=12, temperature=1.0, seed=3)
PAIRS: list[Pair] = [
    (shaped("Who is it?"), replace(FREE, max_tokens=30, seed=1)),
    (talk("Say something."), FREE),
    (thinking("Why?", 6), replace(FREE, seed=7)),
    (talk("And more: " + "on and on " * 20), replace(FREE, temperature=0)),
    (shaped("Who else? " + "Tell me " * 25), replace(FREE, max_tokens=30, seed=5)),
    (talk("Last: " + "over and over " * 20), replace(FREE, seed=9)),
]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was carried out while rows were running. Two chunks fit between two decode steps."""
    seen: list[Plan] = []
    execute = Engine.execute

    def spy(self: Engine, plan: Plan, *read: Any) -> list[Passes]:
        if len(self._batch):
            seen.append(plan)
        return execute(self, plan, *read)

    monkeypatch.setattr(Engine, "execute", spy)
    monkeypatch.setattr(Stopwatch, "costs", lambda *_: Costs(0.01, 0.0006))
    return seen


@pytest.fixture(params=often(["pages", "padded"], "pages"))
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with LLM(
        "bushel:tiny",
        dtype="float32",
        attention=request.param,
        prefill_chunk=64,
        token_gap=100.0,
        prefix_cache=False,
    ) as llm:
        yield llm


@pytest.mark.parametrize("many", ["requests", "choices"])
def test_prompts_of_one_token_make_a_stream_wait_for_one_step_each(
    many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has no state, and makes some in a step by itself: never two of them in a row. B61."""
    alone, each, run_alone = 0, list[int](), batch_membership.run_alone

    def counting(*args: Any) -> Any:
        nonlocal alone
        alone += 1
        return run_alone(*args)

    monkeypatch.setattr(batch_membership, "run_alone", counting)
    short, params = {"prompt_token_ids": [5]}, SamplingParams(max_tokens=4, ignore_eos=True, seed=3)
    with LLM(str(checkpoint_dir("llama")), speculate="off") as llm:
        [right] = llm.generate(short, params)
        stream = llm.submit(prompt(20, 1), SamplingParams(max_tokens=200, ignore_eos=True))
        while not stream.output.token_ids:
            llm.step()
        asked = [params] * 8 if many == "requests" else [replace(params, n=8)]
        handles = [llm.submit(short, one) for one in asked]
        while not all(handle.done for handle in handles):
            alone = 0
            llm.step()
            llm.check_integrity()
            each.append(alone)
        assert (sum(each), max(each)) == (8, 1)
        if many == "requests":
            assert [handle.output.token_ids for handle in handles] == [right.token_ids] * 8


def test_rows_that_wait_for_prompts_say_what_they_say_alone(llm: LLM, plans: list[Plan]) -> None:
    """With grammars, budgets and seeds; where rows are padded nobody waits."""
    expected = [out.token_ids for out in alone(llm, PAIRS)]
    plans.clear()
    llm._engine._times.clock = lambda: 0.0  # type: ignore[union-attr]
    handles, pairs, steps = [], list(PAIRS), 0
    while pairs or not all(handle.done for handle in handles):
        if pairs and steps % 3 == 0:
            handles.append(llm.submit(*pairs.pop(0)))
        llm.step()
        llm.check_integrity()
        steps += 1
    assert [handle.output.token_ids for handle in handles] == expected
    waited = [plan for plan in plans if plan.chunks and not plan.decode]
    beside = [plan for plan in plans if plan.chunks and plan.decode]
    assert beside
    paged = llm.status()["attention"]["kv"] == "pages"
    assert bool(waited) == paged
