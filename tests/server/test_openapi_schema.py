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

from tests.server.hostile_requests import leaks
from tests.server.leaving_clients import settled
from tests.server.server_process import PATIENCE, Server

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
# Of each operation and mode. Many more take no thought but minutes: BUSHEL_TEST_EXAMPLES=1000.
EXAMPLES = int(os.environ.get("BUSHEL_TEST_EXAMPLES", "3"))


def shortened(body: Any) -> Any:
    """The same request for a few tokens, since what is looked for is not in long replies, and
    mostly for the model that is served, since little is learnt from others.
    """
    if not isinstance(body, dict):
        return body
    body = dict(body)
    if isinstance(body.get("model"), str) and len(body["model"]) % 4:
        body["model"] = "bushel:tiny"
    if isinstance(body.get("chat_template_kwargs"), dict) and len(str(body)) % 4:
        del body["chat_template_kwargs"]
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"):
        if type(body.get(name)) in (int, float) and body[name] > 3:
            body[name] = 3
    if "messages" in body or "prompt" in body:
        body.setdefault("stream", len(str(body)) % 2 == 0)
        if body.get("max_tokens") is None:
            body["max_tokens"] = 3
        if type(body.get("n")) in (int, float) and 4 < body["n"] <= 128:
            body["n"] = 4
        shorten_names_of_others(body)
    if "input" in body:
        body.setdefault("stream", len(str(body)) % 2 == 0)
        if body.get("max_output_tokens") is None:
            body["max_output_tokens"] = 3
    return body


def shorten_names_of_others(body: dict[str, Any]) -> None:
    """llama.cpp's limit, and Ollama's; elsewhere nobody reads them."""
    if type(body.get("n_predict")) in (int, type(None)):
        body["n_predict"] = 3
    if isinstance(body.get("options"), dict | None):
        options = body.get("options") or {}
        if type(options.get("num_predict")) in (int, type(None)):
            body["options"] = {**options, "num_predict": 3}


def asked(operation: Any, mode: Any, seen: Counter[int]) -> None:
    """Some requests of one operation; raises what one of them violates."""

    @hypothesis.seed(5)
    @hypothesis.settings(
        max_examples=EXAMPLES,
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
        # A name that the client made up is no news to it.
        sent = f"{case.path_parameters} {case.body}"
        assert reply.status_code < 400 or set(leaks(reply.text)) <= set(leaks(sent))

    ask()


def operations(schema: Any) -> list[Any]:
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.long
def test_every_answer_is_one_that_the_document_promises(tiny: Server) -> None:
    """Whatever is sent, a reply or an error in the documented form, and nobody is hurt. B48."""
    problems: dict[str, str] = {}
    seen: dict[str, Counter[int]] = {}
    schema = schemathesis.openapi.from_url(f"{tiny.url}/openapi.json")
    for operation in operations(schema):
        for mode in MODES:
            label = f"{operation.label} {mode.value}"
            try:
                asked(operation, mode, seen.setdefault(label, Counter()))
            except hypothesis.errors.Unsatisfiable:
                # There is nothing that could be wrong with it.
                assert operation.method == "get" or operation.path == "/v1/cache"
            except (Exception, FailureGroup) as error:
                problems[label] = f"{error}"[:2000]
    assert problems == {}
    assert len(seen) >= 2 * 13
    # Or the document allows what the server does not, or too little was wrong with the rest.
    asked_for = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
    for path in (*asked_for, "/tokenize", "/detokenize"):
        assert seen[f"POST {path} positive"][200] > 0
        assert seen[f"POST {path} negative"][400] > EXAMPLES / 2
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
        [found] = operations(schema)
        with pytest.raises(FailureGroup):
            asked(found, MODES[0], Counter())


def wanting(schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": "", "content": {"application/json": {"schema": schema}}}
