"""Conversations that began at another server go on here: earlier turns do not fail (B48)."""

from __future__ import annotations

from typing import Any

import pytest

from bushel.server.anthropic.conversation import conversation_of
from bushel.server.api.errors import InvalidField

ASKED = {"role": "user", "content": "And now?"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
SEARCHED: list[dict[str, Any]] = [
    {"type": "text", "text": "I shall look."},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [
            {
                "type": "web_search_result",
                "title": "Of tea",
                "url": "https://tea.example",
                "encrypted_content": "c2VjcmV0",
            }
        ],
    },
    {
        "type": "text",
        "text": "Tea is hot.",
        "citations": [{"type": "web_search_result_location", "cited_text": "hot"}],
    },
    {"type": "redacted_thinking", "data": "c2VjcmV0"},
]
RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an error": (
        {
            "type": "web_search_tool_result",
            "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
        },
        "[web_search gave:\nunavailable]",
    ),
    "a page": (
        {
            "type": "web_fetch_tool_result",
            "content": {
                "type": "web_fetch_result",
                "url": "https://tea.example",
                "content": {"type": "document", "source": {"type": "text", "data": "All of it."}},
            },
        },
        "[web_fetch gave:\nhttps://tea.example\nAll of it.]",
    ),
    "a pdf": (
        {"type": "web_fetch_tool_result", "content": {"type": "document", "source": PDF}},
        "[web_fetch gave nothing that can be shown]",
    ),
    "code": (
        {
            "type": "bash_code_execution_tool_result",
            "content": {"type": "bash_code_execution_result", "stdout": "4", "return_code": 0},
        },
        "[bash_code_execution gave:\n4]",
    ),
    "mcp": (
        {"type": "mcp_tool_result", "content": [{"type": "text", "text": "done"}]},
        "[mcp gave:\ndone]",
    ),
    "a file": (
        {"type": "container_upload", "file_id": "file_1"},
        "[A container_upload was here that cannot be shown, of which this is known:\nfile_1]",
    ),
    "what nobody knows yet": (
        {"type": "hologram", "frames": 3},
        "[A hologram was here that cannot be shown]",
    ),
}


def turns(*messages: dict[str, Any]) -> list[Any]:
    return list(conversation_of({"messages": [*messages, ASKED]})["messages"])


def test_what_was_searched_for_elsewhere_can_be_read() -> None:
    """And nothing of what is encrypted."""
    said = turns({"role": "user", "content": "Tea?"}, {"role": "assistant", "content": SEARCHED})[1]
    assert said == {
        "role": "assistant",
        "content": "I shall look.\n"
        '[web_search was called: {"query": "tea"}]\n'
        "[web_search gave:\nOf tea\nhttps://tea.example]\n"
        "Tea is hot.",
    }


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_a_block_of_another_server_leaves_a_line(name: str, role: str) -> None:
    block, line = RESULTS[name]
    said = turns({"role": "user", "content": "Hi"}, {"role": role, "content": [block]})[1]
    assert said["content"] == line


def test_a_document_that_cannot_be_read_passes_once_it_has_been_answered() -> None:
    asked = {"role": "user", "content": [{"type": "document", "title": "Mine", "source": PDF}]}
    [first, *_] = turns(asked, {"role": "assistant", "content": "It is short."})
    assert first["content"].startswith("[A document was here that cannot be shown")
    assert "Mine" in first["content"]
    assert PDF["data"] not in first["content"]


def test_what_is_asked_about_now_is_not_left_out() -> None:
    """A model that answered without it would answer something else. B48."""
    with pytest.raises(InvalidField, match="does not support"):
        conversation_of({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]})


def test_what_is_wrong_is_still_wrong() -> None:
    with pytest.raises(InvalidField, match="must be a string"):
        turns({"role": "assistant", "content": [{"type": "text", "text": 5}]})


def test_what_is_very_deep_costs_nothing() -> None:
    deep: Any = "x"
    for _ in range(2000):
        deep = {"content": deep}
    said = turns({"role": "assistant", "content": [{"type": "mcp_tool_result", "content": deep}]})
    assert said[0]["content"] == "[mcp gave nothing that can be shown]"
