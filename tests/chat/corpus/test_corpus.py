"""Everything that clients say reaches the model, through every template that has a place for it.

What a template has no place for is told by its abilities, and counted, so that this excuse cannot
become the rule.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any
from zlib import crc32

import pytest

from bushel.chat.prompt import prepare, read
from bushel.chat.template.inline_calls import inline_calls_of, with_inline_calls
from bushel.core import RequestError
from bushel.core.options import ChatOptions
from bushel.text.template_abilities import Abilities
from tests.chat.conversations import common
from tests.chat.corpus.bodies import NAMES, OWN, conversation
from tests.chat.corpus.marks import Marked, marked
from tests.chat.templates import ALL, MADE, templated
from tests.depth import one_in

pytestmark = pytest.mark.corpus

EVERY = os.environ.get("BUSHEL_TEST_FAMILIES") == "all"
# Of the pairs that are not all ours, one in so many.
_ONE_IN = 1 if EVERY else 8
_ENDING = 48  # characters that a template writes otherwise where nothing follows
# Renders nothing, whatever it is given.
REFUSE = frozenset(("fireworks-ai-llama-3-firefunction-v2",))
# Templates that write something anew when a conversation goes on: what tools there are, or how to
# answer, stands at the end; or thoughts go with every message.
REWRITE = frozenset((
    "bracketed", "moving", "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Mistral-Small-3.2-24B-Instruct-2506",
    "hfjs-LiquidAI-LFM2.5-VL-450M", "lenml-mistral_nemo", "mistralai-Mistral-Nemo-Instruct-2407",
    "vllm-tool-mistral", "vllm-tool-mistral3", "vllm-tool-mistral_parallel",
))  # fmt: skip


@cache
def said(name: str) -> Marked:
    return marked(conversation(name))


@cache
def abilities(template: str) -> Abilities:
    host = templated(template)
    can = host.profile.abilities
    inline = inline_calls_of(host.tokenizer.controls, can)
    return can if inline is None else with_inline_calls(can, inline)


def missing(asked: Marked, can: Abilities) -> str:
    """What the template has no place for, of what the conversation has; empty: it has all."""
    shown = any(
        isinstance(message.get("content"), list) for message in asked.conversation["messages"]
    )
    in_results = any(
        part["type"] == "image_url"
        for message in asked.conversation["messages"]
        if message["role"] == "tool" and isinstance(message.get("content"), list)
        for part in message["content"]
    )
    behind = can.after_results or can.gap
    for what, lacks in (
        ("tools", bool(asked.told or asked.later or asked.untold) and not can.tools),
        ("calls", bool(asked.calls) and not can.calls),
        ("results", asked.results and not can.results),
        ("pictures", bool(asked.pictures) and shown and not can.images),
        ("pictures in results", in_results and "tool" not in can.images and not behind),
    ):
        if lacks:
            return what
    return ""


def written(text: str) -> Iterator[str]:
    """Ways in which templates write a text: as it is, or inside JSON, or inside Python."""
    yield text.strip()
    for form in (json.dumps(text, ensure_ascii=False), json.dumps(text), repr(text)):
        yield form[1:-1].strip()
    yield "\n".join(line.strip() for line in text.strip().split("\n"))


def losses(text: str, asked: Marked, can: Abilities) -> Iterator[str]:
    """What does not stand in the prompt as it should."""
    low = 0
    for block in asked.blocks:
        marks = [mark for mark in block if can.text_with_calls or mark not in asked.beside]
        for mark in marks:
            if text.count(mark) != 1:
                yield f"{block[mark][:60]!r} is there {text.count(mark)} times"
            elif not any(form in text for form in written(block[mark])):
                yield f"{block[mark][:60]!r} has changed"
        places = [text.find(mark) for mark in marks]
        if places and min(places) < low:
            yield f"{block[marks[0]][:60]!r} is not in its place"
        low = max([low, *places])
    for name, count in Counter(asked.calls).items():
        if text.count(name) < count:
            yield f"of {count} calls of {name} some are missing"
    yield from (f"tool {it} is not told" for it in asked.told if it not in text)
    yield from (
        f"tool {it} is told {text.count(it)} times" for it in asked.later if text.count(it) != 1
    )
    yield from (f"deferred tool {it} is told" for it in asked.untold if it in text)


def picked(template: str, body: str) -> bool:
    ours = template in MADE and body in OWN
    return ours or crc32(f"{template} {body}".encode()) % _ONE_IN == 0


PAIRS = [(template, body) for template in ALL for body in NAMES if picked(template, body)]


@pytest.mark.parametrize("template", one_in(2, [*ALL]))
def test_nothing_that_a_client_says_is_lost(template: str) -> None:
    """Each text, call, value and result stands in the prompt once, and in its place. B14, B18."""
    host = templated(template)
    can = abilities(template)
    for body in (body for it, body in PAIRS if it == template):
        asked = said(body)
        lacks = missing(asked, can)
        try:
            found = read(host, asked.conversation)
            text = found.call.render()
        except RequestError as error:
            if not lacks and template not in REFUSE:
                pytest.fail(f"{body}: {error}")
            continue
        # Pictures are refused where a model cannot see; a template is not asked for them.
        assert lacks in ("", "pictures"), (body, lacks)
        if not lacks:
            assert list(islice(losses(text, asked, can), 5)) == [], body
            assert len(found.media) == asked.pictures


def test_most_templates_have_a_place_for_most_of_it() -> None:
    """Otherwise the test above could pass by excuses alone."""
    known = {template: abilities(template) for template in ALL}
    kinds = Counter(missing(said(body), known[template]) for template, body in PAIRS)
    assert kinds[""] >= 0.7 * len(PAIRS), kinds
    assert kinds["pictures in results"] <= 0.01 * len(PAIRS)
    ours = Counter(
        missing(said(body), known[it]) for it, body in PAIRS if it in MADE and body in OWN
    )
    assert ours[""] >= 150, ours
    assert len(MADE) >= 8
    assert len(OWN) >= 10


def test_control_a_lost_or_moved_text_is_noticed() -> None:
    asked = said("messages_results_and_text")
    host = templated("chatml_json")
    can = abilities("chatml_json")
    text = read(host, asked.conversation).call.render()
    assert not list(losses(text, asked, can))
    for block in asked.blocks:
        for mark in block:
            assert list(losses(text.replace(mark, ""), asked, can))
            assert list(losses(f"{mark} {text}", asked, can))
    first, last = (next(iter(asked.blocks[at])) for at in (0, -1))
    swapped = text.replace(first, "\0").replace(last, first).replace("\0", last)
    assert list(losses(swapped, asked, can))


# -- what goes on ----------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Messages, with content in one form."""
    if isinstance(value, list) and value and all(_is_text(it) for it in value):
        return "\n".join(it["text"] for it in value)
    if isinstance(value, list):
        return [plain(it) for it in value]
    return {key: plain(it) for key, it in value.items()} if isinstance(value, dict) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "text"


