"""Schemas, expressions and grammars that are made to hurt: each is answered, and nobody notices."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bushel.core.wire import Check, MediaRules, Open
from bushel.server.errors import ApiError
from bushel.server.processes.pool import Pool
from tests.chat.structured_output.test_json_schema import nested, tree
from tests.server.hostile_requests import Answer, Beside, Sent, ask, chat
from tests.server.server_process import Server, alive, until

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
}
MANY = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(499)}}


def schema(it: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": it}}}


def tool(it: Any) -> dict[str, Any]:
    function = {"name": "f", "parameters": it, "strict": True}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}


def products(count: int) -> dict[str, Any]:
    ways = [
        {"anyOf": [{"properties": {f"x{i}_{k}": {"type": "integer"}}} for k in range(4)]}
        for i in range(count)
    ]
    return {"allOf": ways}


# Refused, each with a reason.
REFUSED: dict[str, dict[str, Any]] = {
    "a deep schema": schema(nested(200)),
    "a deep schema of a tool": tool({"type": "object", "properties": {"a": nested(200)}}),
    "a wide schema": schema(tree(1, 3000)),
    "a tree of schemas": schema(tree(7, 4)),
    "a huge list": schema({"enum": list(range(60_000))}),
    "products of choices": schema(products(12)),
    "a schema that is itself": schema({"allOf": [{"$ref": "#"}, {"type": "integer"}]}),
    "what cannot be enforced": schema({"type": "object", "properties": {"a": {"not": {}}}}),
    "remainders": schema({"type": "integer", "multipleOf": 999_983}),
    "an expression that ends nowhere": {"guided_regex": "a(("},
    "a look ahead": {"guided_regex": "(?=a)b"},
    "a long expression": {"guided_regex": "a" * 10_000},
    "too many choices": {"guided_choice": [f"{at}" for at in range(20_000)]},
    "a deep grammar": {"guided_grammar": "start: " + "(" * 3000 + '"a"' + ")" * 3000},
    "no grammar": {"guided_grammar": "what is this"},
}
# Answered with a reply or a refusal: some are only slow, or fail on their way.
SURVIVED: dict[str, dict[str, Any]] = {
    "many properties": schema(MANY),
    "a loop of references": schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    "a long text": schema({"type": "string", "minLength": 100_000, "maxLength": 200_000}),
    "a million items": schema({"type": "array", "minItems": 10**6, "items": {"type": "integer"}}),
    "nested repetition": {"guided_regex": "((a{1,100}){1,100}){1,100}"},
    "exponential states": {"guided_regex": "(a|b)*a(a|b){200}"},
    "no end of letters": {"guided_regex": "(.{0,300}a.{0,300}){9}"},
    "catastrophic backtracking": {"guided_regex": "(x+x+)+y"},
    "ambiguity": {"guided_grammar": "start: a a a a a\na: b* b*\nb: c* c*\nc: /x/*"},
    "left recursion": {"guided_grammar": 'start: start start | "a"'},
    "doubling": {
        "guided_grammar": "start: r0\n"
        + "\n".join(f"r{at}: r{at + 1} r{at + 1}" for at in range(40))
        + '\nr40: "a"?'
    },
    "negations": {"guided_grammar": "start: A\nA: ~/(.*a.{30})+/ & ~/(.*b.{30})+/"},
}


def sent(fields: dict[str, Any]) -> Sent:
    return chat("Who?", **{"max_tokens": 12, "temperature": 1.0, "seed": 1, **fields})


def person(server: Server) -> Answer:
    return ask(server, sent({**schema(PERSON), "max_tokens": 60}))


def test_hostile_schemas_are_answered_while_others_go_on(tiny: Server) -> None:
    """A stream beside them says what it says alone, and good schemas are served after them. B48."""
    problems: list[str] = []
    with Beside(tiny, 20) as beside:
        for name, fields in REFUSED.items():
            answer = ask(tiny, sent(fields))
            error = json.loads(answer.text).get("error", {})
            if answer.status != 400 or not error.get("message"):
                problems.append(f"{name}: {answer.status} {answer.text[:200]}")
        for name, fields in SURVIVED.items():
            answer = ask(tiny, sent(fields))
            if answer.status not in (200, 400):
                problems.append(f"{name}: {answer.status} {answer.text[:200]}")
        good = person(tiny)
    assert problems == []
    assert beside.noticed() is None
    assert good.status == 200, good.text
    assert set(json.loads(json.loads(good.text)["choices"][0]["message"]["content"])) == {
        "name",
        "age",
    }
    status = tiny.status()
    assert status["engine"]["restarts"] == 0
    until(lambda: tiny.status()["running"] == 0, "nothing is left running")


@pytest.mark.long
def test_a_grammar_that_takes_too_long_costs_its_worker_and_nobody_else() -> None:
    """The worker is killed, the request refused, and the next one served by another. B48."""

    async def work() -> None:
        gate = asyncio.Event()
        gate.set()
        pool = Pool(Open("bushel:tiny", False, MediaRules()), 1, 60.0, gate)
        running = asyncio.create_task(pool.run())
        await pool.model_info
        [first] = [worker.child.pid for worker in pool._workers]
        endless = json.dumps({"type": "integer", "multipleOf": 999_983})
        asked = [f"start: %json {endless}", 'start: "a"', "start: %json {}", "start: b"]
        checks = [pool.ask(Check(f"{at}", text)) for at, text in enumerate(asked)]
        late, good, empty, bad = await asyncio.gather(*checks, return_exceptions=True)
        assert isinstance(late, ApiError)
        assert (late.status, late.code) == (400, "invalid_grammar")
        assert "too complex" in late.message
        assert isinstance(good, tuple)
        assert isinstance(empty, tuple)
        assert isinstance(bad, ApiError)
        assert "unknown name" in bad.message
        assert not alive(first)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(work())


def test_a_refusal_names_the_place_in_the_schema(tiny: Server) -> None:
    bad = {"type": "object", "properties": {"a": {"uniqueItems": True}}}
    for fields, param in ((schema(bad), "response_format"), (tool(bad), "tools")):
        error = json.loads(ask(tiny, sent(fields)).text)["error"]
        assert (error["code"], error["param"]) == ("invalid_grammar", param)
        assert "properties.a.uniqueItems" in error["message"]
