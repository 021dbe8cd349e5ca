"""A client that reads late, or asks for much at once: everyone else's stream goes on."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bushel.core import Event, GenerationDefaults, SamplingParams, TokenLogprob
from bushel.core.params import resolve
from bushel.core.wire import Submit
from bushel.server.observability.request_record import Record
from bushel.server.options import Limits
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket
from bushel.server.service.ticket import SLICE_TOKENS, Live, Ticket
from tests.server.hostile_requests import CHAT
from tests.server.scripted_service import Service, ask, options, said
from tests.server.server_process import PATIENCE, Server, until
from tests.server.test_hostile_loop import CPU, away

CHOICES, TOKENS, LIKELY = 16, 400, 20
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story."}],
    **{"n": CHOICES, "max_tokens": TOKENS, "ignore_eos": True},
    **{"logprobs": True, "top_logprobs": LIKELY},
}


def late_read(server: Server, body: dict[str, Any]) -> bytes:
    """All of a reply of which next to nothing was read until it was complete: as much as it takes
    not to be given up meanwhile.
    """
    content = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head.encode() + content)
        until(lambda: server.status()["running"], "it runs")
        got = bytearray()
        while server.status()["running"]:
            time.sleep(0.5)
            got += connection.recv(4096)
        while data := connection.recv(1 << 20):
            got += data
    return bytes(got)


@pytest.mark.long
def test_large_replies_read_late_or_in_one_piece_keep_nobody_waiting(stalled: Server) -> None:
    """Nothing of what a slow reader left is lost either. B67."""
    few = CHOICES // 4  # in one piece they never took the loop for long
    with ThreadPoolExecutor() as threads:
        whole = threads.submit(stalled.http.post, CHAT, json={**ASKED, "n": few})
        got = late_read(stalled, {**ASKED, "stream": True})
    assert b"data: [DONE]" in got
    assert got.count(b'"top_logprobs"') == CHOICES * TOKENS
    choices = whole.result().json()["choices"]
    assert [len(choice["logprobs"]["content"]) for choice in choices] == [TOKENS] * few
    assert len(choices[0]["logprobs"]["content"][0]["top_logprobs"]) == LIKELY
    assert away(stalled)[0] < CPU


@pytest.mark.long
def test_the_log_probabilities_of_a_long_prompt_keep_nobody_waiting(stalled: Server) -> None:
    """They come in slices, and add up to all of the prompt."""
    prompt = [at % 200 for at in range(2000)]
    asked = {"prompt": prompt, "echo": True, "logprobs": LIKELY, "max_tokens": 1}
    reply = stalled.http.post("/v1/completions", json=asked).json()
    found = reply["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["text_offset"]) == len(prompt) + 1
    assert found["token_logprobs"][0] is None
    assert all(logprob is not None for logprob in found["token_logprobs"][1:])
    assert away(stalled)[0] < CPU


# -- bounds of a reply -------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
def test_a_reply_of_too_many_log_probabilities_is_refused_by_name(path: str) -> None:
    found = TokenLogprob(65, -1.0, tuple((at, -1.0) for at in range(LIKELY)))
    events = [said("A", logprobs=(found,)) for _ in range(20)] + [said(finish="stop")]
    asked = {
        CHAT: {**ASKED, "n": 1},
        "/v1/completions": {"prompt": "x", "logprobs": LIKELY},
        "/v1/responses": {"input": "x", "top_logprobs": LIKELY},
    }[path]
    codes = []
    for most in (4000, 1 << 20):
        limits = replace(Limits(), reply_bytes=most)
        service = Service(script=lambda _: [events], options=options(limits=limits))
        reply = ask(service, "POST", path, json=asked)
        codes.append((reply.json().get("error") or {}).get("code", reply.status_code))
    assert codes == ["reply_too_large", 200]


# -- one request's events ----------------------------------------------------------------------


def live(choices: int = 1, wake: Callable[[], None] = lambda: None) -> Live:
    record = Record("r", "chat", "org/model", True, choices, 0.0)
    decoding = resolve(SamplingParams(), GenerationDefaults(), vocab=9999, end_ids=frozenset())
    submit = Submit("r", (1,), {}, decoding, choices)
    return Live(record, submit, memoryview(b""), wake)


JOB = GenerationJob({}, SamplingParams(), "org/model", "chat", 1)


def opened(*tickets: Ticket) -> Any:
    """A service that gives these, in turn."""
    coming = iter(tickets)

    async def open(job: GenerationJob, wake: Callable[[], None]) -> Ticket:
        return next(coming)

    return SimpleNamespace(open=open)


def event(token: int, likely: int = 0) -> Event:
    top = tuple((at, -1.0) for at in range(likely))
    return Event("r", 0, (token,), logprobs=(TokenLogprob(token, -1.0, top),) if likely else ())


def test_a_backlog_is_taken_in_slices_between_which_others_run() -> None:
    async def work() -> tuple[list[int], int]:
        request, turns = live(), 0
        for token in range(10 * SLICE_TOKENS):
            request.take(event(token, 1), 0.0)
        request.take(Event("r", 0, finish_reason="stop"), 0.0)

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        ticket = Ticket(request, lambda ids: "x" * len(ids), lambda _: None)
        async with MultiTicket(opened(ticket), [JOB]) as stream:
            got: list[Event] = []
            await stream.deliver(got.extend)
        beside.cancel()
        assert max(len(it.token_ids) for it in got) <= SLICE_TOKENS
        assert got[-1].finish_reason == "stop"
        assert [logprob.token_id for one in got for logprob in one.logprobs] == list(
            range(10 * SLICE_TOKENS)
        )
        return [token for it in got for token in it.token_ids], turns

    tokens, turns = asyncio.run(work())
    assert tokens == list(range(10 * SLICE_TOKENS))
    assert turns >= 9


def test_a_reader_who_is_too_far_behind_is_cut_off_and_one_who_reads_is_not() -> None:
    async def work() -> tuple[int, int]:
        slow, quick, count = live(), live(), 0
        one = event(1, LIKELY)
        while not slow.overrun:
            slow.take(one, 0.0)
            quick.take(one, 0.0)
            quick.some(SLICE_TOKENS)
            count += 1
        assert not quick.overrun
        return count, len(slow.events)

    count, kept = asyncio.run(work())
    assert count == kept
    assert 10_000 < count < 50_000
