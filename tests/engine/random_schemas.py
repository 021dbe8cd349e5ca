"""Schemas drawn at random, and calls of tools that take them, in any style."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from bushel import LLM, SamplingParams
from bushel.chat.reply.reader import Reader
from bushel.chat.reply_constraint import constraint_of
from bushel.core import CallBegin, CallEnd, CallPart, ReplyFormat, Request, TextDelta
from tests.engine.constrained_requests import talk


def schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """A random one, all of whose values are short."""
    kinds = ["string", "integer", "number", "boolean", "enum", "null", "union"]
    kind = rng.choice(kinds + (["object", "array", "object"] if depth else []))
    if kind == "object":
        names = rng.sample(["a", "b c", "ö", "name", "x_y"], rng.randint(1, 3))
        members = {name: schema(rng, depth - 1) for name in names}
        required = [name for name in names if rng.random() < 0.7]
        return {"type": "object", "properties": members, "required": required}
    if kind == "array":
        return {"type": "array", "items": schema(rng, depth - 1), "maxItems": 2}
    plain: dict[str, dict[str, Any]] = {
        "string": {"type": "string", "maxLength": rng.randint(0, 8)},
        "integer": {"type": "integer", "minimum": -5, "maximum": rng.randint(0, 3000)},
        "number": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
        "boolean": {"type": "boolean"},
        "enum": {"enum": ["red", "light green", 5, None]},
        "null": {"type": "null"},
        "union": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-f]{1,4}$"}]},
    }
    return plain[kind]


def arguments(rng: random.Random) -> dict[str, Any]:
    members = {name: schema(rng) for name in rng.sample(["path", "n", "deep", "mode"], 3)}
    required = [name for name in members if rng.random() < 0.7]
    return {
        "type": "object",
        "properties": members,
        "required": required,
        "additionalProperties": False,
    }


def call_request(
    llm: LLM, reply_format: ReplyFormat, request: dict[str, Any], params: SamplingParams
) -> Request:
    """Of a model of another style, and without the tools in its prompt."""
    engine = llm._own_engine()
    name = request["tool_choice"]["name"]
    ready = llm._prepare(engine, f"call-{name}", talk(f"Call {name}."), params)
    constraint = constraint_of(reply_format, request, opened=False, host=engine.model.host)
    return replace(
        ready, choices=tuple(replace(choice, constraint=constraint) for choice in ready.choices)
    )


def submit_call(
    llm: LLM, reply_format: ReplyFormat, request: dict[str, Any], params: SamplingParams
) -> Any:
    """As `LLM.submit`."""
    ready = call_request(llm, reply_format, request, params)
    handle = llm._handle(llm._own_engine(), ready, params)
    llm._own_engine().submit(ready)
    return handle


def calls_in(
    reply_format: ReplyFormat, offered: dict[str, Any], text: str
) -> list[tuple[str, str]]:
    reader = Reader(reply_format, offered)
    deltas = reader.feed(text) + reader.finish()
    assert not [delta for delta in deltas if isinstance(delta, TextDelta)], text
    assert all(delta.complete for delta in deltas if isinstance(delta, CallEnd)), text
    names = [delta.name for delta in deltas if isinstance(delta, CallBegin)]
    parts = [delta for delta in deltas if isinstance(delta, CallPart)]
    return [
        (name, "".join(part.json for part in parts if part.index == at))
        for at, name in enumerate(names)
    ]
