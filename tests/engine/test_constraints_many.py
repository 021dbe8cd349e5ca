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
from bushel.core import ReplyFormat
from tests.engine.constrained_requests import Pair, alone, talk, together, valid
from tests.engine.random_schemas import arguments, calls_in, schema, submit_call

pytestmark = pytest.mark.long

COUNT = int(os.environ.get("BUSHEL_TEST_CONSTRAINED", "24"))
LONGEST = 1000  # tokens; what the schemas below allow is far shorter


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
            calls = calls_in(reply_format, schemas, out.text)
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
        submit_call(
            llm, reply_format, request, SamplingParams(max_tokens=LONGEST, temperature=1.5, seed=at)
        )
        for request, at in asked
    ]
    while not all(handle.done for handle in handles):
        llm.step()
    for handle in handles:
        assert (handle.output.error, handle.output.finish_reason) == (None, "stop")
    return [handle.output for handle in handles]
