"""When tokens are chosen: with the next forward pass on a CPU, if nothing comes between."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.engine import engine
from bushel.engine.constraints.mask_thread import MaskThread
from bushel.engine.decode_batch import DecodeBatch, Run, Step
from bushel.engine.prompt_runner import PromptRunner
from bushel.engine.step_costs import Passes
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, prompt

LONG = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1, seed=3, top_k=20, logprobs=2)
SHORT = SamplingParams(max_tokens=3, ignore_eos=True, temperature=0)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(checkpoint_dir("llama")), prefill_chunk=8) as llm:
        yield llm


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every step, whether its choice waits."""
    seen, choose = list[bool](), DecodeBatch.choose

    def spy(self: DecodeBatch, run: Run, *args: Any, late: bool = False) -> Step:
        seen.append(late)
        return choose(self, run, *args, late=late)

    monkeypatch.setattr(engine, "LATE", True)
    monkeypatch.setattr(DecodeBatch, "choose", spy)
    return seen


def test_it_waits_for_the_next_step_unless_a_prompt_would_run_before_it(
    llm: LLM, late: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks, run_pass = list[int](), PromptRunner._run_pass

    def spy(self: PromptRunner, *given: Any) -> list[Passes]:
        chunks.append(len(late))
        return run_pass(self, *given)

    monkeypatch.setattr(PromptRunner, "_run_pass", spy)
    monkeypatch.setattr(llm._engine._times, "clock", lambda: 0.0)  # nothing costs: all steps decode
    running = llm.submit(prompt(20), LONG)
    while len(running.output.token_ids) < 3:
        llm.step()
    llm.submit(prompt(40), SHORT)
    while not running.done:
        llm.step()
    between = {step for step in chunks if step}  # chunks in steps that decode as well
    assert between
    assert late == [step + 1 not in between for step in range(len(late))]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every step that another thread reads, whether it had begun."""
    began, evaluate, start = list[mx.array](), mx.async_eval, MaskThread.start
    found = list[bool]()

    def spy(*arrays: mx.array) -> None:
        began.extend(arrays)
        evaluate(*arrays)

    def spy_start(self: MaskThread, batch: DecodeBatch, before: Step | None) -> None:
        if before is not None and before.twin is not None:
            found.append(any(it is before.twin for it in began))
        start(self, batch, before)

    monkeypatch.setattr(mx, "async_eval", spy)
    monkeypatch.setattr(MaskThread, "start", spy_start)
    return found


HELD = {**prompt(9), "shape": {"regex": "[ab]{9}"}}
TO_ITS_END = replace(LONG, ignore_eos=False)


def test_another_thread_reads_only_what_has_begun(
    llm: LLM, late: list[bool], read: list[bool]
) -> None:
    """Where rows are constrained. Two threads that evaluate one array would be undefined."""
    (out,) = llm.generate(HELD, TO_ITS_END)
    assert re.fullmatch("[ab]{9}", out.text)
    assert len(read) > 3
    assert all(read)
    assert any(late)


def test_a_last_choice_begins_when_the_batch_goes_on_without_its_row(
    late: list[bool], read: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that cannot share a batch: the next one joins when the last step of one is unread."""
    forward = DecodeBatch.forward

    def planted(self: DecodeBatch) -> Run:
        if len(self) > 1:
            raise RuntimeError("planted")
        return forward(self)

    asked = [(HELD, replace(TO_ITS_END, max_tokens=count, seed=count)) for count in (6, 8, 7)]
    with LLM(str(checkpoint_dir("llama"))) as llm:
        expected = [llm.generate(*pair)[0] for pair in asked]
        monkeypatch.setattr(DecodeBatch, "forward", planted)
        found = llm.generate(*map(list, zip(*asked, strict=True)))
        assert llm.status()["lane"] == "single"
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    assert len(read) > 3
    assert all(read)
    assert any(late)


def test_what_waits_has_not_begun_and_what_runs_can_be_read_by_itself(
    llm: LLM, late: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens are there when their step is, not only when the forward pass after them is."""
    began, evaluate = list[tuple[mx.array, ...]](), mx.async_eval

    def spy(*arrays: mx.array) -> None:
        began.append(arrays)
        evaluate(*arrays)

    def with_tokens() -> list[int]:
        assert waiting is not None
        tokens = waiting.sampled.tokens
        return [at for at, them in enumerate(began) if any(it is tokens for it in them)]

    running = llm.submit(prompt(20), LONG)
    while len(running.output.token_ids) < 3:
        llm.step()
    monkeypatch.setattr(mx, "async_eval", spy)
    for _ in range(4):
        assert llm._engine is not None
        waiting = llm._engine._rows.pending
        assert with_tokens() == []
        llm.step()
        assert with_tokens() == [len(began) - 2]  # the last are the logits that they led to,
        assert len(began[-1]) == 1
        assert len(began[-2]) > 4  # so that there is more to do than tokens and logprobs till then
    running.abort()


def test_replies_are_the_same_either_way(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [prompt(length, length) for length in (3, 20, 41, 9)]
    found = []
    for late in (True, False):
        monkeypatch.setattr(engine, "LATE", late)
        found.append(llm.generate(requests, [LONG, SHORT, LONG, SHORT]))
    for one, other in zip(*found, strict=True):
        assert_same(one, other)
