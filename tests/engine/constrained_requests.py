"""Requests whose replies are held to something, for the tests of the engine."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from bushel import LLM, Output, SamplingParams

Pair = tuple[dict[str, Any], SamplingParams]

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        "mate": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["name", "age", "mate"],
    "additionalProperties": False,
}


def talk(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def shaped(text: str, schema: Any = PERSON) -> dict[str, Any]:
    return {**talk(text), "shape": {"json_schema": schema}}


def thinking(text: str, budget: int) -> dict[str, Any]:
    return {**talk(text), "thinking": {"enabled": True, "budget": budget}}


def valid(out: Output, schema: Any = PERSON) -> Any:
    """What a complete reply says; raises if that is not what the schema wants."""
    assert (out.error, out.finish_reason) == (None, "stop"), out.text
    value = json.loads(out.text)
    jsonschema_rs.validate(schema, value)
    return value


def alone(llm: LLM, pairs: list[Pair]) -> list[Output]:
    return [llm.generate(*pair)[0] for pair in pairs]


def together(llm: LLM, pairs: list[Pair]) -> list[Output]:
    return llm.generate([request for request, _ in pairs], [params for _, params in pairs])
