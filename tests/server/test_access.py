"""Who may ask: keys, names of the server, and web pages."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from bushel.server.app import create_app
from bushel.server.service.services import Services
from tests.depth import often, one_in, rarely

from .scripted_service import Service, ask, options, run, served

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/chat/completions"),
    ("GET", "/models"),
    ("GET", "/status"),
    ("DELETE", "/cache"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/test/model"),
    ("GET", "/metrics"),
    ("GET", "/v1/status"),
    ("DELETE", "/v1/requests/x"),
    ("GET", "/v1/cache"),
    ("DELETE", "/v1/cache"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/version"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
    ("OPTIONS", "/v1/models"),
    ("GET", "/health/"),
    ("GET", "//health"),
]


def keyed(**more: Any) -> Service:
    return Service(options=options(api_keys=("first key", "sécond"), **more))


def post(service: Service, **headers: str) -> httpx.Response:
    return ask(service, "POST", "/v1/chat/completions", json=CHAT, headers=headers)


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), one_in(4, ROUTES))
def test_every_route_but_health_needs_the_key(method: str, path: str) -> None:
    reply = ask(keyed(), method, path)
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert reply.json()["error"]["type"] == "authentication_error"
    assert reply.headers["www-authenticate"] == "Bearer"
    with_key = ask(keyed(), method, path, headers={"x-api-key": "first key"})
    assert with_key.status_code != 401  # control: it was the key


def test_health_needs_no_key() -> None:
    assert ask(keyed(), "GET", "/health").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first key"},
        {"authorization": "bearer first key"},
        {"x-api-key": "first key"},
        {"authorization": b"Bearer s\xc3\xa9cond"},
        {"authorization": "Basic x", "x-api-key": "first key"},
    ],
)
def test_a_right_key_in_either_header_opens(headers: Any) -> None:
    assert ask(keyed(), "GET", "/version", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first"},
        {"authorization": "Bearer first keys"},
        {"authorization": "Bearer "},
        {"authorization": "first key"},
        {"x-api-key": "FIRST KEY"},
        {"x-api-key": b"\xff\xfe"},
        {"authorization": "Bearer wrong", "x-api-key": "first key"},
    ],
)
def test_a_wrong_key_does_not(headers: Any) -> None:
    assert ask(keyed(), "GET", "/version", headers=headers).status_code == 401


CACHE = ("DELETE", "/v1/cache")


@pytest.mark.parametrize(
    ("api", "operators", "asked", "status"),
    one_in(
        2,
        [
            ((), (), "", 200),  # nobody has a key: everyone is the operator
            ((), (), "anything", 200),
            (("a",), (), "a", 200),  # a single key is one
            (("a", "b"), (), "a", 403),
            (("a", "b"), (), "b", 403),
            (("a",), ("r",), "a", 403),
            (("a",), ("r",), "r", 200),
            (("a",), ("r", "s"), "s", 200),
            (("a", "r"), ("r",), "r", 200),
            ((), ("r",), "r", 200),
            ((), ("r",), "a", 401),
            ((), ("r",), "", 401),
        ],
    ),
)
def test_who_is_an_operator(
    api: tuple[str, ...], operators: tuple[str, ...], asked: str, status: int
) -> None:
    """Clearing the cache takes an operator's key, where there are keys to tell apart. B68."""
    service = Service(options=options(api_keys=api, operator_keys=operators))
    headers = {"x-api-key": asked} if asked else {}
    reply = ask(service, *CACHE, headers=headers)
    assert reply.status_code == status
    if status == 403:
        assert reply.json()["error"]["code"] == "operator_only"
        assert "--operator-key" in reply.json()["error"]["message"]
        assert reply.json()["error"]["type"] == "permission_error"


@pytest.mark.parametrize(("keys", "owners"), [((), 1), (("a", "b", "c"), 3)])
def test_keys_are_owners_and_without_any_everyone_is_one(keys: Any, owners: int) -> None:
    """B67: a client that invents keys is no crowd."""
    service = Service(options=options(api_keys=keys))
    for sent in ("a", "b", "c"):
        assert post(service, authorization=f"Bearer {sent}").status_code == 200
    assert len({job.owner for job in service.jobs}) == owners


