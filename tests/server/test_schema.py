"""What the OpenAPI document promises, asked of a real server with everything it allows and more.

schemathesis makes requests out of the document, both such as it allows and such as it does not.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup

from tests.server.hostile import leaks
from tests.server.serving import PATIENCE, Server
from tests.server.storm import settled

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
# Of each operation and mode. Many more take no thought but minutes: BUSHEL_EXAMPLES=1000.
EXAMPLES = int(os.environ.get("BUSHEL_EXAMPLES", "40"))


def shortened(body: Any) -> Any:
    """The same request for a few tokens: what is looked for is not in long replies."""
    if not isinstance(body, dict):
        return body
    body = dict(body)
    for name in ("max_tokens", "max_completion_tokens", "min_tokens"):
        if type(body.get(name)) in (int, float) and body[name] > 3:
            body[name] = 3
    if "messages" in body or "prompt" in body:
        if body.get("max_tokens") is None:
            body["max_tokens"] = 3
        if type(body.get("n")) in (int, float) and 4 < body["n"] <= 128:
            body["n"] = 4
    return body


def asked(operation: Any, mode: Any, seen: Counter[int]) -> None:
    """Some requests of one operation; raises what one of them violates."""

    @hypothesis.seed(5)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.body = shortened(case.body)
        reply = case.call(timeout=PATIENCE)
        seen[reply.status_code] += 1
        case.validate_response(reply, checks=CHECKS)
        if reply.status_code >= 400:
            assert leaks(reply.text) == []

    ask()


def operations(server: Server) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    return [found.ok() for found in schema.get_all_operations()]


def test_every_answer_is_one_that_the_document_promises(tiny: Server) -> None:
    """B48: whatever is sent, a reply or an error in the documented form, and nobody is hurt."""
    problems: dict[str, str] = {}
    seen: dict[Any, Counter[int]] = {mode: Counter() for mode in MODES}
    asked_of = operations(tiny)
    for operation in asked_of:
        for mode in MODES:
            try:
                asked(operation, mode, seen[mode])
            except hypothesis.errors.Unsatisfiable:
                assert operation.method == "get"  # there is nothing that could be wrong with it
            except (Exception, FailureGroup) as error:
                problems[f"{operation.label} {mode.value}"] = f"{error}"[:2000]
    print(seen)
    assert problems == {}
    good, bad = (seen[mode] for mode in MODES)
    assert len(asked_of) >= 11
    assert good[200] > 60  # or the document allows what the server does not
    assert bad[400] > 60  # or too little was wrong with what was wrong
    assert settled(tiny)["health"] == "ok"


def test_an_answer_that_was_not_promised_is_noticed(tiny: Server) -> None:
    """Control: the same requests against documents that promise something else."""
    document = tiny.http.get("/openapi.json").json()
    operation = document["paths"]["/version"]["get"]
    for change in (
        {"responses": {"404": operation["responses"]["200"]}},
        {"responses": {"200": {"description": "", "content": {"text/plain": {}}}}},
        {"responses": {"200": wanting({"type": "object", "required": ["colour"]})}},
    ):
        changed = {**document, "paths": {"/version": {"get": {**operation, **change}}}}
        schema = schemathesis.openapi.from_dict(changed)
        schema.config.update(base_url=tiny.url)
        [found] = [it.ok() for it in schema.get_all_operations()]
        with pytest.raises(FailureGroup):
            asked(found, MODES[0], Counter())


def wanting(schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": "", "content": {"application/json": {"schema": schema}}}
