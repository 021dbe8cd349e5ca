"""Decoding that waits for prompts changes no answer (B1, B61)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bushel import LLM, SamplingParams
from bushel.engine.engine import Engine
from bushel.engine.plan import Costs, Plan
from bushel.engine.step_costs import Passes, Stopwatch
from tests.depth import often
from tests.engine.constrained_requests import Pair, alone, shaped, talk, thinking

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
