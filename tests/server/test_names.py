"""Which names a model answers to, and what is said to the others."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from bushel.core import BushelError
from bushel.server.app import create_app
from bushel.server.errors import ApiError
from bushel.server.service.names import Names
from bushel.server.service.services import Services
from tests.depth import one_in
from tests.server import scripted_service as scripted


def unknown(names: Names, requested: str) -> ApiError:
    with pytest.raises(ApiError) as raised:
        names.resolve(requested)
    error = raised.value
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    return error


def test_a_hub_id_is_its_own_name() -> None:
    names = Names.of("org/model")
    assert (names.main, names.all) == ("org/model", ("org/model",))
    assert Names.of("bushel:tiny").main == "bushel:tiny"


def test_a_directory_is_called_by_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "llama-3"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for given in (str(folder), f"{folder}/", "."):
        names = Names.of(given)
        assert names.all == ("llama-3",)
        assert names.resolve(given) == "llama-3"
    monkeypatch.chdir(tmp_path)
    assert Names.of("llama-3").all == ("llama-3",)


def test_served_names_replace_the_models_own() -> None:
    names = Names.of("org/model", ("a", "b", "a"))
    assert (names.main, names.all) == ("a", ("a", "b"))
    unknown(names, "org/model")


def test_a_reply_carries_the_served_name_that_was_asked_for() -> None:
    names = Names.of("org/model", ("a", "b"))
    assert [names.resolve(it) for it in ("a", "b")] == ["a", "b"]


@pytest.mark.parametrize("requested", [None, "", "  "])
def test_a_request_that_names_no_model_gets_the_main_one(requested: str | None) -> None:
    assert Names.of("org/model", ("a", "b")).resolve(requested) == "a"


def test_aliases_match_in_order_and_after_served_names() -> None:
    aliases = (("gpt-4*", "b"), ("gpt-*", "a"), ("*", "b"), ("a", "b"))
    names = Names.of("org/model", ("a", "b"), aliases)
    assert names.resolve("gpt-4o") == "b"
    assert names.resolve("gpt-3.5") == "a"
    assert names.resolve("claude") == "b"
    assert names.resolve("a") == "a"
    assert names.resolve("new\nline") == "b"


def test_only_the_star_is_special() -> None:
    names = Names.of("m", (), (("gpt-[45]?", "m"), ("a.b", "m"), ("*-x-*", "m")))
    assert names.resolve("gpt-[45]?") == "m"
    assert names.resolve("1-x-2") == "m"
    for other in ("gpt-4o", "gpt-4", "aXb", "x", "GPT-[45]?", "a.b "):
        unknown(names, other)


def test_an_alias_must_lead_to_a_served_name() -> None:
    with pytest.raises(BushelError, match=r"gpt-\*=c.*only as a, b"):
        Names.of("org/model", ("a", "b"), (("x", "a"), ("gpt-*", "c")))


def test_an_unknown_model_is_named_in_the_answer() -> None:
    error = unknown(Names.of("org/model"), "gpt-4o")
    assert error.message.startswith("The model `gpt-4o` does not exist.")
    assert "`org/model`" in error.message
    assert "--model-alias" in error.message


@pytest.mark.parametrize(
    "requested", ["a" * 100_000, "evil\r\nSet-Cookie: x", "\x1b[2J", "a\u2028b"]
)
def test_a_hostile_name_is_shown_short_and_tame(requested: str) -> None:
    message = unknown(Names.of("org/model"), requested).message
    assert len(message) < 400
    assert message.isprintable()


def test_the_answer_does_not_tell_where_files_are(tmp_path: Path) -> None:
    assert str(tmp_path) not in unknown(Names.of(str(tmp_path)), "gpt-4o").message


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "", False),  # no name is the main one
        ("*", "x", True),
        ("a*", "a", True),
        ("*a", "ba", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*b*c", "abc", True),
        ("a**c", "ac", True),
        ("*b*b*", "ab", False),
        ("*ab*ab", "abab", True),
        ("*ab*ab", "aba", False),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, name: str, matches: bool) -> None:
    names = Names.of("m", ("main", "other"), ((pattern, "other"),))
    if matches:
        assert names.resolve(name) == "other"
    elif name:
        unknown(names, name)
    else:
        assert names.resolve(name) == "main"


def test_many_stars_and_a_long_name_are_answered() -> None:
    """Backtracking would not come to an end."""
    names = Names.of("m", (), (("a*" * 20 + "b", "m"),))
    unknown(names, "a" * 100_000)
    assert names.resolve("a" * 100_000 + "b") == "m"


# -- who serves a name ----------------------------------------------------------------------------


def serving(*names: str, aliases: tuple[tuple[str, str], ...] = ()) -> Any:
    return SimpleNamespace(names=Names.of("org/model", names, aliases))


def test_a_request_goes_to_who_serves_the_model_it_names() -> None:
    one, two = serving("a", aliases=(("claude-*", "a"),)), serving("b", "c")
    services = Services(one, two)
    assert [services.of(name) for name in ("a", "claude-x", "b", "c")] == [one, one, two, two]
    assert services.of(None) is services.of(" ") is services.main is one


def test_a_name_that_nobody_serves_is_refused_with_those_that_are_served() -> None:
    one, two = serving("a"), serving("b")
    with pytest.raises(ApiError) as together:
        Services(one, two).of("nobody")
    assert (together.value.status, together.value.code) == (404, "model_not_found")
    assert "This server has `a`, `b`" in together.value.message


def test_a_name_goes_before_an_alias_and_the_first_alias_before_later_ones() -> None:
    one, two = serving("a", aliases=(("*", "a"),)), serving("b", aliases=(("g*", "b"),))
    services = Services(one, two, aliases=(("g*", "b"), ("*", "a")))
    assert [services.of(name) for name in ("a", "b", "gpt", "x")] == [one, two, two, one]


MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("path", "body"),
    one_in(
        2,
        [
            ("/v1/chat/completions", {"messages": MESSAGES}),
            ("/v1/completions", {"prompt": "Hello"}),
            ("/v1/responses", {"input": "Hello"}),
            ("/v1/messages", {"messages": MESSAGES, "max_tokens": 4}),
            ("/v1/messages/count_tokens", {"messages": MESSAGES}),
            ("/tokenize", {"prompt": "Hello"}),
        ],
    ),
)
def test_every_route_asks_who_serves_the_model_of_the_request(
    path: str, body: dict[str, Any]
) -> None:
    one, two = (
        scripted.Service(options=scripted.options(served_names=(name,))) for name in ("a", "b")
    )

    async def post(model: str) -> int:
        app = create_app(Services(one, two))  # type: ignore[arg-type]
        transport = httpx.ASGITransport(scripted.unconnected(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.post(path, json={"model": model, **body})).status_code

    def asked() -> list[int]:
        return [len(service.jobs) + len(service.asked) for service in (one, two)]

    assert scripted.run(post("b")) == 200
    assert asked() == [0, 1]
    assert scripted.run(post("a")) == 200
    assert asked() == [1, 1]
    assert scripted.run(post("c")) == 404
    assert asked() == [1, 1]
