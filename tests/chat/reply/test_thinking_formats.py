"""Thoughts are told from text (B29)."""

from __future__ import annotations

import pytest

from bushel.chat.reply.reader import Reader
from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.core import ReplyFormat
from tests.chat.reply.sample_replies import TOOLS, Said, read

CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def heard(
    reply: str, thinking: str = "think", *, opened: bool = False, special: tuple[str, ...] = ()
) -> Said:
    reply_format = ReplyFormat("hermes", thinking, tuple(enumerate(special)))
    whole = read(Reader(reply_format, TOOLS, opened=opened), [reply])
    assert read(Reader(reply_format, TOOLS, opened=opened), reply) == whole
    without = read(Reader(reply_format, {}, opened=opened), reply)
    assert "<tool_call>" in reply or (without.text, without.thoughts) == (
        whole.text,
        whole.thoughts,
    )
    return whole


@pytest.mark.parametrize(
    "form", [form for name, form in THINKING_FORMATS.items() if name != "harmony"]
)
def test_every_form_in_every_way_to_begin_and_end(form: object) -> None:
    """Opened by the model or by the template, closed or not. B29."""
    name, opening, ending = form.name, form.opening, form.ending  # type: ignore[attr-defined]
    said = heard(f"{opening}\nWell.\n{ending}\n\nHello. \n", name)
    assert (said.thoughts, said.text) == ("Well.", "Hello. \n")
    said = heard(f"Well.\n\n{ending}Hello.", name, opened=True)
    assert (said.thoughts, said.text) == ("Well.\n", "Hello.")
    said = heard(f"Well.\n{opening} Hm\n", name, opened=True)
    assert (said.thoughts, said.text) == (f"Well.\n{opening} Hm\n", "")
    said = heard(f" {opening}\n\n{ending}\n\nHello", name)
    assert (said.thoughts, said.text) == ("", "Hello")


def test_tags_in_text_are_text() -> None:
    """Forms that are plain words count only where nothing else was said. B29."""
    reply = "Write <think> first and </think> then."
    assert heard(reply).text == reply
    assert heard(f"<think>a</think>{reply}").text == reply


def test_an_ending_without_a_beginning_is_dropped_where_nothing_was_said() -> None:
    """A stray end of thoughts before the answer is not shown. B29."""
    assert heard("</think>\n\nHello").text == "Hello"
    assert heard("<think>a</think></think>Hello").text == "Hello"


def test_thoughts_go_on_after_a_call() -> None:
    """Both parts are thoughts, and the call between them is made. B29."""
    said = heard(f"<think>a</think>{CALL}\n<think>\nb</think>\nHello")
    assert said.thoughts == "ab"
    assert (said.text, said.order) == ("Hello", ["thought", "call", "thought", "text"])


def test_calls_inside_thoughts_are_thoughts() -> None:
    """A call that a model only considers is not made. B29."""
    said = heard(f"I try {CALL}, no.\n</think>\nHello", opened=True)
    assert (said.thoughts, said.text, said.calls) == (f"I try {CALL}, no.", "Hello", [])
    said = heard(f"I try {CALL[:-20]}</think>\nHello", opened=True)
    assert (said.text, said.calls) == ("Hello", [])


def test_a_reply_that_ends_with_calls_inside_its_thoughts_makes_them() -> None:
    """The model went over to calling without an end. B29."""
    said = heard(f"I call.\n{CALL}\n{CALL}\n", opened=True)
    assert said.thoughts == "I call."
    assert [call.name for call in said.calls] == ["now", "now"]
    cut_off = heard(f"I call.\n{CALL[:-20]}", opened=True)
    assert cut_off.calls == []
    assert cut_off.thoughts.endswith(CALL[:-20])


def test_a_call_that_begins_with_a_special_token_ends_thoughts() -> None:
    """The call is made, though the thoughts were never closed. B29."""
    said = heard(f"I call.\n{CALL}Hello", opened=True, special=("<tool_call>",))
    assert (said.thoughts, said.text) == ("I call.", "Hello")
    assert [call.name for call in said.calls] == ["now"]


@pytest.mark.parametrize(
    "reply",
    [
        "<|channel>thought\nWell.\n<channel|>Hello",
        "<|channel>thought\nWell.<|channel>response\nHello<channel|>",
        "<|channel>thought\nWell.\n<channel|><|channel>final\nHello",
        "<|channel>analysis\nWell.<channel|>\nHello",
    ],
)
def test_gemma_channels_in_all_transitions(reply: str) -> None:
    """Channel names are markup. B29."""
    said = heard(reply, "gemma", special=("<|channel>", "<channel|>"))
    assert (said.thoughts, said.text) == ("Well.", "Hello")


def test_gemma_channels_may_open_behind_text() -> None:
    """Thoughts in the middle of an answer are told apart from it. B29."""
    said = heard("Hello \n<|channel>thought\nWell.<channel|>\nthere", "gemma")
    assert (said.thoughts, said.text) == ("Well.", "Hello \nthere")
