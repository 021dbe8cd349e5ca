"""A recorded run: its plans, executed by another engine that can look at nothing outside itself."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bushel import LLM, SamplingParams
from bushel.cache.prefix import DiskFetch
from bushel.cache.prefix.disk import Disk
from bushel.core import BushelError
from bushel.engine import request_queue
from bushel.engine.constraints import constraint
from bushel.engine.engine import Engine
from bushel.engine.plan import Arrivals, Plan
from bushel.engine.prefill import Prefill
from bushel.llm import Handle
from bushel.text.grammar_compiler import Grammars
from tests.depth import often
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt

Ask = tuple[dict[str, Any], SamplingParams]
Act = Ask | tuple[Arrivals, Plan]

GREEDY = SamplingParams(max_tokens=12, ignore_eos=True, temperature=0)
HOT = SamplingParams(max_tokens=20, ignore_eos=True, temperature=1, seed=7, top_p=0.9)
TO_ITS_END = SamplingParams(max_tokens=20, temperature=1, seed=5)
LONG = prompt(300, 1)

# What is asked, and after how many steps: all of them meet, and some prompts are known.
SCRIPT: list[tuple[int, Ask]] = [
    (0, (LONG, GREEDY)),  # from disk
    (0, ({**prompt(9, 2), "shape": {"regex": "[ab]{9}"}}, TO_ITS_END)),
    (2, (prompt(70, 3), HOT)),
    (6, (prompt(33, 4), SamplingParams(max_tokens=9, temperature=1, seed=3, n=3))),
    (9, (prompt(70, 3), GREEDY)),  # from memory
    (9, ({**prompt(20, 5), "shape": {"regex": "(yes|no){3}"}}, TO_ITS_END)),
    (9, (prompt(5, 6), SamplingParams(max_tokens=15, temperature=0, repetition_penalty=1.3))),
]


def opened(name: str, folder: Path) -> LLM:
    # One slot too few for all, so that rows wait and make way.
    return LLM(
        str(checkpoint_dir(name)),
        prefill_chunk=32,
        max_batch=5,
        snapshot_every=64,
        start_wait=0.05,
        cache_dir=str(folder),
    )


def engine_of(llm: LLM) -> Engine:
    assert llm._engine is not None
    return llm._engine


def answers(handles: list[Handle]) -> list[list[tuple[list[int], str | None, str | None]]]:
    return [
        [(choice.token_ids, choice.finish_reason, choice.error) for choice in handle.output.choices]
        for handle in handles
    ]


def recorded(llm: LLM) -> tuple[list[Act], list[Handle]]:
    """What was done in a run, step by step."""
    acts, handles = list[Act](), list[Handle]()
    take_in, execute = Engine.take_in, Engine.execute
    arrived: list[Arrivals] = []

    def spy_take_in(self: Engine, arrivals: Arrivals) -> None:
        arrived.append(arrivals)
        take_in(self, arrivals)

    def spy_execute(self: Engine, plan: Plan, *read: Any) -> Any:
        acts.append((arrived[-1], plan))
        return execute(self, plan, *read)

    with patch.object(Engine, "take_in", spy_take_in), patch.object(Engine, "execute", spy_execute):
        asked, step = list(SCRIPT), 0
        while asked or not all(handle.done for handle in handles):
            while asked and asked[0][0] <= step:
                acts.append(asked.pop(0)[1])
                handles.append(llm.submit(*acts[-1]))
            llm.step()
            step += 1
    return acts, handles


@contextmanager
def blind(engine: Engine) -> Iterator[None]:
    """Clock, disk and compiler raise; the disk may be told, but not asked."""

    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("a step looked outside")

    with (
        patch.object(engine._times, "clock", asked),
        patch.object(Disk, "read", asked),
        patch.object(Disk, "wait", asked),
        patch.object(Disk, "take_gone", asked),
        patch.object(DiskFetch, "done", property(asked)),
        patch.object(Grammars, "begin", asked),
    ):
        yield


def executed(llm: LLM, acts: list[Act]) -> list[Handle]:
    """The same, without a decision of its own."""
    engine, handles = engine_of(llm), list[Handle]()
    for first, second in acts:
        if isinstance(first, dict):
            handles.append(llm.submit(first, second))
            continue
        deadline = time.monotonic() + 60
        while not ready(engine, first) and time.monotonic() < deadline:
            time.sleep(0.001)
        with blind(engine):
            engine.take_in(first)
            engine.execute(second)
        llm._deliver(engine.take_events())
    return handles


def ready(engine: Engine, arrivals: Arrivals) -> bool:
    """Whether its own disk and compiler have come as far."""
    there = engine._arrivals()
    return {*arrivals.read} <= {*there.read} and {*arrivals.compiled} <= {*there.compiled}


@pytest.mark.parametrize("name", often(["llama", "qwen3_5"], "qwen3_5"))
def test_plans_of_one_engine_give_the_same_tokens_in_another_that_looks_at_nothing(
    name: str, tmp_path: Path
) -> None:
    with opened(name, tmp_path / "first") as llm:
        llm.generate(LONG, GREEDY)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    with opened(name, tmp_path / "first") as llm:
        acts, handles = recorded(llm)
        assert llm.cache_stats()["hits"].get("disk") == 1
        assert engine_of(llm).max_decode_batch > 2
    steps = [(first, second) for first, second in acts if isinstance(first, Arrivals)]
    assert sum(len(arrivals.read) for arrivals, _ in steps) == 1
    assert sum(len(arrivals.compiled) for arrivals, _ in steps) == 2
    with opened(name, tmp_path / "second") as other:
        again = executed(other, acts)
        other.check_integrity()
        assert engine_of(other).idle
        assert other.cache_stats()["hits"].get("disk") == 1
    assert answers(again) == answers(handles)


def test_control_a_step_that_decides_for_itself_looks_outside(tmp_path: Path) -> None:
    with opened("llama", tmp_path) as llm:
        llm.submit(LONG, GREEDY)
        with blind(engine_of(llm)), pytest.raises(AssertionError, match="looked outside"):
            llm.step()


def test_control_a_plan_that_is_left_out_changes_the_answers(tmp_path: Path) -> None:
    with opened("llama", tmp_path / "first") as llm:
        llm.generate(LONG, GREEDY)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    with opened("llama", tmp_path / "first") as llm:
        acts, handles = recorded(llm)
    last = next(at for at in reversed(range(len(acts))) if isinstance(acts[at][0], Arrivals))
    with opened("llama", tmp_path / "second") as other:
        again = executed(other, acts[:last])
        assert answers(again) != answers(handles)


def test_a_constraint_that_takes_too_much_time_ends_its_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured while masks are made, and decided between steps."""
    held = {**prompt(9, 2), "shape": {"regex": "[ab]{9}"}}
    with opened("llama", tmp_path) as llm:
        (alone,) = llm.generate(prompt(70, 3), HOT)
        monkeypatch.setattr(constraint, "_SLOW", 0.0)
        monkeypatch.setattr(constraint, "_MOST_SLOW", 0.0)
        slow, other = llm.generate([held, prompt(70, 3)], [TO_ITS_END, HOT])
    assert slow.finish_reason == "error"
    assert "takes too long" in (slow.error or "")
    assert other.token_ids == alone.token_ids


