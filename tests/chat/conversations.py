"""Conversations to prepare, and how to look at what was made of them."""

from typing import Any

from bushel.chat.prompt import prepare
from bushel.core import Borders, Prepared
from bushel.models import Preparer

QUESTION = {"role": "user", "content": "What is the weather like in the valley?"}
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


def round_of(
    thoughts: str = "", result: str = "It is raining, and the river rises.", at: int = 0
) -> list[Any]:
    function = {"name": "get_weather", "arguments": {"city": "Zürich"}}
    call = {"id": f"call0000{at}", "type": "function", "function": function}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    if thoughts:
        said["reasoning_content"] = thoughts
    return [said, {"role": "tool", "tool_call_id": call["id"], "content": result}]


def common(one: Any, two: Any) -> int:
    differ = (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return next(differ, min(len(one), len(two)))


def bordered(host: Preparer, *turns: Any, **more: Any) -> tuple[Prepared, Borders]:
    found = prepare(host, {"messages": list(turns), **more})
    return found, found.borders


def shown(host: Preparer, prompt: Prepared, start: int, end: int | None = None) -> str:
    return str(host.tokenizer.hf.decode(list(prompt.ids[start:end])))
