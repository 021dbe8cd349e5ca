"""Controls: the campaign notices what is wrong, in each form that a reply can have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.siege.clients import Asker
from tests.siege.exchange import _STREAMED, Broken, Choice, Choices, Refusal, _event, refusal
from tests.siege.processes import Held, left_over
from tests.siege.questions import Question, difference, questions
from tests.siege.tally import Tally

RIGHT: Choices = {0: Choice("An apple.", "stop", [("eat", "{}")], [-0.5, -1.0])}
QUESTION = Question("apples", "chat", {})


def other(**changed: Any) -> Choices:
    return {0: Choice(**{**vars(RIGHT[0]), **changed})}


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "A pear."},
        {"finish": "length"},
        {"calls": []},
        {"logprobs": [-0.5]},
        {"logprobs": [-0.5, -1.001]},
    ],
)
def test_a_reply_that_differs_is_noticed(changed: dict[str, Any]) -> None:
    assert difference(RIGHT, other()) is None
    assert difference(RIGHT, other(**changed)) is not None
    assert difference(RIGHT, {**RIGHT, 1: RIGHT[0]}) is not None


def streams() -> Iterator[tuple[str, list[str]]]:
    chat = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield "chat", [json.dumps({"choices": [chat]}), json.dumps({"choices": [end]}), "[DONE]"]
    text = {"index": 0, "text": "Hi", "finish_reason": "stop"}
    yield "completions", [json.dumps({"choices": [text]}), "[DONE]"]
    delta = {"type": "content_block_delta", "index": 0, "delta": {"text": "Hi"}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    last = {"type": "message_stop"}
    yield "messages", [json.dumps(delta), json.dumps(stop), json.dumps(last)]
    said = [{"type": "message", "content": [{"text": "Hi"}]}]
    whole = {"status": "completed", "error": None, "output": said}
    yield "responses", [json.dumps({"response": whole})]


def read(api: str, events: list[str]) -> Choices:
    return _STREAMED[api]([_event(f"data: {event}") for event in events])


@pytest.mark.parametrize(("api", "events"), list(streams()))
def test_a_stream_without_its_end_is_no_reply(api: str, events: list[str]) -> None:
    assert read(api, events)[0].text == "Hi"
    for cut in (events[:-1], []):
        with pytest.raises(Broken):
            read(api, cut)


def test_an_error_inside_a_stream_is_a_typed_one() -> None:
    error = {"message": "Gone.", "code": "engine_restarted", "type": "server_error"}
    for api, event in (
        ("chat", {"error": error}),
        ("messages", {"type": "error", "error": error}),
        ("responses", {"response": {"status": "failed", "error": error, "output": []}}),
    ):
        with pytest.raises(Refusal) as caught:
            read(api, [json.dumps(event)])
        assert caught.value.code == "engine_restarted"
    assert isinstance(refusal(502, b"Bad gateway"), Broken)


@pytest.mark.parametrize(
    ("failure", "excused"),
    [
        (Refusal(503, "engine_restarted"), True),
        (Refusal(200, "engine_restarted"), True),
        (Refusal(400, "preparation_failed"), False),
        (Refusal(409, "request_cancelled"), False),
        (Refusal(200, "internal_error"), False),
        (Broken("cut"), False),
        (ConnectionRefusedError(), False),
    ],
)
def test_only_what_faults_explain_is_excused(failure: Exception, excused: bool) -> None:
    tally = Tally()

    async def fail() -> None:
        raise failure

    asyncio.run(Asker(0, ("key",), {"apples": RIGHT}, tally)._judge(QUESTION, fail()))
    assert tally.wrong_count == (0 if excused else 1)


def test_what_is_left_over_is_noticed() -> None:
    before = [Held("front", 1, 100_000_000, 17), Held("engine", 2, 300_000_000, 9)]
    before.append(Held("worker", 3, 100_000_000, 7))
    assert left_over(before, before) == []
    more_memory = [Held("front", 1, 161_000_000, 17), *before[1:]]
    assert "MB" in left_over(before, more_memory)[0]
    more_files = [*before[:2], Held("worker", 3, 100_000_000, 8)]
    assert "descriptors" in left_over(before, more_files)[0]
    assert "processes" in left_over(before, before[:2])[0]


def test_every_question_has_a_name_of_its_own_and_every_api_is_asked() -> None:
    names = [question.name for question in questions()]
    assert len(set(names)) == len(names)
    assert {question.api for question in questions()} == {
        "chat",
        "completions",
        "messages",
        "responses",
    }