def test_a_prompt_that_waits_is_looked_at_once_and_not_in_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be a thousand of them (B57). `check_integrity` compares what is remembered."""
    looked = 0
    width_of = request_queue.width_of

    def counting(job: Prefill) -> int:
        nonlocal looked
        looked += job.sequences[0].row.slot is False and job.prompt is None
        return width_of(job)

    monkeypatch.setattr(request_queue, "width_of", counting)
    with LLM(str(checkpoint_dir("llama")), max_batch=1, speculate="off") as llm:
        handles = [llm.submit(prompt(9, seed), GREEDY) for seed in range(20)]
        while not all(handle.done for handle in handles):
            llm.step()
    assert 20 <= looked <= 3 * 20  # when it comes, when it begins, and what may change between


def test_what_is_remembered_of_waiting_prompts_follows_what_becomes_of_them() -> None:
    """Rows that yield, restored prompts, aborts: with the control, an outdated one is noticed."""
    with LLM(str(checkpoint_dir("llama")), max_batch=2, start_wait=0.0) as llm:
        handles = [llm.submit(prompt(40 + seed % 3, seed % 4), GREEDY) for seed in range(12)]
        while not all(handle.done for handle in handles):
            llm.step()
            llm.check_integrity()
            if handles[5].output.token_ids:
                handles[11].abort()
        handles = [llm.submit(prompt(40, seed), GREEDY) for seed in range(12)]
        llm.step()
        [job, *_] = engine_of(llm)._queue.waiting.values()
        llm.check_integrity()
        job.last_served += 1  # which is not changed by itself
        with pytest.raises(BushelError, match="what waits was told as"):
            llm.check_integrity()
