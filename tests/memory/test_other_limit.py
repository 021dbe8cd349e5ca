"""An engine that is told to keep to less memory, or may have more, while it serves (B73)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bushel import LLM
from bushel.engine.engine import Engine
from tests.engine.constrained_requests import Pair
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, greedy, hot, prompt

MUCH = 400 << 20
LONG: list[Pair] = [(prompt(40, at), (hot if at % 2 else greedy)(60)) for at in range(6)]


@pytest.fixture
def llm() -> Iterator[LLM]:
    with LLM(str(checkpoint_dir("qwen3_5_vl")), memory_limit=MUCH, headroom=0) as llm:
        yield llm


def engine(llm: LLM) -> Engine:
    return llm._own_engine()


def claimed(llm: LLM) -> int:
    engine(llm).settle_memory()
    return int(llm.status()["memory"]["claimed_bytes"])


def peak(llm: LLM, rows: int, length: int) -> int:
    admission = engine(llm).admission
    assert admission.memory is not None
    return admission.memory.footprint.peak(rows, length, admission._least_chunk)


def keep_to(llm: LLM, limit: int) -> None:
    engine(llm).keep_to(limit, limit, limit // 2)


def test_replies_that_have_less_memory_are_the_same_and_the_limit_holds(llm: LLM) -> None:
    alone = [llm.generate([request], [params])[0] for request, params in LONG]
    handles = [llm.submit(request, params) for request, params in LONG]
    for _ in range(20):
        llm.step()
    assert llm.status()["running"] == len(LONG)
    less = peak(llm, 2, 120)
    keep_to(llm, less)
    assert claimed(llm) == MUCH  # what is promised to six rows
    while claimed(llm) != less:
        assert any(not handle.done for handle in handles)
        llm.step()
    assert llm.status()["memory"]["promised_bytes"] <= less
    while not all(handle.done for handle in handles):
        llm.step()
    for handle, expected in zip(handles, alone, strict=True):
        assert_same(handle.output, expected)
    assert llm.status()["preemptions"] > 0
    llm.check_integrity()


def test_what_is_kept_of_prompts_makes_way_and_may_grow_again(llm: LLM) -> None:
    llm.generate([prompt(200, at) for at in range(8)], greedy(1))
    held = llm.status()["cache"]["bytes"]
    keep_to(llm, peak(llm, 1, 256))
    assert claimed(llm) < MUCH
    assert 0 <= llm.status()["cache"]["bytes"] < held
    keep_to(llm, MUCH)
    assert claimed(llm) == MUCH
    llm.generate([prompt(200, at) for at in range(8)], greedy(1))
    assert llm.status()["cache"]["bytes"] == held


def test_one_that_is_here_runs_to_its_end_and_the_next_one_is_refused(llm: LLM) -> None:
    handle = llm.submit(prompt(600), greedy(8))
    less = peak(llm, 1, 200)
    keep_to(llm, less)
    assert claimed(llm) == MUCH
    [refused] = llm.generate([prompt(600, 2)], [greedy(8)])
    assert "may be used" in (refused.error or "")
    while not handle.done:
        llm.step()
    assert handle.output.error is None
    assert len(handle.output.token_ids) == 8
    assert claimed(llm) == less
