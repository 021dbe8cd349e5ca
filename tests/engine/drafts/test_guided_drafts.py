"""Replies and calls that are held to schemas are valid with drafts, and the same without."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from bushel import LLM, Output, SamplingParams
from bushel.chat.prompt import PLAIN
from bushel.chat.reply.format_detection import reply_format_of
from bushel.core import ReplyFormat
from tests.engine.constrained_requests import Pair, talk, together, valid
from tests.engine.random_schemas import arguments, calls_in, schema, submit_call

FEW, MANY, AT_ONCE = 5, 1000, 5
COUNTS = [FEW, pytest.param(MANY, marks=pytest.mark.long)]
LONGEST = 400  # tokens; what the schemas allow is far shorter


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32") as llm:
        yield llm


@pytest.fixture(scope="module")
def without() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32", speculate="off") as llm:
        yield llm


def params(at: int) -> SamplingParams:
    temperature = (0.6, 1.0, 1.5)[at % 3]
    return SamplingParams(max_tokens=LONGEST, temperature=temperature, seed=at, logprobs=0)


def same(outputs: list[Output], plain: list[Output]) -> int:
    """How many drafts held; none of them where there are none, and nothing else differs."""
    for output, right in zip(outputs, plain, strict=True):
        assert output.token_ids == right.token_ids
        pairs = zip(output.logprobs or (), right.logprobs or (), strict=True)
        assert all(abs(one.logprob - other.logprob) < 1e-4 for one, other in pairs)
        assert right.usage.drafted_tokens == 0
    return sum(output.usage.accepted_tokens for output in outputs)


@pytest.mark.parametrize("count", COUNTS)
def test_every_reply_is_what_its_schema_wants(count: int, llm: LLM, without: LLM) -> None:
    rng = random.Random(count)
    accepted = 0
    for start in range(0, count, AT_ONCE):
        schemas = [schema(rng) for _ in range(start, start + AT_ONCE)]
        pairs: list[Pair] = [
            ({**talk(f"Number {at}?"), "shape": {"json_schema": it}}, params(at))
            for at, it in enumerate(schemas, start)
        ]
        outputs = together(llm, pairs)
        llm.check_integrity()
        for output, wanted in zip(outputs, schemas, strict=True):
            valid(output, wanted)
        accepted += same(outputs, together(without, pairs))
    assert accepted > count


@pytest.mark.long
@pytest.mark.parametrize("count", COUNTS)
def test_every_call_has_the_arguments_that_its_tool_wants(
    count: int, llm: LLM, without: LLM
) -> None:
    """Half of them in one style, half in another."""
    rng = random.Random(count)
    own = reply_format_of(llm._own_engine().model.host, PLAIN)
    accepted = 0
    for start in range(0, count, AT_ONCE):
        style = replace(own, tools=("hermes", "xml")[start // AT_ONCE % 2])
        schemas = {f"tool_{at}": arguments(rng) for at in range(start, start + AT_ONCE)}
        outputs = called(llm, style, schemas, start)
        llm.check_integrity()
        for output, name in zip(outputs, schemas, strict=True):
            assert (output.error, output.finish_reason) == (None, "stop")
            [(tool, given)] = calls_in(style, schemas, output.text)
            assert tool == name
            jsonschema_rs.validate(schemas[name], json.loads(given))
        accepted += same(outputs, called(without, style, schemas, start))
    assert accepted > count


def called(llm: LLM, style: ReplyFormat, schemas: dict[str, Any], seed: int) -> list[Output]:
    """One call of each tool, all in one batch."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": it, "strict": True}}
        for name, it in schemas.items()
    ]
    handles = [
        submit_call(llm, style, {"tools": tools, "tool_choice": {"name": name}}, params(seed + at))
        for at, name in enumerate(schemas)
    ]
    while not all(handle.done for handle in handles):
        llm.step()
    return [handle.output for handle in handles]
