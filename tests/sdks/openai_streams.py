"""Every stream of OpenAI's APIs through whatever version of OpenAI's SDK is imported.

    python openai_streams.py URL

Replies are validated strictly: what a version's types do not allow is an error.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import openai

MODEL = "bushel:tiny"
OSLO: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "parameters": CITY}
TOOL: Any = {"type": "function", "function": FUNCTION}
FLAT: Any = {"type": "function", **FUNCTION, "strict": False}
GRAMMAR = {"syntax": "regex", "definition": "[0-9]{1,4}"}
CUSTOM: Any = {"type": "custom", "name": "write", "format": {"type": "grammar", **GRAMMAR}}
NESTED: Any = {
    "type": "custom",
    "custom": {"name": "write", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
FORM: Any = {
    "type": "json_schema",
    "name": "answer",
    "schema": {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    },
}
CHATS: dict[str, dict[str, Any]] = {
    "text": {"messages": SUM},
    "several": {"messages": SUM, "n": 2, "logprobs": True, "top_logprobs": 2},
    "tools": {"messages": OSLO, "tools": [TOOL]},
    "functions": {"messages": OSLO, "functions": [FUNCTION]},
    "thoughts": {"messages": SUM, "extra_body": THINK},
}
RESPONSES: dict[str, dict[str, Any]] = {
    "text": {"input": "What is 3 + 4?", "top_logprobs": 2},
    "tools": {"input": "What is the weather in Oslo?", "tools": [FLAT]},
    "custom tools": {"input": "Write.", "tools": [CUSTOM], "tool_choice": "required"},
    "thoughts": {"input": "What is 3 + 4?", "extra_body": THINK},
    "summaries": {
        "input": "What is 3 + 4?",
        "extra_body": THINK,
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    },
    "a form": {"input": "What is 3 + 4?", "text": {"format": FORM}},
    "a cut": {"input": "Tell me a story.", "max_output_tokens": 3},
}


def chat(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    create: Any = client.chat.completions.create
    whole = create(model=MODEL, temperature=0, **asked)
    usage = {"include_usage": True}
    chunks = list(create(model=MODEL, temperature=0, stream=True, stream_options=usage, **asked))
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    content = "".join(it.choices[0].delta.content or "" for it in chunks if _first(it))
    assert content == (whole.choices[0].message.content or "")
    reasons = [it.choices[0].finish_reason for it in chunks if _first(it)]
    assert reasons[-1] == whole.choices[0].finish_reason


def _first(chunk: Any) -> bool:
    return bool(chunk.choices) and chunk.choices[0].index == 0


def chat_helper(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    helper: Any = client.chat.completions.stream
    with helper(model=MODEL, temperature=0, **asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "chunk" in kinds
    assert final.choices[0].finish_reason


def loose(client: openai.OpenAI) -> openai.OpenAI:
    """For chunks that the types do not allow, though OpenAI's own servers send them, too."""
    made = client.with_options(timeout=120)
    made._strict_response_validation = False
    return made


def custom_chat(client: openai.OpenAI) -> None:
    """Types of chunks know functions only."""
    create: Any = loose(client).chat.completions.create
    asked = {"messages": SUM, "tools": [NESTED], "tool_choice": "required", "temperature": 0}
    whole = client.chat.completions.create(model=MODEL, **asked)  # type: ignore[call-overload]
    (call,) = whole.choices[0].message.tool_calls
    chunks = create(model=MODEL, stream=True, **asked)
    calls = [call for it in chunks for call in it.choices[0].delta.tool_calls or ()]
    assert "".join(it.model_dump()["custom"]["input"] for it in calls) == call.custom.input


def completion(client: openai.OpenAI) -> None:
    """The type of a chunk has a reason to end, although only the last one can have it."""
    whole: Any = client.completions.create
    stream: Any = loose(client).completions.create
    asked = {"model": MODEL, "prompt": "3 + 4 =", "temperature": 0, "logprobs": 1}
    texts = [chunk.choices[0].text for chunk in stream(stream=True, **asked)]
    assert "".join(texts) == whole(**asked).choices[0].text


def response(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    create: Any = client.responses.create
    whole = create(model=MODEL, temperature=0, **asked)
    events = list(create(model=MODEL, temperature=0, stream=True, **asked))
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.output_text == whole.output_text
    for done in events:
        if done.type == "response.function_call_arguments.done":
            assert done.model_dump()["name"] == "get_weather"
    assert [it.sequence_number for it in events] == list(range(len(events)))


def response_helper(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    helper: Any = client.responses.stream
    with helper(model=MODEL, temperature=0, **asked) as stream:
        assert list(stream)
        final = stream.get_final_response()
    assert final.output


def cases(client: openai.OpenAI) -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = {}
    for name, asked in CHATS.items():
        found[f"chat: {name}"] = lambda asked=asked: chat(client, asked)
        if name not in ("functions", "several"):
            found[f"chat helper: {name}"] = lambda asked=asked: chat_helper(client, asked)
    for name, asked in RESPONSES.items():
        found[f"responses: {name}"] = lambda asked=asked: response(client, asked)
        if name != "a cut":
            found[f"responses helper: {name}"] = lambda asked=asked: response_helper(client, asked)
    found["chat: custom tools"] = lambda: custom_chat(client)
    found["completions"] = lambda: completion(client)
    return found


def main(url: str) -> int:
    client = openai.OpenAI(
        base_url=f"{url}/v1",
        api_key="any",
        timeout=120,
        max_retries=0,
        _strict_response_validation=True,
    )
    failed = 0
    for name, case in cases(client).items():
        try:
            case()
        except Exception:
            failed += 1
            print(f"openai {openai.__version__}: {name} failed\n{traceback.format_exc(limit=-3)}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1]), 100))
