"""What rows have said is told before prompts of the same step are launched (B61)."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.core.options import EngineOptions
from bushel.core.wire import Stepped
from bushel.engine.background_chunks import BackgroundChunks
from bushel.engine.process import Process
from bushel.engine.prompt_runner import PromptRunner
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt

LONG = SamplingParams(max_tokens=30, ignore_eos=True)


class Told:
    """A link to nobody, and what else happens meanwhile."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def send(self, message: Any) -> None:
        if isinstance(message, Stepped):
            self.order += ["tokens" for event in message.events if event.token_ids]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told, run, wait = Told(), PromptRunner.run, BackgroundChunks.wait

    def spy_run(self: PromptRunner, chunks: Any, *args: Any, **options: Any) -> Any:
        told.order += ["prompts"] * len(chunks)
        return run(self, chunks, *args, **options)

    def spy_wait(self: BackgroundChunks) -> None:
        if self._marker is not None:
            told.order.append("wait")
        wait(self)

    monkeypatch.setattr(PromptRunner, "run", spy_run)
    monkeypatch.setattr(BackgroundChunks, "wait", spy_wait)
    return told


def test_a_token_does_not_wait_for_the_prompts_of_its_step(told: Told) -> None:
    """To launch these takes as long as to run them; and what they took is known at the next step,
    which waits for them before it launches others.
    """
    with LLM(str(checkpoint_dir("llama")), prefix_cache=False, prefill_chunk=16) as llm:
        engine = llm._engine
        assert engine is not None
        process = Process(engine, cast(Any, told), EngineOptions(""))
        llm.submit(prompt(8), LONG)
        while "tokens" not in told.order:
            process._step()
        llm.submit(prompt(48, 2), LONG)
        told.order.clear()
        process._step()
        process._step()
        process._step()
    assert told.order == ["tokens", "prompts"] + 2 * ["wait", "tokens", "prompts"]


def test_chunks_are_waited_for_once() -> None:
    chunks, state = BackgroundChunks(), mx.zeros((2, 2))
    chunks.wait()
    chunks.start([state], catch_up=False)
    assert chunks._marker is not None
    chunks.wait()
    assert chunks._marker is None
