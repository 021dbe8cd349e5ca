"""What a client of the chat and completions APIs reads, byte by byte where it matters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bushel.core import TokenLogprob
from bushel.server.service.ticket import Drafts

from .scripted_service import Service, Vocabulary, chat, complete, events, failing, playing, said

WORDS = playing([said("Good ")], [said("day")], [said("!", finish="stop")])
ID = "0" * 31 + "1"


def contents(chunks: list[Any], choice: int = 0) -> list[str]:
    found = [
        chunk["choices"][0] for chunk in chunks if isinstance(chunk, dict) and chunk.get("choices")
    ]
    return [
        it["delta"]["content"] for it in found if it["index"] == choice and "content" in it["delta"]
    ]


def finishes(chunks: list[Any]) -> list[tuple[int, str]]:
    found = [
        chunk["choices"][0] for chunk in chunks if isinstance(chunk, dict) and chunk.get("choices")
    ]
    return [(it["index"], it["finish_reason"]) for it in found if it["finish_reason"]]


# No text and no token that the request named ended it.
UNSTOPPED = {"stop_reason": None, "matched_stop": None}


# -- chat -------------------------------------------------------------------------------------


def test_a_chat_stream_is_exactly_role_deltas_one_finish_and_done() -> None:
    reply = chat(Service(WORDS), stream=True)
    head = {
        "id": f"chatcmpl-{ID}",
        "created": 1_700_000_000,
        "model": "test/model",
        "object": "chat.completion.chunk",
    }

    def chunk(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice | (UNSTOPPED if finish else {})]}

    assert events(reply.text) == [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Good "}),
        chunk({"content": "day"}),
        chunk({"content": "!"}),
        chunk({}, "stop"),
        "data: [DONE]",
    ]
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-request-id"] == ID


def test_a_whole_chat_reply_is_the_fold_of_the_stream() -> None:
    whole = chat(Service(WORDS, cached=3)).json()
    streamed = events(chat(Service(WORDS), stream=True).text)
    assert whole == {
        "id": f"chatcmpl-{ID}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "test/model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Good day!", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                **UNSTOPPED,
            }
        ],
        "usage": {
            "prompt_tokens": 8,
            "completion_tokens": 9,
            "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
                "reasoning_tokens": 0,
            },
        },
    }
    assert "".join(contents(streamed)) == whole["choices"][0]["message"]["content"]


def test_text_of_any_script_arrives_unharmed() -> None:
    """Emoji, quotes, newlines and control characters, streamed and whole. B20."""
    text = 'Ä🍎 "quoted"\n\\ data: [DONE]\u2028\x00'
    service = Service(playing([said(text, finish="length")]))
    assert chat(service).json()["choices"][0]["message"]["content"] == text
    streamed = events(chat(Service(service.script), stream=True).text)
    assert "".join(contents(streamed)) == text


def test_usage_comes_last_and_only_when_asked_for() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = events(chat(Service(WORDS, cached=2), **options).text)
    assert done == "data: [DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 9
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    without = events(chat(Service(WORDS), stream=True).text)
    assert not any("usage" in chunk for chunk in without[:-1])


def test_usage_tells_what_was_guessed_ahead() -> None:
    service = Service(WORDS, drafts=Drafts(5, 2))
    details = chat(service).json()["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == 5
    assert details["rejected_prediction_tokens"] == 2
    both = complete(Service(WORDS, drafts=Drafts(5, 2)), prompt=["a", "b"]).json()["usage"]
    assert both["completion_tokens_details"]["accepted_prediction_tokens"] == 10


def test_running_usage_counts_up_with_the_text() -> None:
    options = {"stream": True, "stream_options": {"continuous_usage_stats": True}}
    chunks = events(chat(Service(WORDS), **options).text)[:-1]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [0, 5, 8, 9, 9]


def test_three_choices_interleave_and_each_ends_once() -> None:
    steps = playing(
        [said("a", 0), said("x", 2)],
        [said("b", 0, "stop"), said("p", 1)],
        [said("q", 1), said("y", 2, "length")],
        [said("", 1, "stop", tokens=1)],
    )
    chunks = events(chat(Service(steps), stream=True, n=3).text)
    assert [contents(chunks, at) for at in range(3)] == [
        ["", "a", "b"],
        ["", "p", "q"],
        ["", "x", "y"],
    ]
    assert finishes(chunks) == [(0, "stop"), (2, "length"), (1, "stop")]
    whole = chat(Service(steps), n=3).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["ab", "pq", "xy"]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "stop", "length"]
    assert whole["usage"]["completion_tokens"] == 7


def test_held_back_tokens_send_no_chunk() -> None:
    """What may begin a stop string is not shown yet. B22."""
    steps = playing([said("", tokens=2)], [said("ok", finish="stop")])
    chunks = events(chat(Service(steps), stream=True).text)
    assert contents(chunks) == ["", "ok"]


def test_an_error_before_the_stream_is_a_plain_answer() -> None:
    reply = chat(Service(lambda job: failing(503, "engine_restarted")), stream=True)
    assert reply.status_code == 503
    assert reply.json()["error"] == {
        "message": "It went wrong.",
        "type": "server_error",
        "param": None,
        "code": "engine_restarted",
    }


@pytest.mark.parametrize("api", [chat, complete])
def test_an_error_in_the_stream_is_an_event_and_no_success(api: Any) -> None:
    """The last event is the error; no finish reason and no [DONE] comes. B48a."""
    steps = playing([said("Good ")], failing(503, "engine_restarted"))
    reply = api(Service(steps), stream=True)
    *_, before, last = events(reply.text)
    assert before["choices"][0]["finish_reason"] is None
    assert last["error"]["code"] == "engine_restarted"
    assert "[DONE]" not in reply.text
    assert finishes(events(reply.text)[:-1]) == []


@pytest.mark.parametrize("api", [chat, complete])
def test_an_error_in_a_whole_reply_leaves_nothing_of_it(api: Any) -> None:
    steps = playing([said("Good ")], failing(408, "request_timeout"))
    reply = api(Service(steps))
    assert reply.status_code == 408
    assert "Good" not in reply.text


@pytest.mark.parametrize("stream", [False, True])
def test_an_unexpected_error_tells_the_request_id_and_nothing_else(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    steps = playing([said("Good ")], RuntimeError("secret at /home/me"))
    reply = chat(Service(steps), stream=stream)
    error = events(reply.text)[-1]["error"] if stream else reply.json()["error"]
    assert error["code"] == "internal_error"
    assert error["type"] == "server_error"
    assert reply.headers["x-request-id"] in error["message"]
    assert "secret" not in reply.text
    assert "[DONE]" not in reply.text
    assert "secret at /home/me" in caplog.text


LOGGED = playing(
    [said("h", logprobs=(TokenLogprob(104, -0.5, ((104, -0.5), (105, -1.5))),))],
    [
        said(
            "",
            finish="stop",
            tokens=1,
            logprobs=(TokenLogprob(Vocabulary.HALF, float("-inf"), ((65, -2.0),)),),
        )
    ],
)


def test_chat_logprobs_have_tokens_bytes_and_alternatives() -> None:
    entries = [
        {
            "token": "h",
            "logprob": -0.5,
            "bytes": [104],
            "top_logprobs": [
                {"token": "h", "logprob": -0.5, "bytes": [104]},
                {"token": "i", "logprob": -1.5, "bytes": [105]},
            ],
        },
        {
            "token": "\ufffd",
            "logprob": -9999.0,
            "bytes": [0xF0, 0x9F],
            "top_logprobs": [{"token": "A", "logprob": -2.0, "bytes": [65]}],
        },
    ]
    service = Service(LOGGED)
    whole = chat(service, logprobs=True, top_logprobs=2).json()
    assert whole["choices"][0]["logprobs"] == {"content": entries, "refusal": None}
    assert service.jobs[0].params.logprobs == 2
    streamed = events(chat(Service(LOGGED), logprobs=True, top_logprobs=2, stream=True).text)
    found = [
        entry
        for chunk in streamed[:-1]
        for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert found == entries


# -- completions --------------------------------------------------------------------------------


def test_a_completion_stream_is_exactly_texts_one_finish_and_done() -> None:
    reply = complete(Service(WORDS), stream=True, stream_options={"include_usage": True})
    *chunks, usage, done = events(reply.text)
    assert [chunk["choices"][0] for chunk in chunks] == [
        {"index": 0, "text": "Good ", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "day", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "!", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop", **UNSTOPPED},
    ]
    assert {it["object"] for it in [*chunks, usage]} == {"text_completion"}
    assert {it["id"] for it in [*chunks, usage]} == {f"cmpl-{ID}"}
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 11
    assert done == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_many_prompts_are_answered_in_their_order(stream: bool) -> None:
    service = Service(
        lambda job: [
            [said(f"{job.request['prompt']}{at}", at) for at in range(2)],
            [said("", at, "stop", tokens=1) for at in (1, 0)],
        ]
    )
    reply = complete(service, prompt=["a", "bb", "ccc"], n=2, stream=stream)
    texts: dict[int, str] = {}
    if stream:
        chunks = events(reply.text)[:-1]
        for choice in (chunk["choices"][0] for chunk in chunks):
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
        assert sorted(finishes(chunks)) == [(at, "stop") for at in range(6)]
    else:
        assert [it["index"] for it in reply.json()["choices"]] == list(range(6))
        texts = {it["index"]: it["text"] for it in reply.json()["choices"]}
        assert reply.json()["usage"]["prompt_tokens"] == 6
        assert reply.json()["usage"]["completion_tokens"] == 24
    assert texts == {0: "a0", 1: "a1", 2: "bb0", 3: "bb1", 4: "ccc0", 5: "ccc1"}
    assert {ticket.left for ticket in service.tickets} == {"done"}


@pytest.mark.parametrize("stream", [False, True])
def test_one_lost_prompt_loses_the_request_and_ends_the_others(stream: bool) -> None:
    def script(job: Any) -> Any:
        if job.request["prompt"] == "bad":
            return [[said("x")], failing(503, "engine_restarted")]
        return [[said("y")] for _ in range(10_000)]

    service = Service(script)
    reply = complete(service, prompt=["good", "bad", "fine"], stream=stream)
    error = (events(reply.text)[-1] if stream else reply.json())["error"]
    assert error["code"] == "engine_restarted"
    assert reply.status_code == (200 if stream else 503)
    assert [ticket.left for ticket in service.tickets if ticket.left is None] == []


def test_a_prompt_that_is_refused_opens_none() -> None:
    service = Service(
        lambda job: (
            failing(400, "context_length_exceeded")
            if job.request["prompt"] == "bad"
            else [[said("x", finish="stop")]]
        )
    )
    reply = complete(service, prompt=["good", "bad"], stream=True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert all(ticket.left for ticket in service.tickets)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", [{"prompt": "ab"}]),
        (["ab", ""], [{"prompt": "ab"}, {"prompt": ""}]),
        ([97, 98], [{"prompt_token_ids": [97, 98]}]),
        ([[97], [98, 99]], [{"prompt_token_ids": [97]}, {"prompt_token_ids": [98, 99]}]),
    ],
)
def test_every_form_of_prompt_is_taken(prompt: Any, expected: Any) -> None:
    service = Service()
    assert complete(service, prompt=prompt).status_code == 200
    assert [job.request for job in service.jobs] == expected


def scored(text: str, start: int = 0) -> tuple[TokenLogprob | None, ...]:
    """Log-probabilities of a prompt; the first token has none."""
    found = [
        TokenLogprob(ord(it), -1.0 - at, ((ord(it), -1.0 - at), (90, -9.0)))
        for at, it in enumerate(text)
    ]
    return (None, *found[1:])


def test_an_echo_with_logprobs_scores_the_prompt_as_evaluations_need_it() -> None:
    """The request of lm-eval's loglikelihood: token ids, echo, one token more."""
    service = Service(
        lambda job: [
            [said("", prompt_logprobs=scored("".join(map(chr, job.request["prompt_token_ids"]))))],
            [said("z", finish="length", logprobs=(TokenLogprob(122, -0.25, ((122, -0.25),)),))],
        ]
    )
    reply = complete(service, prompt=[[97, 98], [99]], echo=True, logprobs=2, max_tokens=1)
    first, second = reply.json()["choices"]
    assert (first["text"], second["text"]) == ("abz", "cz")
    assert first["logprobs"] == {
        "tokens": ["a", "b", "z"],
        "token_logprobs": [None, -2.0, -0.25],
        "top_logprobs": [None, {"b": -2.0, "Z": -9.0}, {"z": -0.25}],
        "text_offset": [0, 1, 2],
    }
    assert second["logprobs"]["token_logprobs"] == [None, -0.25]
    assert {job.params.prompt_logprobs for job in service.jobs} == {2}


