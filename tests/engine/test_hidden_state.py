"""An embedding of a decoder, its last hidden state, comes back as an event like any other."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel import LLM, SamplingParams
from bushel.core import Event, ModelError
from bushel.core.options import EngineOptions
from bushel.core.params import resolve
from bushel.core.wire import Accepted, FromEngine, Stepped, Submit
from bushel.models import Model, load
from bushel.server.processes.supervisor import Supervisor
from tests.depth import often
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, prompt

FAMILIES = ["llama", "gemma3_text", "qwen3_5", "qwen3_5_vl", "gemma3"]
ONE = SamplingParams(max_tokens=1)
HOT = SamplingParams(max_tokens=24, ignore_eos=True, temperature=1, seed=7)


def ids(request: dict[str, Any]) -> tuple[int, ...]:
    return tuple(request["prompt_token_ids"])


def alone(model: Model, tokens: tuple[int, ...]) -> np.ndarray:
    """The network's body called by itself, on the whole prompt."""
    network = getattr(model.network, "language_model", model.network)
    hidden = network.model(mx.array([tokens]), cache=model.make_state())
    return np.array(hidden[0, -1].astype(mx.float32))


def close(found: tuple[float, ...], expected: np.ndarray) -> bool:
    # Chunks and batches round differently; another token's state is whole units away.
    return bool(np.allclose(np.array(found, np.float32), expected, atol=2e-4, rtol=2e-4))


@pytest.fixture(scope="module", params=often(FAMILIES, "gemma3_text", "qwen3_5_vl"))
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with LLM(str(checkpoint_dir(request.param)), prefill_chunk=16) as llm:
        yield llm


def model_of(llm: LLM) -> Model:
    assert llm._engine is not None
    return llm._engine.model


def test_the_last_hidden_state_is_what_the_network_gives_alone(llm: LLM) -> None:
    asked = [prompt(length, length) for length in (40, 1, 17)]
    handles = [llm._submit(request, ONE, "embedding") for request in asked]
    while not all(handle.done for handle in handles):
        llm.step()
    expected = [alone(model_of(llm), ids(request)) for request in asked]
    for handle, state in zip(handles, expected, strict=True):
        (choice,) = handle.output.choices
        assert (choice.finish_reason, choice.error, choice.token_ids) == ("stop", None, [])
        assert close(choice.embedding, state)
    assert not close(handles[0].output.choices[0].embedding, expected[2])  # the control
    llm.check_integrity()


def test_it_comes_beside_rows_that_decode_and_changes_nothing_for_them(llm: LLM) -> None:
    pairs = [(prompt(33, 3), HOT), (prompt(9, 4), replace(HOT, seed=8))]
    expected = [llm.generate(*pair)[0] for pair in pairs]
    running = [llm.submit(*pair) for pair in pairs]
    while not all(handle.output.token_ids for handle in running):
        llm.step()
    several = replace(ONE, n=2)
    handle = llm._submit(prompt(40, 40), several, "embedding")
    while not all(it.done for it in (*running, handle)):
        llm.step()
    for got, want in zip(running, expected, strict=True):
        assert_same(got.output, want)
    first, second = handle.output.choices
    assert close(first.embedding, np.array(second.embedding))
    assert close(first.embedding, alone(model_of(llm), ids(prompt(40, 40))))
    assert llm.status()["requests"] == []


def test_a_family_whose_head_is_not_apart_says_so() -> None:
    model = load(str(checkpoint_dir("mamba2")))
    with pytest.raises(ModelError, match="hidden states of mamba2 cannot be had"):
        model.forward_with_hidden(mx.array([[1]]), [0], model.make_state())
    with LLM(str(checkpoint_dir("mamba2"))) as llm:
        handle = llm._submit(prompt(9), ONE, "embedding")
        while not handle.done:
            llm.step()
        assert handle.output.finish_reason == "error"
        assert "cannot be had" in (handle.output.error or "")


def test_logits_are_the_same_with_and_without_hidden_states() -> None:
    model = load(str(checkpoint_dir("llama")))
    kind = type(model.network.model)
    tokens = mx.array([[5, 6, 7]])
    logits, hidden = model.forward_with_hidden(tokens, [0], model.make_state())
    assert mx.array_equal(logits, model.forward(tokens, [0], model.make_state()))
    assert hidden.shape[:2] == (1, 3)
    assert type(model.network.model) is kind


class Listener:
    """Sends one request when the engine is ready, and keeps what it says to it."""

    def __init__(self, submits: list[Submit]) -> None:
        self.events: list[Event] = []
        self.accepted: list[str] = []
        self.done = asyncio.Event()
        self._submits = submits
        self.supervisor: Supervisor

    def engine_ready(self) -> None:
        for submit in self._submits:
            self.supervisor.send(submit)

    def engine_lost(self, was_ready: bool) -> None:
        self.done.set()

    def engine_said(self, message: FromEngine) -> None:
        if isinstance(message, Accepted):
            self.accepted.append(message.id)
        elif isinstance(message, Stepped):
            self.events += message.events
            if sum(event.finish_reason is not None for event in self.events) == len(self._submits):
                self.done.set()


def test_it_comes_back_from_the_engine_process() -> None:
    path = str(checkpoint_dir("llama"))
    model = load(path)
    decoding = resolve(HOT, model.defaults, vocab=model.vocab, end_ids=frozenset())
    asked, talk = ids(prompt(40, 40)), ids(prompt(9, 4))
    submits = [
        Submit("talk", talk, {}, decoding, 1),
        Submit("state", asked, {}, decoding, 1, result="embedding"),
    ]

    async def serve() -> Listener:
        listener = Listener(submits)
        listener.supervisor = Supervisor(EngineOptions(path), listener, 60.0)
        running = asyncio.create_task(listener.supervisor.run())
        await asyncio.wait_for(listener.done.wait(), 120)
        await listener.supervisor.close()
        await running
        return listener

    listener = asyncio.run(serve())
    assert listener.accepted == ["talk", "state"]
    [event] = [event for event in listener.events if event.request_id == "state"]
    assert (event.finish_reason, event.error, event.token_ids) == ("stop", None, ())
    assert close(event.embedding, alone(model, asked))
    said = [event for event in listener.events if event.request_id == "talk"]
    assert sum(len(event.token_ids) for event in said) == HOT.max_tokens
    assert not any(event.embedding for event in said)
