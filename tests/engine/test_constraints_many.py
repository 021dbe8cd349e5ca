"""Every one of many replies and calls is what its schema wants, whoever is in the batch with it.

BUSHEL_TEST_CONSTRAINED: how many of each, 24 unless it says; a thousand take some minutes.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from bushel import LLM, SamplingParams
from bushel.chat.prompt import PLAIN
from bushel.chat.reply.format_detection import reply_format_of
from bushel.chat.reply.reader import Reader
from bushel.chat.reply_constraint import constraint_of
from bushel.core import CallBegin, CallEnd, CallPart, ReplyFormat, TextDelta
from tests.engine.constrained_requests import Pair, alone, talk, together, valid

pytestmark = pytest.mark.long

COUNT = int(os.environ.get("BUSHEL_TEST_CONSTRAINED", "24"))
LONGEST = 1000  # tokens; what the schemas below allow is far shorter


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


def free(seed: int) -> Pair:
    params = SamplingParams(max_tokens=25, temperature=1.0, seed=seed, logprobs=0)
    return talk(f"Say something about {seed}."), params


def batches(pairs: list[Pair], size: int = 24) -> list[list[Pair]]:
    return [pairs[at : at + size] for at in range(0, len(pairs), size)]


@pytest.fixture(scope="module")
def llm() -> Any:
    with LLM("bushel:tiny", dtype="float32") as llm:
        yield llm


def test_every_reply_is_what_its_schema_wants(llm: LLM) -> None:
    """Among rows that are free, whose tokens are those of their solo runs."""
    rng = random.Random(1)
    others = [free(seed) for seed in range(4)]
    expected = [out.token_ids for out in alone(llm, others)]
    schemas = [schema(rng) for _ in range(COUNT)]
    pairs: list[Pair] = [
        (
            {**talk(f"Number {at}?"), "shape": {"json_schema": it}},
            SamplingParams(max_tokens=LONGEST, temperature=1.0 + at % 3, seed=at),
        )
        for at, it in enumerate(schemas)
    ]
    done = 0
    for batch in batches(pairs):
        mixed = together(llm, [*batch, *others])
        for out in mixed[: len(batch)]:
            valid(out, schemas[done])
            done += 1
        assert [out.token_ids for out in mixed[len(batch) :]] == expected
    assert done == COUNT


@pytest.mark.parametrize("form", ["hermes", "xml"])
def test_every_call_has_the_arguments_that_its_tool_wants(llm: LLM, form: str) -> None:
    host = llm._own_engine().model.host
    reply_format: ReplyFormat = replace(reply_format_of(host, PLAIN), tools=form)
    rng = random.Random(2)
    for batch in range(0, COUNT // 2, 16):
        schemas = {f"tool_{at}": arguments(rng) for at in range(min(16, COUNT // 2 - batch))}
        outs = _called(llm, reply_format, schemas, batch)
        for out, name in zip(outs, schemas, strict=True):
            calls = _calls(reply_format, schemas, out.text)
            assert [call[0] for call in calls] == [name], out.text
            jsonschema_rs.validate(schemas[name], json.loads(calls[0][1]))


def _called(llm: LLM, reply_format: ReplyFormat, schemas: dict[str, Any], seed: int) -> list[Any]:
    """One forced call of each tool, in one batch, of random weights' worth of sense."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": it, "strict": True}}
        for name, it in schemas.items()
    ]
    asked = [
        ({"tools": tools, "tool_choice": {"name": name}}, seed + at)
        for at, name in enumerate(schemas)
    ]
    handles = [
        _submit(
            llm, reply_format, request, SamplingParams(max_tokens=LONGEST, temperature=1.5, seed=at)
        )
        for request, at in asked
    ]
    while not all(handle.done for handle in handles):
        llm.step()
    for handle in handles:
        assert (handle.output.error, handle.output.finish_reason) == (None, "stop")
    return [handle.output for handle in handles]


def _submit(
    llm: LLM, reply_format: ReplyFormat, request: dict[str, Any], params: SamplingParams
) -> Any:
    """As `LLM.submit`, for a model of another style, and without the tools in its prompt."""
    engine = llm._own_engine()
    name = request["tool_choice"]["name"]
    ready = llm._prepare(engine, f"call-{name}", talk(f"Call {name}."), params)
    constraint = constraint_of(reply_format, request, opened=False, host=engine.model.host)
    ready = replace(
        ready, choices=tuple(replace(choice, constraint=constraint) for choice in ready.choices)
    )
    handle = llm._handle(engine, ready, params)
    engine.submit(ready)
    return handle


def _calls(reply_format: ReplyFormat, offered: dict[str, Any], text: str) -> list[tuple[str, str]]:
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