def test_an_echo_of_nothing_but_the_prompt() -> None:
    """`max_tokens` 0: the engine makes a token all the same, and the client does not see it."""
    service = Service(
        playing(
            [said("", prompt_logprobs=scored("ab"))],
            [said("z", finish="stop", logprobs=(TokenLogprob(122, -0.25),))],
        )
    )
    body = {"echo": True, "logprobs": 0, "max_tokens": 0}
    reply = complete(service, **body).json()
    assert reply["choices"][0]["text"] == "ab"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["choices"][0]["logprobs"]["tokens"] == ["a", "b"]
    assert reply["usage"]["completion_tokens"] == 0
    assert service.jobs[0].params.max_tokens == 1
    streamed = events(complete(Service(service.script), **body, stream=True).text)
    assert "".join(it["choices"][0]["text"] for it in streamed[:-1]) == "ab"


def test_tokens_that_are_half_a_character_stay_apart_in_completion_logprobs() -> None:
    service = Service(LOGGED)
    found = complete(service, logprobs=2).json()["choices"][0]["logprobs"]
    assert found["tokens"] == ["h", "bytes:\\xf0\\x9f"]
    assert found["top_logprobs"][1] == {"A": -2.0, "bytes:\\xf0\\x9f": -9999.0}


def test_replies_are_json_without_infinities() -> None:
    text = chat(Service(LOGGED), logprobs=True).text
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
