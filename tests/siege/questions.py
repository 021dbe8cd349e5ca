"""What well-behaved clients ask, and what each of these gets when nobody else is there."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from PIL import Image

from tests.siege.exchange import Choice, Choices

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
# The model computes in float32; what differs is the company in the batch.
BOUND = 1e-4
_SYSTEM = "You are a farmer's helper. You know apples, pears, ploughs and rivers. " * 8
_TOOL = {
    "name": "weather",
    "description": "The weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
    },
}
_SHAPE = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Question:
    name: str
    api: str
    body: dict[str, Any]

    def payload(self, *, stream: bool, model: str = "siege") -> bytes:
        return json.dumps({**self.body, "model": model, "stream": stream}).encode()

    @property
    def plain(self) -> bool:
        """Whether `LLM` can be asked the same."""
        special = {"tools", "response_format"}
        return self.api in ("chat", "completions") and not special & self.body.keys()


def _picture(colour: str) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _talk(at: int) -> list[dict[str, Any]]:
    """Conversations of some turns that share their beginning, as an agent's do."""
    turns: list[dict[str, Any]] = [{"role": "system", "content": _SYSTEM}]
    for turn in range(1 + at % 3):
        turns.append({"role": "user", "content": f"My {turn}. word is plough{at % 5}."})
        turns.append({"role": "assistant", "content": "I will remember it."})
    return [*turns, {"role": "user", "content": f"What was my word, and what is {at} + 1?"}]


def _samplings() -> list[dict[str, Any]]:
    return [
        {"temperature": 0},
        {"temperature": 0.8, "top_p": 0.9, "seed": 11},
        {"temperature": 1.0, "top_k": 20, "seed": 12, "repetition_penalty": 1.1},
        {"temperature": 0.7, "min_p": 0.05, "seed": 13, "presence_penalty": 0.3},
        {"temperature": 0, "frequency_penalty": 0.5, "stop": ["and", "\n\n"]},
        {"temperature": 0.9, "seed": 14, "n": 2},
    ]


def _chats() -> Iterator[Question]:
    for at, sampling in enumerate(_samplings() * 2):
        limits = {"max_tokens": 12 + 6 * (at % 5), "ignore_eos": at % 4 == 0}
        shown = {"logprobs": True, "top_logprobs": 2} if at % 3 == 0 else {}
        body = {"messages": _talk(at), **limits, **sampling, **shown}
        yield Question(f"talk {at}", "chat", body)
    for colour in ("red", "blue"):
        image = {"type": "image_url", "image_url": {"url": _picture(colour)}}
        content = [image, {"type": "text", "text": "What colour is this?"}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 16}
        yield Question(f"a {colour} picture", "chat", {**body, "temperature": 0})
    ask = [{"role": "user", "content": "What is the weather in Bern?"}]
    body = {"messages": ask, "max_tokens": 48, "temperature": 0}
    tools = {"tools": [{"type": "function", "function": _TOOL}], "tool_choice": "required"}
    yield Question("a call", "chat", {**body, **tools})
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": _SHAPE}}
    yield Question("a shape", "chat", {**body, "response_format": schema})
    yield Question("a long reply", "chat", {**body, "max_tokens": 160, "ignore_eos": True})


def _others() -> Iterator[Question]:
    for at, sampling in enumerate(_samplings()):
        body = {"prompt": f"Once upon a time {at} farmers", "max_tokens": 16, **sampling}
        yield Question(f"text {at}", "completions", {**body, **({"logprobs": 2} if at else {})})
    for at in range(3):
        said = [{"role": "user", "content": f"Tell me of {at + 2} apples."}]
        greedy = {"temperature": 0}
        message = {"messages": said, "max_tokens": 20, **greedy, "system": _SYSTEM}
        yield Question(f"message {at}", "messages", message)
        response = {"input": said, "max_output_tokens": 20, **greedy, "instructions": _SYSTEM}
        yield Question(f"response {at}", "responses", {**response, "store": at == 0})
    tool = {"name": "weather", "description": "Of a place.", "input_schema": _TOOL["parameters"]}
    forced = {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 48}
    said = [{"role": "user", "content": "What is the weather in Rome?"}]
    yield Question("a use of a tool", "messages", {"messages": said, "temperature": 0, **forced})


def questions() -> list[Question]:
    return [*_chats(), *_others()]


# -- whether two replies are the same ----------------------------------------------------------


def difference(got: Choices, expected: Choices) -> str | None:
    """What differs, in a line."""
    if got.keys() != expected.keys():
        return f"choices {sorted(got)}, not {sorted(expected)}"
    for at, choice in got.items():
        if problem := _differ(choice, expected[at]):
            return f"choice {at}: {problem}"
    return None


def _differ(one: Choice, other: Choice) -> str | None:
    if (one.text, one.finish) != (other.text, other.finish):
        return f"{one.text!r} ({one.finish}), not {other.text!r} ({other.finish})"
    if one.calls != other.calls:
        return f"calls {one.calls}, not {other.calls}"
    if len(one.logprobs) != len(other.logprobs):
        return f"{len(one.logprobs)} log-probabilities, not {len(other.logprobs)}"
    pairs = zip(one.logprobs, other.logprobs, strict=True)
    worst = max((abs(a - b) for a, b in pairs), default=0.0)
    return f"log-probabilities off by {worst:.2g}" if worst > BOUND else None


def solo(asked: list[Question]) -> dict[str, Choices]:
    """What `LLM` says to those that it can be asked."""
    from bushel import LLM, SamplingParams

    replies: dict[str, Choices] = {}
    with LLM("bushel:tiny") as llm:
        for question in asked:
            body = dict(question.body)
            prompt = {name: body.pop(name) for name in ("messages", "prompt") if name in body}
            logprobs = body.pop("top_logprobs", body.pop("logprobs", None))
            [output] = llm.generate([prompt], SamplingParams(**body, logprobs=logprobs))
            assert output.error is None, (question.name, output.error)
            replies[question.name] = {
                at: Choice(
                    choice.text,
                    choice.finish_reason,
                    logprobs=[logprob.logprob for logprob in choice.logprobs or ()],
                )
                for at, choice in enumerate(output.choices)
            }
    return replies
