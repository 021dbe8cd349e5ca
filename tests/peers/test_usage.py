"""Tokens are counted the same, whole and streamed, in every API (B6, B53)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.depth import one_in
from tests.peers.three_apis import APIS, ask, streamed, text_of
from tests.server.server_process import Server

OPENAI = ("chat", "completions")
LENGTH = {"messages": "max_tokens", "responses": "incomplete"}  # where it is not "length"


def usage_of(api: str, events: list[dict[str, Any]]) -> tuple[int, int]:
    """Of the prompt and of the reply, as a stream tells them last."""
    if api == "messages":
        begun = events[0]["message"]["usage"]
        ended = next(event["usage"] for event in events if event["type"] == "message_delta")
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return sum(begun[name] for name in names), ended["output_tokens"]
    if api == "responses":
        usage = events[-1]["response"]["usage"]
        return usage["input_tokens"], usage["output_tokens"]
    usage = events[-1]["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_a_reply_at_its_limit_has_so_many_tokens(api: str, server: Server) -> None:
    reply = ask(server, api, tokens=5, ignore_eos=True)
    assert (reply.completion, reply.end) == (5, LENGTH.get(api, "length"))
    assert reply.prompt > 0


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_a_stream_counts_and_says_what_a_whole_reply_does(api: str, server: Server) -> None:
    more = {"stream_options": {"include_usage": True}} if api in OPENAI else {}
    whole = ask(server, api, temperature=0)
    events = streamed(server, api, temperature=0, **more)
    assert usage_of(api, events) == (whole.prompt, whole.completion)
    assert "".join(text_of(api, event) for event in events) == whole.text


@pytest.mark.parametrize("api", one_in(2, [api for api in APIS if api != "messages"]))
def test_the_total_is_the_sum(api: str, server: Server) -> None:
    reply = ask(server, api)
    assert reply.whole["usage"]["total_tokens"] == reply.prompt + reply.completion


@pytest.mark.parametrize("api", OPENAI)
def test_usage_comes_alone_behind_all_choices(api: str, server: Server) -> None:
    *chunks, last = streamed(server, api, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert all(chunk["choices"] and not chunk.get("usage") for chunk in chunks)


@pytest.mark.parametrize("api", OPENAI)
def test_no_usage_is_streamed_unless_it_is_asked_for(api: str, server: Server) -> None:
    assert not any(chunk.get("usage") for chunk in streamed(server, api))


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_what_was_reused_is_told_and_still_counted(api: str, server: Server) -> None:
    """A prompt that comes again has the same tokens, of which most were computed before."""
    text = f"The {api} of a long summer by the sea. " * 8
    first, second = ask(server, api, text), ask(server, api, text)
    assert first.prompt == second.prompt
    usage = second.whole["usage"]
    if api == "messages":
        cached = usage["cache_read_input_tokens"]
    elif api == "responses":
        cached = usage["input_tokens_details"]["cached_tokens"]
    else:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert second.prompt // 2 < cached < second.prompt
