"""n, stop, echo and seed, as clients of other servers use them (B3, B4, B26)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.depth import often, one_in
from tests.peers.three_apis import APIS, STORY, ask, body_of, post, streamed, text_of
from tests.server.server_process import Server

OPENAI = ("chat", "completions")
HOT: dict[str, Any] = {"temperature": 2, "ignore_eos": True}


# -- n -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", often([1, 2, 4], 4))
@pytest.mark.parametrize("api", OPENAI)
def test_there_are_as_many_choices_as_were_asked_for(api: str, n: int, server: Server) -> None:
    body = body_of(api, tokens=24, n=n, seed=1, **HOT)
    reply = post(server, api, body).raise_for_status().json()
    assert [choice["index"] for choice in reply["choices"]] == list(range(n))
    assert reply["usage"]["completion_tokens"] == 24 * n
    texts = {str(choice.get("text") or choice.get("message")) for choice in reply["choices"]}
    assert len(texts) == n


@pytest.mark.parametrize("api", OPENAI)
def test_every_choice_of_a_stream_ends_once(api: str, server: Server) -> None:
    events = streamed(server, api, tokens=4, n=3, **HOT)
    choices = [choice for event in events for choice in event["choices"]]
    ended = [choice["index"] for choice in choices if choice["finish_reason"]]
    assert sorted(ended) == [0, 1, 2]


@pytest.mark.parametrize("n", [0, -1, 129, 1.5, "two"])
@pytest.mark.parametrize("api", OPENAI)
def test_an_impossible_number_of_choices_is_refused(api: str, n: Any, server: Server) -> None:
    reply = post(server, api, body_of(api, n=n))
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "n")


# -- stop --------------------------------------------------------------------------------------

STOPS = {"messages": "stop_sequences"}


def stop_field(api: str, *stops: str) -> dict[str, Any]:
    return {STOPS.get(api, "stop"): list(stops), "temperature": 0, "tokens": 40}


@pytest.mark.parametrize("api", often(["chat", "completions", "messages"], "chat"))
def test_a_reply_ends_before_its_stop(api: str, server: Server) -> None:
    whole = ask(server, api, temperature=0, tokens=40).text
    stop = whole[len(whole) // 2 :][:3]
    reply = ask(server, api, **stop_field(api, "never said", stop))
    assert reply.text == whole[: whole.index(stop)]
    if api == "messages":
        assert (reply.end, reply.whole["stop_sequence"]) == ("stop_sequence", stop)
    else:
        assert reply.end == "stop"


@pytest.mark.parametrize("api", often(["chat", "completions", "messages"], "messages"))
def test_no_part_of_a_stop_is_streamed(api: str, server: Server) -> None:
    whole = ask(server, api, temperature=0, tokens=40).text
    stop = whole[len(whole) // 2 :][:4]
    events = streamed(server, api, **stop_field(api, stop))
    assert "".join(text_of(api, event) for event in events) == whole[: whole.index(stop)]


@pytest.mark.parametrize("api", ["chat", "completions", "messages"])
@pytest.mark.parametrize("stops", [["a"] * 65, [""], [5]], ids=["many", "empty", "number"])
def test_stops_that_cannot_be_are_refused(api: str, stops: list[Any], server: Server) -> None:
    reply = post(server, api, body_of(api, **{STOPS.get(api, "stop"): stops}))
    assert reply.status_code == 400
    assert "stop" in reply.text


# -- echo --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", one_in(2, [False, True]))
def test_an_echo_begins_with_the_prompt(stream: bool, server: Server) -> None:
    plain = ask(server, "completions", temperature=0).text
    if stream:
        events = streamed(server, "completions", temperature=0, echo=True)
        text = "".join(text_of("completions", event) for event in events)
    else:
        text = ask(server, "completions", temperature=0, echo=True).text
    assert text == STORY + plain


def test_an_echo_alone_is_the_prompt(server: Server) -> None:
    reply = ask(server, "completions", echo=True, tokens=0)
    assert (reply.text, reply.completion) == (STORY, 0)


def test_an_echo_has_the_probabilities_of_the_prompt(server: Server) -> None:
    """Of all its tokens but the first, which nothing stands before."""
    reply = ask(server, "completions", echo=True, logprobs=1, tokens=0)
    found = reply.whole["choices"][0]["logprobs"]
    assert found["token_logprobs"][0] is None
    assert len(found["token_logprobs"]) == reply.prompt
    assert all(number <= 0 for number in found["token_logprobs"][1:])


def test_an_echo_of_ids_is_their_text(server: Server) -> None:
    ids = server.http.post("/tokenize", json={"prompt": STORY}).json()["tokens"]
    reply = post(server, "completions", body_of("completions", ids, echo=True, tokens=0))  # type: ignore[arg-type]
    assert reply.json()["choices"][0]["text"] == STORY


def test_without_an_echo_no_tokens_are_no_text(server: Server) -> None:
    reply = ask(server, "completions", tokens=0)
    assert (reply.text, reply.completion) == ("", 0)


# -- seed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", often(["chat", "completions", "messages"], "chat"))
def test_a_seed_decides_a_hot_reply(api: str, server: Server) -> None:
    said = [ask(server, api, seed=seed, **HOT).text for seed in (5, 5, 6)]
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize("api", one_in(4, APIS))
def test_without_heat_no_seed_matters(api: str, server: Server) -> None:
    assert ask(server, api, temperature=0).text == ask(server, api, temperature=0).text


@pytest.mark.parametrize("seed", ["one", 0.5])
@pytest.mark.parametrize("api", OPENAI)
def test_a_seed_that_is_none_is_refused(api: str, seed: Any, server: Server) -> None:
    reply = post(server, api, body_of(api, seed=seed))
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "seed")
