"""Replies and calls that are held to schemas are valid with drafts, and the same without.

Of many replies one may part from its twin at the edge of a draw (`edge_of_a_draw`).
"""

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
from bushel.core import ReplyFormat, Request
from tests.engine.constrained_requests import Pair, talk, together, valid
from tests.engine.edge_of_a_draw import Edges, request_of
from tests.engine.random_schemas import arguments, call_request, calls_in, schema, submit_call

FEW, MANY, AT_ONCE = 5, 1000, 5
COUNTS = [FEW, pytest.param(MANY, marks=pytest.mark.long)]
# Of MANY replies 0.03 are expected to part at an edge: three do once in some hundred thousand runs.
EDGES = {FEW: 0, MANY: 2}
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


def same(edges: Edges, asked: list[Request], outputs: list[Output], plain: list[Output]) -> int:
    """How many drafts held; none of them where there are none, and nothing else differs."""
    for request, output, right in zip(asked, outputs, plain, strict=True):
        edges.compare(request, output, right)
        assert right.usage.drafted_tokens == 0
    return sum(output.usage.accepted_tokens for output in outputs)


@pytest.mark.parametrize("count", COUNTS)
def test_every_reply_is_what_its_schema_wants(count: int, llm: LLM, without: LLM) -> None:
    rng, edges = random.Random(count), Edges(llm, EDGES[count])
    accepted = 0
    for start in range(0, count, AT_ONCE):
        schemas = [schema(rng) for _ in range(start, start + AT_ONCE)]
        pairs: list[Pair] = [
            ({**talk(f"Number {at}?"), "shape": {"json_schema": it}}, params(at))
            for at, it in enumerate(schemas, start)
        ]
        outputs, plain = together(llm, pairs), together(without, pairs)
        llm.check_integrity()
        for output, wanted in zip([*outputs, *plain], schemas * 2, strict=True):
            valid(output, wanted)
        accepted += same(edges, [request_of(llm, *pair) for pair in pairs], outputs, plain)
    assert accepted > count


@pytest.mark.long
@pytest.mark.parametrize("count", COUNTS)
def test_every_call_has_the_arguments_that_its_tool_wants(
    count: int, llm: LLM, without: LLM
) -> None:
    """Half of them in one style, half in another."""
    rng, edges = random.Random(count), Edges(llm, EDGES[count])
    own = reply_format_of(llm._own_engine().model.host, PLAIN)
    accepted = 0
    for start in range(0, count, AT_ONCE):
        style = replace(own, tools=("hermes", "xml")[start // AT_ONCE % 2])
        schemas = {f"tool_{at}": arguments(rng) for at in range(start, start + AT_ONCE)}
        pairs = calls(schemas, start)
        outputs, plain = called(llm, style, pairs), called(without, style, pairs)
        llm.check_integrity()
        for output, name in zip([*outputs, *plain], [*schemas] * 2, strict=True):
            assert (output.error, output.finish_reason) == (None, "stop")
            [(tool, given)] = calls_in(style, schemas, output.text)
            assert tool == name
            jsonschema_rs.validate(schemas[name], json.loads(given))
        asked = [call_request(llm, style, *pair) for pair in pairs]
        accepted += same(edges, asked, outputs, plain)
    assert accepted > count


def calls(schemas: dict[str, Any], seed: int) -> list[Pair]:
    """One of each tool."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": it, "strict": True}}
        for name, it in schemas.items()
    ]
    return [
        ({"tools": tools, "tool_choice": {"name": name}}, params(at))
        for at, name in enumerate(schemas, seed)
    ]


def called(llm: LLM, style: ReplyFormat, pairs: list[Pair]) -> list[Output]:
    """All in one batch."""
    handles = [submit_call(llm, style, *pair) for pair in pairs]
    while not all(handle.done for handle in handles):
        llm.step()
    return [handle.output for handle in handles]