# -- names of the server (DNS rebinding) -------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "localhost.",
        "127.0.0.1:8000",
        "[::1]:8000",
        "192.168.1.5",
        "[fe80::1]",
    ],
)
def test_loopback_names_and_addresses_are_answered(host: str) -> None:
    assert ask(Service(), "GET", "/version", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example\\@localhost",
        "localhost/evil",
        "localhost:8000:9",
        "[::1",
        "",
        "0x7f.1",
    ],
)
@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
def test_another_name_is_not(host: str, bound: str) -> None:
    reply = ask(Service(options=options(host=bound)), "GET", "/health", headers={"host": host})
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize(
    ("allowed", "host"),
    one_in(
        2,
        [
            ("box.lan", "box.lan:8000"),
            ("*.lan", "a.lan"),
            ("*", "evil.example"),
            ("Box.Lan", "box.lan"),
        ],
    ),
)
def test_a_name_that_was_allowed_is_answered(allowed: str, host: str) -> None:
    service = Service(options=options(allowed_hosts=(allowed,)))
    assert ask(service, "GET", "/version", headers={"host": host}).status_code == 200


def test_a_pattern_allows_no_other_name() -> None:
    service = Service(options=options(allowed_hosts=("*.lan",)))
    for host in ("lan", "evil-lan", "a.lan.evil"):
        assert ask(service, "GET", "/version", headers={"host": host}).status_code == 403


def test_the_name_it_was_bound_to_is_answered() -> None:
    service = Service(options=options(host="box.lan"))
    assert ask(service, "GET", "/version", headers={"host": "box.lan:8000"}).status_code == 200


# -- web pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example", "content-type": "text/plain"},
    ],
)
def test_a_page_of_another_site_cannot_drive_the_server(headers: dict[str, str]) -> None:
    service = Service()
    reply = post(service, **headers)
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "origin_not_allowed"
    assert service.jobs == []
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_its_own_page_and_programs_can(headers: dict[str, str]) -> None:
    reply = post(Service(), **headers)
    assert reply.status_code == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json"],
)
def test_a_body_that_browsers_send_without_asking_is_refused(kind: str) -> None:
    reply = post(Service(), **{"content-type": kind})
    assert reply.status_code == 415
    assert reply.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"user-agent": "curl/8.5.0"}, 404),
        ({"user-agent": "curl/8.5.0", "referer": "http://elsewhere.example/"}, 415),
        ({"user-agent": "Mozilla/5.0"}, 415),
    ],
)
def test_what_curl_sends_without_a_type_is_read_where_manuals_do_so(
    more: dict[str, str], status: int
) -> None:
    """But not what a browser may have sent for another site."""
    form = {"content-type": "application/x-www-form-urlencoded", **more}
    reply = ask(Service(), "POST", "/api/nothing", headers=form, content=b'{"model": "x"}')
    assert reply.status_code == status


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/vnd.x+json"]
)
def test_json_by_any_name_is_taken(kind: str) -> None:
    assert post(Service(), **{"content-type": kind}).status_code == 200


def test_json_without_a_type_is_taken() -> None:
    body = b'{"messages": [{"role": "user", "content": "Hello"}]}'
    assert ask(Service(), "POST", "/v1/chat/completions", content=body).status_code == 200


