"""The one stream between the engine's events and whoever writes them out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bushel.core import Event, SamplingParams
from bushel.server.errors import ApiError, cancelled
from bushel.server.http import sse
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket
from bushel.server.service.ticket import SLICE_TOKENS, Live, Ticket
from tests.server.test_slow_readers import live

Work = Callable[[list[Live], MultiTicket], Coroutine[Any, Any, None]]


class Opening:
    """A service whose requests the test plays the engine for."""

    def __init__(self) -> None:
        self.requests: list[Live] = []
        self.left: list[Live] = []

    async def open(self, job: GenerationJob, wake: asyncio.Event) -> Ticket:
        request = live(job.params.n, wake)
        request.accepted.set_result(None)
        self.requests.append(request)
        return Ticket(request, lambda ids: "x" * len(ids), self.left.append)


def streaming(work: Work, *, prompts: int = 1, n: int = 1) -> None:
    async def run() -> None:
        service: Any = Opening()
        job = GenerationJob({}, SamplingParams(n=n), "org/model", "completions", 1)
        async with MultiTicket(service, [job] * prompts) as stream:
            await asyncio.wait_for(work(service.requests, stream), 20)
        assert set(service.left) == set(service.requests)

    asyncio.run(run())


def token(request: Live, choice: int = 0, finish: Any = None, count: int = 1) -> None:
    request.take(Event("r", choice, (1,) * count, finish_reason=finish), 0.0)


def test_choices_are_numbered_prompt_by_prompt_and_all_end() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        for request in requests:
            for choice in range(2):
                token(request, choice, "stop")
        events = [event async for batch in stream for event in batch]
        assert sorted(event.choice for event in events) == list(range(6))

    streaming(work, prompts=3, n=2)


def test_one_prompt_with_much_to_tell_does_not_hold_back_the_others() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        loud, quiet = requests
        for _ in range(10 * SLICE_TOKENS):
            token(loud)
        token(quiet)
        batches = [await anext(stream) for _ in range(2)]
        assert {event.choice for batch in batches for event in batch} == {0, 1}
        assert all(sum(len(it.token_ids) for it in batch) <= SLICE_TOKENS for batch in batches)

    streaming(work, prompts=2)


def test_a_result_that_is_no_text_comes_although_other_events_waited_before_it() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        requests[0].take(Event("r", 0, prompt_logprobs=(None,)), 0.0)
        end = Event("r", 0, finish_reason="stop", hidden_state=(0.5, 1.5))
        requests[0].take(end, 0.0)
        [event] = [event async for batch in stream for event in batch]
        assert (event.prompt_logprobs, event.hidden_state) == ((None,), (0.5, 1.5))

    streaming(work)


def test_what_nobody_reads_is_added_up_and_told_at_once() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        for _ in range(5):
            token(requests[0])
            await asyncio.sleep(0)
        assert len(requests[0].events) == 5  # nobody took them ahead of the reader
        (event,) = await anext(stream)
        assert len(event.token_ids) == 5

    streaming(work)


def test_waiting_that_is_cancelled_loses_nothing() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        token(requests[1], finish="stop")
        (event,) = await anext(stream)
        assert (event.choice, event.finish_reason) == (1, "stop")

    streaming(work, prompts=2)


def test_a_lost_prompt_loses_all_after_what_was_said_before() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        for request in requests:
            token(request)
        requests[1].fail(cancelled())
        assert {event.choice for event in await anext(stream)} == {0, 1}
        token(requests[0])
        assert {event.choice for event in await anext(stream)} == {0}
        with pytest.raises(ApiError):
            await anext(stream)

    streaming(work, prompts=2)


class Sent:
    """What a client got."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, message: Any) -> None:
        self.bodies.append(message["body"])


@pytest.mark.parametrize(("seconds", "kept_alive"), [(0.02, True), (20.0, False)])
def test_silence_brings_keepalives_and_no_batch_twice(seconds: float, kept_alive: bool) -> None:
    def write(batch: list[Event]) -> bytes:
        return b"".join(b"T" * len(event.token_ids) for event in batch)

    async def work(requests: list[Live], stream: MultiTicket) -> None:
        sent = Sent()
        task = asyncio.create_task(sse.relay(sent, stream, write, seconds))
        token(requests[0])
        await asyncio.sleep(0.2)
        token(requests[0], finish="stop")
        await task
        assert (sse.KEEPALIVE in sent.bodies) == kept_alive
        assert [body for body in sent.bodies if body != sse.KEEPALIVE] == [b"T", b"T"]

    streaming(work)
