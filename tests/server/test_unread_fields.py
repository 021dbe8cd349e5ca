"""Keys that are not obeyed: hints are ignored and told, misspelt ones are refused (B71)."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.spelling import one_edit_apart
from bushel.server.api import unread_fields
from bushel.server.api.other_servers_fields import OTHER_SERVERS_FIELDS
from bushel.server.openai.chat.schema import ChatRequest
from tests.server.scripted_service import Service, ask

HELLO = [{"role": "user", "content": "Hello"}]
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HELLO}),
    "completions": ("/v1/completions", {"prompt": "ab"}),
    "responses": ("/v1/responses", {"input": "Hello"}),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 5}),
}
MISSPELT = {
    "chat": {"max_token": "max_tokens", "temprature": "temperature", "tool_choise": "tool_choice"},
    "completions": {"max_tokenss": "max_tokens", "logprob": "logprobs", "tempreatur": ""},
    "responses": {"max_output_token": "max_output_tokens", "instruction": "instructions"},
    "messages": {"max_token": "max_tokens", "stop_sequence": "stop_sequences"},
}
HINTS = {
    "chat": {"verbosity": "low", "service_tier": "priority", "user": "me"},
    "completions": {"user": "me", "service_tier": "flex"},
    "responses": {"service_tier": "flex"},
    "messages": {"service_tier": "auto"},
}


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_fields, "_logged", set())


@pytest.mark.parametrize(
    ("api", "name", "known"),
    [(api, name, known) for api, names in MISSPELT.items() for name, known in names.items()],
)
def test_a_misspelt_key_is_refused_with_the_right_name(api: str, name: str, known: str) -> None:
    path, body = BODIES[api]
    service = Service()
    reply = ask(service, "POST", path, json={**body, name: 1})
    if not known:  # two letters apart
        assert reply.status_code == 200
        return
    assert reply.status_code == 400
    assert f"{name} is not known; {known} is." in reply.json()["error"]["message"]
    assert service.jobs == []


@pytest.mark.parametrize(
    ("api", "name", "value"),
    [(api, name, value) for api, hints in HINTS.items() for name, value in hints.items()],
)
def test_a_hint_is_ignored_and_told_once(
    api: str, name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path, body = BODIES[api]
    for _ in range(2):
        assert ask(Service(), "POST", path, json={**body, name: value}).status_code == 200
    [line] = [line for line in caplog.messages if repr(name) in line]
    assert line == f"Ignored the request field {name!r}: it is a hint that changes nothing here."


@pytest.mark.parametrize("name", sorted(OTHER_SERVERS_FIELDS - set(ChatRequest.model_fields)))
def test_what_other_servers_know_is_no_misspelling(name: str) -> None:
    path, body = BODIES["chat"]
    assert ask(Service(), "POST", path, json={**body, name: None}).status_code == 200


@pytest.mark.parametrize("name", ["topp", "nn", "seeds", "stops", "x" * 5000, "messag"])
def test_short_and_far_names_are_not_guessed_at(name: str) -> None:
    path, body = BODIES["chat"]
    assert ask(Service(), "POST", path, json={**body, name: 1}).status_code == 200


WORDS = st.text("abc_", max_size=6)


def edits(word: str) -> set[str]:
    """All that one edit makes of it."""
    letters, places = string.ascii_lowercase[:3] + "_", range(len(word) + 1)
    made = {word[:at] + letter + word[at:] for at in places for letter in letters}
    made |= {word[:at] + word[at + 1 :] for at in places[:-1]}
    made |= {word[:at] + letter + word[at + 1 :] for at in places[:-1] for letter in letters}
    made |= {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places[:-2]}
    return made - {word}


@given(WORDS, WORDS)
def test_one_edit_is_one_edit(one: str, two: str) -> None:
    assert one_edit_apart(one, two) == (two in edits(one))
    assert all(one_edit_apart(one, near) for near in edits(one))
