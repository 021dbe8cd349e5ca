"""Log-probabilities in the forms that clients read (B4)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.peers.three_apis import ask, body_of, post, streamed
from tests.server.server_process import Server


def chat_logprobs(server: Server, top: int, **fields: Any) -> list[dict[str, Any]]:
    reply = ask(server, "chat", logprobs=True, top_logprobs=top, temperature=0, **fields)
    content: list[dict[str, Any]] = reply.whole["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in content).strip() == reply.text.strip()
    return content


@pytest.mark.parametrize("top", [0, 1, 5, 20])
def test_a_chat_has_as_many_likely_tokens_as_were_asked_for(top: int, server: Server) -> None:
    for token in chat_logprobs(server, top, tokens=4, ignore_eos=True):
        assert len(token["top_logprobs"]) == top
        likely = [other["logprob"] for other in token["top_logprobs"]]
        assert likely == sorted(likely, reverse=True)
        assert token["logprob"] <= 0
        if top:  # the likeliest is taken
            assert token["logprob"] == pytest.approx(likely[0])


def test_tokens_have_their_bytes(server: Server) -> None:
    for token in chat_logprobs(server, 1, tokens=6):
        assert bytes(token["bytes"]).decode(errors="replace") == token["token"]


@pytest.mark.parametrize("top", [0, 1, 5])
def test_a_completion_has_lists_of_one_length(top: int, server: Server) -> None:
    reply = ask(server, "completions", "Once upon", logprobs=top, temperature=0, tokens=6)
    found = reply.whole["choices"][0]["logprobs"]
    count = reply.completion
    assert {len(found[name]) for name in ("tokens", "token_logprobs", "text_offset")} <= {
        count,
        count - 1,  # without the token that ends it
    }
    assert found["text_offset"] == sorted(found["text_offset"])
    if top:
        assert all(top <= len(likely) <= top + 1 for likely in found["top_logprobs"])


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_stream_has_the_same(api: str, server: Server) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if api == "chat" else {}
    fields = {**(fields or {"logprobs": 2}), "temperature": 0, "tokens": 6, "ignore_eos": True}
    name = "content" if api == "chat" else "token_logprobs"
    whole = ask(server, api, **fields).whole["choices"][0]["logprobs"][name]
    chunks = [event["choices"][0] for event in streamed(server, api, **fields)]
    told = [chunk["logprobs"][name] for chunk in chunks if chunk.get("logprobs")]
    flat = [token for each in told for token in each]
    numbers = [token["logprob"] for token in flat] if api == "chat" else flat
    expected = [token["logprob"] for token in whole] if api == "chat" else whole
    assert numbers == pytest.approx(expected, abs=1e-4)


def test_responses_have_them_where_they_are_included(server: Server) -> None:
    reply = ask(
        server,
        "responses",
        include=["message.output_text.logprobs"],
        top_logprobs=3,
        temperature=0,
        tokens=6,
    )
    [part] = reply.whole["output"][0]["content"]
    assert part["logprobs"]
    assert all(len(token["top_logprobs"]) == 3 for token in part["logprobs"])
    plain = ask(server, "responses", temperature=0, tokens=6)
    assert not plain.whole["output"][0]["content"][0].get("logprobs")


def test_probabilities_are_of_the_whole_vocabulary(server: Server) -> None:
    """What is likely adds up to one at the most."""
    for token in chat_logprobs(server, 20, tokens=3):
        assert 0 < sum(math.exp(other["logprob"]) for other in token["top_logprobs"]) < 1.001


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("chat", {"top_logprobs": 2}),  # without logprobs
        ("chat", {"logprobs": True, "top_logprobs": -1}),
        ("chat", {"logprobs": True, "top_logprobs": 1000}),
        ("completions", {"logprobs": -1}),
        ("completions", {"logprobs": 1000}),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(
    api: str, fields: dict[str, Any], server: Server
) -> None:
    reply = post(server, api, body_of(api, **fields))
    assert reply.status_code == 400
    assert "logprobs" in reply.json()["error"]["param"]
