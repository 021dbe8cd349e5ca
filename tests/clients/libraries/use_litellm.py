"""litellm: a tool turn, the same streamed, and an object."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm
from pydantic import BaseModel

api, url, model, degrees, question, text = sys.argv[1:]
ROUTES = {"chat": "openai", "messages": "anthropic", "responses": "openai/responses"}
WHERE = {
    "model": f"{ROUTES[api]}/{model}",
    "api_base": url if api == "messages" else f"{url}/v1",
    "api_key": "dummy",
    "max_tokens": 200,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Person(BaseModel):
    name: str
    age: int
    city: str


def ask(messages: list[Any], stream: bool) -> Any:
    reply = litellm.completion(**WHERE, messages=messages, tools=[TOOL], stream=stream)
    if stream:
        reply = litellm.stream_chunk_builder(list(reply), messages=messages)
    return reply.choices[0].message


def asked(stream: bool) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": question}]
    first = ask(messages, stream)
    call = first.tool_calls[0]
    result = json.dumps({"temperature": int(degrees)})
    told = {"role": "tool", "tool_call_id": call.id, "content": result}
    second = ask([*messages, first, told], stream)
    arguments = json.loads(call.function.arguments)
    return {"call": [call.function.name, arguments], "answer": second.content}


made = litellm.completion(
    **WHERE, messages=[{"role": "user", "content": text}], response_format=Person
)
print(
    json.dumps(
        {
            "whole": asked(False),
            "streamed": None if api == "responses" else asked(True),
            "object": Person.model_validate_json(made.choices[0].message.content).model_dump(),
        }
    )
)
