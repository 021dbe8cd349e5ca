"""What is wrong is told in the API's own form, with the field's name (B48)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.depth import one_in
from tests.peers.three_apis import APIS, PATHS, ask, body_of, post
from tests.server.server_process import Server

ASKED = {"chat": "messages", "completions": "prompt", "messages": "messages", "responses": "input"}


def error_of(api: str, reply: httpx.Response) -> dict[str, Any]:
    """Whose form is the API's own."""
    told = reply.json()
    error: dict[str, Any] = told["error"]
    if api == "messages":
        assert told["type"] == "error"
        assert {"type", "message"} <= error.keys()
    else:
        assert {"message", "type", "param", "code"} <= error.keys()
    assert error["message"]
    return error


@pytest.mark.parametrize("api", APIS)
def test_a_model_that_is_not_there_is_a_404(api: str, server: Server) -> None:
    reply = post(server, api, body_of(api, model="no/such-model"))
    assert reply.status_code == 404
    assert "no/such-model" in error_of(api, reply)["message"]


@pytest.mark.parametrize("api", APIS)
def test_what_is_no_json_is_a_400(api: str, server: Server) -> None:
    headers = {"content-type": "application/json"}
    reply = server.http.post(PATHS[api], content=b'{"model": ', headers=headers)
    assert reply.status_code == 400
    assert "JSON" in error_of(api, reply)["message"]


@pytest.mark.parametrize("api", APIS)
def test_a_missing_question_is_named(api: str, server: Server) -> None:
    body = body_of(api)
    del body[ASKED[api]]
    reply = post(server, api, body)
    assert reply.status_code == 400
    assert ASKED[api] in error_of(api, reply)["message"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 101), ("temperature", "hot"), ("top_p", -0.5), ("stream", "perhaps")],
)
def test_a_field_out_of_its_bounds_is_named(
    api: str, field: str, value: Any, server: Server
) -> None:
    reply = post(server, api, body_of(api, **{field: value}))
    assert reply.status_code == 400
    assert field in error_of(api, reply)["message"]


@pytest.mark.parametrize("api", APIS)
def test_a_wrong_method_is_a_405(api: str, server: Server) -> None:
    reply = server.http.get(PATHS[api])
    assert reply.status_code == 405
    error_of(api, reply)


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_role_that_nobody_knows_is_named(api: str, server: Server) -> None:
    body = body_of(api) | {"messages": [{"role": "wizard", "content": "Hi"}]}
    reply = post(server, api, body)
    assert reply.status_code == 400
    assert "messages" in error_of(api, reply)["message"]


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_after_an_error_all_is_as_before(api: str, server: Server) -> None:
    before = ask(server, api, temperature=0).text
    assert post(server, api, body_of(api, temperature=-1)).status_code == 400
    assert ask(server, api, temperature=0).text == before
