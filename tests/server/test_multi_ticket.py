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
from bushel.server.service.ticket import SLICE_TOKENS, Drafts, Live, Ticket
from tests.server.test_slow_readers import live

Work = Callable[[list[Live], MultiTicket], Coroutine[Any, Any, None]]


class Opening:
    """A service whose requests the test plays the engine for."""

    def __init__(self) -> None:
        self.requests: list[Live] = []
        self.left: list[Live] = []

    async def open(self, job: GenerationJob, wake: Callable[[], None]) -> Ticket:
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
    request.wake()


def test_what_was_guessed_ahead_is_added_up_over_prompts_and_folded_events() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        for request in requests:
            request.take(Event("r", 0, (1, 2, 3), drafted=4, accepted=2), 0.0)
            request.take(Event("r", 0, (1,)), 0.0)
            request.take(Event("r", 0, (1, 2), finish_reason="stop", drafted=1, accepted=1), 0.0)
        events: list[Event] = []
        await stream.deliver(events.extend)
        assert [(event.drafted, event.accepted) for event in events] == [(5, 3), (5, 3)]
        assert stream.drafts == Drafts(accepted=6, rejected=4)

    streaming(work, prompts=2)


def test_choices_are_numbered_prompt_by_prompt_and_all_end() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        for request in requests:
            for choice in range(2):
                token(request, choice, "stop")
        events: list[Event] = []
        await stream.deliver(events.extend)
        assert sorted(event.choice for event in events) == list(range(6))

    streaming(work, prompts=3, n=2)


def test_one_prompt_with_much_to_tell_does_not_hold_back_the_others() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        loud, quiet = requests
        for _ in range(10 * SLICE_TOKENS):
            token(loud)
        token(quiet)
        batches: list[list[Event]] = []
        delivering = asyncio.create_task(stream.deliver(batches.append))
        while len(batches) < 2:
            await asyncio.sleep(0)
        delivering.cancel()
        assert {event.choice for batch in batches[:2] for event in batch} == {0, 1}
        assert all(sum(len(it.token_ids) for it in batch) <= SLICE_TOKENS for batch in batches)

    streaming(work, prompts=2)


def test_a_result_that_is_no_text_comes_although_other_events_waited_before_it() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        requests[0].take(Event("r", 0, prompt_logprobs=(None,)), 0.0)
        end = Event("r", 0, finish_reason="stop", embedding=(0.5, 1.5))
        requests[0].take(end, 0.0)
        events: list[Event] = []
        await stream.deliver(events.extend)
        [event] = events
        assert (event.prompt_logprobs, event.embedding) == ((None,), (0.5, 1.5))

    streaming(work)


def test_what_happens_while_a_reader_is_held_is_added_up_and_told_at_once() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        batches: list[list[Event]] = []
        delivering = asyncio.create_task(stream.deliver(batches.append))
        for _ in range(3):  # control: a reader who is not held gets each by itself
            token(requests[0])
            await asyncio.sleep(0.001)
        assert [len(event.token_ids) for [event] in batches] == [1, 1, 1]
        stream.hold()
        for _ in range(5):
            token(requests[0])
            await asyncio.sleep(0.001)
        assert len(batches) == 3
        assert len(requests[0].events) == 5  # nobody took them ahead of the reader
        token(requests[0], finish="stop")
        stream.release()
        await delivering
        [event] = batches[3]
        assert (len(event.token_ids), event.finish_reason) == (6, "stop")

    streaming(work)


def test_waiting_that_is_cancelled_loses_nothing() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        events: list[Event] = []
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.deliver(events.extend), 0.01)
        token(requests[1], finish="stop")
        await asyncio.sleep(0.01)
        assert not events  # nobody listens
        token(requests[0], finish="stop")
        await stream.deliver(events.extend)
        assert sorted((event.choice, event.finish_reason) for event in events) == [
            (0, "stop"),
            (1, "stop"),
        ]

    streaming(work, prompts=2)


def test_a_lost_prompt_loses_all_after_what_was_said_before() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        for request in requests:
            token(request)
        requests[1].fail(cancelled())
        batches: list[list[Event]] = []
        with pytest.raises(ApiError):
            await stream.deliver(batches.append)
        assert {event.choice for event in batches[0]} == {0, 1}

    streaming(work, prompts=2)


def test_a_reader_that_raises_ends_its_own_stream_alone() -> None:
    async def work(requests: list[Live], stream: MultiTicket) -> None:
        def read(batch: list[Event]) -> None:
            raise ZeroDivisionError

        delivering = asyncio.create_task(stream.deliver(read))
        token(requests[0])  # whoever brings events is not told
        with pytest.raises(ZeroDivisionError):
            await delivering

    streaming(work)


class ClientBody:
    """What a client got, of whom the test says whether it reads."""

    def __init__(self, paused: bool) -> None:
        self.bodies: list[bytes] = []
        self.paused = paused

    def write(self, payload: bytes) -> None:
        self.bodies.append(payload)

    def follow(self, source: sse.Held | None) -> None:
        return


@pytest.mark.parametrize(
    ("seconds", "paused", "kept_alive"),
    [(0.02, False, True), (20.0, False, False), (0.02, True, False)],
)
def test_silence_brings_keepalives_to_who_reads_and_no_batch_twice(
    seconds: float, paused: bool, kept_alive: bool
) -> None:
    def write(batch: list[Event]) -> bytes:
        return b"".join(b"T" * len(event.token_ids) for event in batch)

    async def work(requests: list[Live], stream: MultiTicket) -> None:
        sent = ClientBody(paused)
        scope = {"extensions": {sse.BODY: sent}}
        task = asyncio.create_task(sse.relay(scope, stream, write, seconds))
        token(requests[0])
        await asyncio.sleep(0.2)
        token(requests[0], finish="stop")
        await task
        assert (sse.KEEPALIVE in sent.bodies) == kept_alive
        assert [body for body in sent.bodies if body != sse.KEEPALIVE] == [b"T", b"T"]

    streaming(work)