PREFLIGHT = {
    "origin": "https://app.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}


def test_without_origins_a_browser_is_told_nothing() -> None:
    reply = ask(Service(), "OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 403
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("allowed", "told"), [("https://app.example", "https://app.example"), ("*", "*")]
)
def test_an_allowed_page_may_ask_and_read(allowed: str, told: str) -> None:
    service = keyed(cors_origins=(allowed,))
    reply = ask(service, "OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == told
    assert reply.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in reply.headers["access-control-allow-methods"]
    answer = post(service, origin="https://app.example", authorization="Bearer first key")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == told
    assert answer.headers["vary"] == "origin"
    refused = post(service, origin="https://app.example")
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == told  # so that a page can ask for it


def test_another_page_than_the_allowed_one_may_not() -> None:
    service = Service(options=options(cors_origins=("https://app.example",)))
    for origin in ("https://evil.example", "https://app.example.evil", "http://app.example"):
        assert post(service, origin=origin).status_code == 403
        preflight = ask(service, "OPTIONS", "/v1/models", headers={**PREFLIGHT, "origin": origin})
        assert preflight.status_code == 403
        assert "access-control-allow-origin" not in preflight.headers


# -- names of the network ----------------------------------------------------------------------

NEAR = ("host.docker.internal", "host.docker.internal:8000", "mac.local", "MAC.local.:11434")
CURL = {"user-agent": "python-httpx/0.28"}


def called(host: str, at: str | None, **headers: str) -> int:
    """A status. at: the address of this machine that the request came to."""

    async def work() -> int:
        app = create_app(Services(Service()))  # type: ignore[arg-type]
        statuses: list[int] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        sent = [(b"host", host.encode())]
        sent += [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/health",
            "query_string": b"",
            "headers": sent,
            "server": None if at is None else (at, 8000),
        }
        await app(scope, receive, send)
        return statuses[0]

    return run(work())


ADDRESSES = ["127.0.0.1", "::1", "192.168.1.5", "172.17.0.1", "fe80::1%en0"]


@pytest.mark.parametrize("host", one_in(2, NEAR))
@pytest.mark.parametrize("at", rarely(ADDRESSES, {"172.17.0.1", "fe80::1%en0"}.__contains__))
def test_containers_and_neighbours_may_use_their_names_of_this_machine(host: str, at: str) -> None:
    assert called(host, at, **CURL) == 200


@pytest.mark.parametrize("at", one_in(2, ["8.8.8.8", "2001:4860:4860::8888", "/run/socket", None]))
@pytest.mark.parametrize("host", NEAR[:1] + NEAR[2:3])
def test_on_a_public_address_they_may_not(host: str, at: str | None) -> None:
    assert called(host, at, **CURL) == 403


@pytest.mark.parametrize(
    "host", one_in(2, ["evil.example", "local", "evil-local", "a.internal", "evil.local.example"])
)
@pytest.mark.parametrize("at", ["127.0.0.1", "192.168.1.5"])
def test_a_name_that_anyone_can_register_is_refused_wherever_it_comes(host: str, at: str) -> None:
    """It may be a name that was made to point here (DNS rebinding)."""
    assert called(host, at, **CURL) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"user-agent": "Mozilla/5.0"},
        {"origin": "http://evil.local:8000"},
        {"referer": "http://evil.local:8000/"},
        {"sec-fetch-site": "same-origin"},
    ],
)
@pytest.mark.parametrize("host", often(["evil.local", "host.docker.internal"], "evil.local"))
def test_a_browser_may_not_come_to_loopback_by_them(host: str, headers: dict[str, str]) -> None:
    """Who answers for such a name on the network could send a browser to what only this machine
    reaches. To an address that they reach themselves they need none.
    """
    assert called(host, "127.0.0.1", **headers) == 403
    assert called(host, "192.168.1.5", **headers) == 200


def test_a_program_whose_runtime_looks_like_a_browser_may() -> None:
    """Node's `fetch` says how it asks, and not from where."""
    node = {"user-agent": "node", "sec-fetch-mode": "cors", "accept-language": "*"}
    assert called("host.docker.internal", "127.0.0.1", **node) == 200


def test_over_a_real_connection_the_address_is_known() -> None:
    async def work() -> list[int]:
        async with served(Service()) as port, httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{port}/health"
            hosts = ("host.docker.internal", "mac.local", "evil.example")
            return [(await client.get(url, headers={"host": host})).status_code for host in hosts]

    assert run(work()) == [200, 200, 403]
