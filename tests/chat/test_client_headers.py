"""Lines about the client at the beginning of system prompts (B19)."""

from typing import Any

import pytest

from bushel.chat.client_headers import KNOWN, without_headers
from bushel.chat.prompt import prepare
from bushel.core.options import ChatOptions
from bushel.models import Preparer
from tests.chat.templates import templated

HEADER = "x-anthropic-billing-header: cc_version=2.1.325.{}; cc_entrypoint=sdk-cli;"
PROMPT = "You are an agent.\n\nBe brief."
QUESTION = {"role": "user", "content": "What is it?"}


def system(*texts: str, role: str = "system") -> dict[str, Any]:
    """One text, or a block for each."""
    if len(texts) == 1:
        return {"role": role, "content": texts[0]}
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def ids(host: Preparer, *turns: Any, keep: bool = False) -> tuple[int, ...]:
    return prepare(
        host, {"messages": [*turns, QUESTION]}, chat_options=ChatOptions(keep_headers=keep)
    ).ids


@pytest.fixture(scope="module")
def host() -> Preparer:
    return templated("plain")


def said(nonce: str) -> dict[str, tuple[dict[str, Any], ...]]:
    header = HEADER.format(nonce)
    return {
        "a block": (system(header, PROMPT),),
        "a line": (system(f"{header}\n{PROMPT}"),),
        "a paragraph": (system(f"{header}\n\n{PROMPT}"),),
        "two lines": (system(f"{header}\n{header}\n{PROMPT}"),),
        "a message": (system(header), system(PROMPT)),
        "of a developer": (system(header, PROMPT, role="developer"),),
        "in capitals": (system(header.upper() + "\n" + PROMPT),),
    }


@pytest.mark.parametrize("form", said(""))
def test_a_header_changes_no_token(host: Preparer, form: str) -> None:
    plain = system(PROMPT, role=said("")[form][-1]["role"])
    for nonce in ("669", "0af"):
        assert ids(host, *said(nonce)[form]) == ids(host, plain)


@pytest.mark.parametrize("form", said(""))
def test_a_header_is_kept_where_that_is_asked_for(host: Preparer, form: str) -> None:
    one, two = (ids(host, *said(nonce)[form], keep=True) for nonce in ("669", "0af"))
    assert one != two
    assert "cc_" in host.tokenizer.decode(one).lower()


OTHERS = {
    "in the middle": system(f"{PROMPT}\n{HEADER}"),
    "after a space": system(f" {HEADER}\n{PROMPT}"),
    "without a colon": system("x-anthropic-billing-header is a header"),
    "unknown": system(f"x-session: 1\n{PROMPT}"),
    "of a user": system(HEADER, PROMPT, role="user"),
    "empty": system(""),
}


@pytest.mark.parametrize("case", OTHERS)
def test_nothing_else_is_touched(host: Preparer, case: str) -> None:
    turns = [OTHERS[case], QUESTION]
    assert without_headers(turns) == turns
    assert ids(host, OTHERS[case]) == ids(host, OTHERS[case], keep=True)


def test_later_system_messages_are_left_alone() -> None:
    turns = [system(PROMPT), QUESTION, system(f"{HEADER}\n{PROMPT}")]
    assert without_headers(turns) == turns


def test_a_block_before_other_parts_goes_alone() -> None:
    image = {"type": "image"}
    header = {"type": "text", "text": HEADER}
    rest = {"type": "text", "text": PROMPT}
    turn = {"role": "system", "content": [header, image, rest]}
    assert without_headers([turn]) == [{"role": "system", "content": [image, rest]}]
    longer = {"role": "system", "content": [{**header, "text": f"{HEADER}\n{PROMPT}"}, image]}
    assert without_headers([longer]) == [{"role": "system", "content": [rest, image]}]


def test_a_request_of_nothing_else_is_left_as_it_is() -> None:
    assert without_headers([system(HEADER)]) == [system(HEADER)]
    assert without_headers([system(HEADER), QUESTION]) == [QUESTION]


def test_every_known_header_says_where_it_comes_from() -> None:
    assert all(KNOWN.values())
    assert all(name == name.lower() and " " not in name for name in KNOWN)