def goes_on(one: str, two: str) -> bool:
    before, after = (plain(conversation(it)["messages"]) for it in (one, two))
    tools = [
        [it for it in conversation(name).get("tools", []) if not it.get("deferred")]
        for name in (one, two)
    ]
    return bool(after[: len(before)] == before and tools[0] == tools[1])


def next_of(name: str) -> str:
    return re.sub(r"_turn(\d)$", lambda found: f"_turn{int(found[1]) + 1}", name)


TURNS = [
    it for it in NAMES if next_of(it) != it and next_of(it) in NAMES and goes_on(it, next_of(it))
]


def test_recorded_turns_go_on() -> None:
    assert len(TURNS) >= 5
    assert all(it in TURNS for it in OWN if it.endswith("_turn1"))


@pytest.mark.parametrize("template", [*ALL])
def test_the_next_turn_begins_with_this_one(template: str) -> None:
    """Also where system messages come later, and where tools are found on the way. B13, B19."""
    host = templated(template)
    for name in TURNS:
        if not picked(template, name) or template in REWRITE:
            continue
        asked = dict(conversation(name))
        asked["chat_template_kwargs"] = {"add_generation_prompt": False}
        try:
            before = read(host, asked).call.render()
            after = read(host, conversation(next_of(name))).call.render()
        except RequestError:
            continue  # the test above says whether it may
        assert common(before, after) >= len(before) - _ENDING, name


def test_control_a_hoisted_system_message_changes_what_came_before() -> None:
    host = templated("chatml_thinking")
    one, two = (conversation(f"messages_middle_system_turn{at}") for at in (2, 3))
    shared = []
    for hoist in (False, True):
        ids = [prepare(host, it, chat_options=ChatOptions(hoist=hoist)).ids for it in (one, two)]
        shared.append(common(*ids))
    assert shared[0] > shared[1] + 50
