"""What real clients ask of replies can be held to: their schemas and tools, as they send them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from bushel.chat.reply_constraint import constraint_of
from bushel.core import ReplyFormat
from bushel.models import Preparer
from bushel.text.grammar_compiler import prove
from tests.chat.corpus.bodies import NAMES, conversation
from tests.chat.structured_output.random_replies import host

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Preparer:
    return host(Path(tmp_path_factory.mktemp("plain")))


def proven(plain: Preparer, request: dict[str, Any], form: str) -> bool:
    """False if the reply is free."""
    constraint = constraint_of(ReplyFormat(form, "think"), request, opened=False, host=plain)
    if constraint is None or constraint.grammar is None:
        return False
    prove(plain.profile.grammar_tokens, constraint.grammar)
    return True


@pytest.mark.parametrize("name", NAMES)
def test_what_a_client_asks_for_can_be_enforced(plain: Preparer, name: str) -> None:
    """As it is, and with every tool required: in calls as JSON and as elements."""
    request = copy.deepcopy(conversation(name))
    proven(plain, request, "hermes")
    if request.get("tools"):
        for form in ("hermes", "xml", "gemma"):
            asked = {**request, "tool_choice": "required", "shape": None}
            assert proven(plain, asked, form), form


def test_some_clients_ask_for_something(plain: Preparer) -> None:
    """The control."""
    shaped = [name for name in NAMES if conversation(name).get("shape")]
    assert shaped
    assert all(proven(plain, conversation(name), "hermes") for name in shaped)
