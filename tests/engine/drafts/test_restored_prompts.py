"""A prediction head knows of a prompt what it would if all of it had been run."""

from __future__ import annotations

from typing import Any

import pytest

from bushel import LLM, SamplingParams
from bushel.cache.prefix.prompt_ends import PromptEnds
from bushel.core import Usage
from bushel.engine.drafts.head_context import HeadContext
from tests.families.images import picture
from tests.llm.request_builders import chat, image, text

FIRST: list[dict[str, Any]] = [
    chat("Say this again: Ann saw Bo, Bo saw Ann, Ann saw Bo."),
    chat("Tell me a story about a cat."),
    chat(image(picture((64, 48), 3)), text("What is in the picture?")),
]


def asked(llm: LLM, request: dict[str, Any]) -> tuple[Usage, str]:
    params = SamplingParams(max_tokens=30, temperature=0, ignore_eos=True)
    [output] = llm.generate(request, params)
    assert output.error is None
    return output.usage, output.text


def guesses(usage: Usage) -> tuple[int, int]:
    return usage.drafted_tokens, usage.accepted_tokens


def held(llm: LLM) -> tuple[list[int], list[int]]:
    """Drafts that held, of turns that begin with an earlier prompt: restored, and run anew."""
    found: tuple[list[int], list[int]] = [], []
    for first in FIRST:
        llm.clear_cache()
        _, said = asked(llm, first)
        reply, more = {"role": "assistant", "content": said}, chat("Once more, please.")["messages"]
        turn = {"messages": [*first["messages"], reply, *more]}
        for usages, cached in zip(found, (True, False), strict=True):
            usage, _ = asked(llm, turn)
            assert (usage.cached_tokens > 0) == cached
            usages.append(usage.accepted_tokens)
            llm.clear_cache()
    return found


def test_the_same_request_guesses_alike_however_much_of_it_was_restored() -> None:
    """As many tokens, of which as many hold. B59."""
    with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
        for request in FIRST:
            cold, *again = (asked(llm, request)[0] for _ in range(3))
            assert cold.cached_tokens == 0
            assert all(usage.cached_tokens > 0 for usage in again)
            assert [guesses(usage) for usage in again] == [guesses(cold)] * 2
        llm.check_integrity()


@pytest.mark.long
def test_in_the_next_turn_a_head_knows_of_those_before() -> None:
    """But for what was said between two prompts."""
    with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
        restored, run = held(llm)
        assert sum(restored) >= 0.9 * sum(run) > 40
        llm.check_integrity()


@pytest.mark.long
def test_without_it_drafts_of_a_restored_prompt_hold_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control."""
    monkeypatch.setattr(PromptEnds, "put", lambda *_: None)
    with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
        for request in FIRST:
            cold, warm = (asked(llm, request)[0] for _ in range(2))
            assert guesses(warm) != guesses(cold)


def test_where_it_cannot_be_kept_a_reply_does_not_notice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a line in the log. B43."""

    def full(*_: Any) -> None:
        raise RuntimeError("[malloc] there is no room")

    with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
        _, right = asked(llm, FIRST[0])
        llm.clear_cache()
        monkeypatch.setattr(HeadContext, "take_recent", full)
        usage, said = asked(llm, FIRST[0])
        assert said == right
        assert usage.accepted_tokens > 0
        assert "is not kept: [malloc]" in caplog.text


def test_nothing_is_left_of_it_when_the_cache_is_cleared_or_the_device_failed() -> None:
    """Nor of the memory that it was promised. B65."""
    with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
        prefixes = llm._own_engine().prefixes
        assert prefixes is not None
        for forget in (llm.clear_cache, prefixes.distrust):
            asked(llm, FIRST[0])
            assert len(prefixes.ends) == 1
            llm.check_integrity()
            forget()
            assert (len(prefixes.ends), prefixes.ends.nbytes, prefixes.budget.bytes) == (0, 0, 0)
