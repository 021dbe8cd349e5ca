"""The scripted model says its script through the real engine, however it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bushel import LLM, SamplingParams
from tests.clients.scripted_model import THOUGHT, call, calling_once, write

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "What is in it?"}
CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": {"path": "a"}}}
LONG = {"role": "system", "content": "word " * 1500}
SAID = call("read", {"path": "a"})


def result(text: str) -> list[dict[str, Any]]:
    asked = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    return [USER, asked, {"role": "tool", "tool_call_id": "c", "content": text}]


# Prompts of different lengths and scripts, and what is to be said.
TURNS: list[tuple[dict[str, Any], str]] = [
    ({"messages": [USER]}, "A short title"),
    ({"messages": [USER], "tools": [TOOL]}, SAID),
    ({"messages": [LONG, USER], "tools": [TOOL]}, SAID),
    ({"messages": result("Küche 🙂\n<b>"), "tools": [TOOL]}, "The tool said:\nKüche 🙂\n<b>\n"),
    ({"messages": [LONG, *result("two")], "tools": [TOOL]}, "The tool said:\ntwo\n"),
    ({"messages": [LONG, USER]}, "A short title"),
    ({"messages": [USER], "thinking": {"enabled": True}}, f"{THOUGHT}A short title"),
]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write(tmp_path_factory.mktemp("scripted") / "model", calling_once("read", {"path": "a"}))
    with LLM(str(path), trust_remote_code=True) as loaded:
        yield loaded


def said(llm: LLM, requests: list[dict[str, Any]]) -> list[str]:
    found = llm.generate(requests, SamplingParams(max_tokens=200))
    assert [output.error for output in found] == [None] * len(requests)
    decode = llm.tokenizer.decode
    return [decode([*output.token_ids], skip_special_tokens=True) for output in found]


def test_it_shares_a_batch(llm: LLM) -> None:
    """Rows of any length say the same together and alone, computed anew or from the cache."""
    requests, expected = zip(*TURNS, strict=True)
    assert llm.status()["lane"] == "batch"
    assert said(llm, list(requests)) == list(expected)
    for request, text in TURNS:
        assert said(llm, [request]) == [text]
    llm.check_integrity()
