"""Thoughts in the three APIs: asked for, told apart from the answer, limited and sent back."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.depth import often, one_in
from tests.peers.conftest import MODEL

SUM = "What is 3 + 4?"
MESSAGES: list[Any] = [{"role": "user", "content": SUM}]
THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
BUDGET: Any = {"type": "enabled", "budget_tokens": 2048}
STREAMED = pytest.mark.parametrize("stream", often([False, True], True))


def chat(client: openai.OpenAI, stream: bool, **extra: Any) -> tuple[str, str]:
    """(thoughts, answer)"""
    made: Any = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, stream=stream, extra_body=extra
    )
    if not stream:
        message = made.choices[0].message
        return getattr(message, "reasoning_content", ""), message.content
    deltas = [chunk.choices[0].delta for chunk in made]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    texts = [delta.content or "" for delta in deltas]
    # All that is thought comes before anything is said.
    last = max((at for at, text in enumerate(thoughts) if text), default=-1)
    assert not any(texts[: last + 1])
    return "".join(thoughts), "".join(texts)


def response(client: openai.OpenAI, stream: bool, **more: Any) -> tuple[str, str]:
    asked: dict[str, Any] = {"model": MODEL, "input": SUM, "temperature": 0, **more}
    made: Any = client.responses.create(stream=stream, **asked)
    if stream:
        events = list(made)
        told = "".join(it.delta for it in events if it.type == "response.reasoning_text.delta")
        made = events[-1].response
        assert told == _thoughts(made) or not told
    return _thoughts(made), made.output_text


def _thoughts(made: Any) -> str:
    items = [item for item in made.output if item.type == "reasoning"]
    parts = [part for item in items for part in (*(item.content or ()), *item.summary)]
    return "".join(part.text for part in parts)


def message(claude: anthropic.Anthropic, stream: bool, **more: Any) -> tuple[str, str]:
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 4096, **more}
    if stream:
        with claude.messages.stream(**asked) as events:
            made = events.get_final_message()
    else:
        made = claude.messages.create(**asked)
    thoughts = [block.thinking for block in made.content if block.type == "thinking"]
    texts = [block.text for block in made.content if block.type == "text"]
    return "".join(thoughts), "".join(texts)


@STREAMED
def test_thoughts_are_told_apart_from_the_answer(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    told = [
        chat(client, stream, **THINK),
        response(client, stream, extra_body=THINK),
        message(claude, stream, thinking=BUDGET),
    ]
    for thoughts, answer in told:
        assert thoughts
        assert "7" in answer
        assert "think>" not in thoughts + answer


@STREAMED
def test_without_being_asked_the_model_does_not_think(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    told = [chat(client, stream), response(client, stream), message(claude, stream)]
    assert [bool(thoughts) for thoughts, _ in told] == [False] * 3


@pytest.mark.parametrize(
    "wish",
    one_in(
        2,
        [
            {"enable_thinking": True},
            {"reasoning": {"enabled": True}},
            {"thinking": {"type": "enabled"}},
            {"reasoning_effort": "high"},
        ],
    ),
)
def test_every_way_to_ask_for_thoughts_is_understood(
    client: openai.OpenAI, wish: dict[str, Any]
) -> None:
    assert chat(client, False, **wish)[0]


@pytest.mark.parametrize(
    "wish",
    one_in(
        2,
        [
            {"enable_thinking": False},
            {"reasoning": {"enabled": False}},
            {"thinking": {"type": "disabled"}},
            {"reasoning_effort": "none"},
        ],
    ),
)
def test_every_way_to_turn_them_off_is_understood(
    client: openai.OpenAI, wish: dict[str, Any]
) -> None:
    assert not chat(client, False, **wish)[0]


def test_a_summary_has_the_thoughts(client: openai.OpenAI) -> None:
    made = client.responses.create(
        model=MODEL, input=SUM, reasoning={"summary": "auto"}, temperature=0, extra_body=THINK
    )
    [item] = [item for item in made.output if item.type == "reasoning"]
    assert item.summary[0].text
    assert not item.content


def test_sealed_thoughts_can_be_sent_back(client: openai.OpenAI) -> None:
    made = client.responses.create(
        model=MODEL,
        input=SUM,
        include=["reasoning.encrypted_content"],
        temperature=0,
        store=False,
        extra_body=THINK,
    )
    items: list[Any] = [item.model_dump(exclude_none=True) for item in made.output]
    assert items[0]["encrypted_content"]
    again: list[Any] = [*MESSAGES, *items, {"role": "user", "content": "Sure?"}]
    answered = client.responses.create(model=MODEL, input=again, max_output_tokens=5)
    assert answered.usage is not None
    assert answered.usage.output_tokens > 0


def test_thoughts_are_counted_in_responses(client: openai.OpenAI) -> None:
    made = client.responses.create(model=MODEL, input=SUM, temperature=0, extra_body=THINK)
    assert made.usage is not None
    thoughts = made.usage.output_tokens_details.reasoning_tokens
    assert 0 < thoughts < made.usage.output_tokens


def test_thoughts_have_a_signature_that_can_be_sent_back(claude: anthropic.Anthropic) -> None:
    first = claude.messages.create(model=MODEL, messages=MESSAGES, max_tokens=4096, thinking=BUDGET)
    [thought] = [block for block in first.content if block.type == "thinking"]
    assert thought.signature
    turns: list[Any] = [
        *MESSAGES,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": "Sure?"},
    ]
    assert claude.messages.create(model=MODEL, messages=turns, max_tokens=8).content


@STREAMED
def test_thoughts_that_are_cut_off_are_all_there_is(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    made: Any = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=2, stream=stream, extra_body=THINK
    )
    if stream:
        choices = [chunk.choices[0] for chunk in made]
        assert not "".join(choice.delta.content or "" for choice in choices)
        assert choices[-1].finish_reason == "length"
    else:
        assert not made.choices[0].message.content
        assert made.choices[0].finish_reason == "length"
