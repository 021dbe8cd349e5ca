"""Turns as a model's template can take them: see `text.template_abilities` for the differences.

Nothing a conversation says is lost or invented on the way. What has no place of its own is put
into the turn beside it, so that earlier tokens stay as they are when the conversation goes on.
Each step is a function from turns to turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from bushel.chat.parse_messages import BETWEEN, FOLDED, Picture, Turn, joined, wrong
from bushel.chat.template.to_template import Ids, written
from bushel.chat.template.tool_rounds import matched, with_calls, with_results
from bushel.chat.template.tool_schemas import complete
from bushel.core import RequestError
from bushel.text.template_abilities import Abilities

# Of a tool, what says something to Bushel and nothing to the model.
_OWN_KEYS = ("deferred", "input")


def require_places(turns: Sequence[Turn], tools: Sequence[Any], can: Abilities) -> None:
    """Refuse what the template has no place for. One turn stands for each message."""
    if tools and not can.tools:
        raise RequestError(
            "tools: the model's chat template has no place for tools. Leave them out, or use a "
            "model that knows tools.",
            code="unsupported_tools",
            param="tools",
        )
    code = "unsupported_tools"
    for at, turn in enumerate(turns):
        where = f"messages[{at}]"
        calls = turn.get("tool_calls", [])
        if calls and not can.calls:
            why = "cannot be said: the model's chat template has no place for calls."
            raise wrong(f"{where}.tool_calls", why, code)
        if turn["role"] == "tool" and not can.results:
            why = "cannot be said: the model's chat template has no place for tools' results."
            raise wrong(where, why, code)
        for n, call in enumerate(calls):
            if isinstance(call["function"]["arguments"], str) and not can.text_arguments:
                why = "has arguments that are no JSON object, as the model's template needs them."
                raise wrong(f"{where}.tool_calls[{n}]", why)
        shows = turn["role"] == "tool" and isinstance(turn["content"], list)
        if shows and can.images == {"user"} and not (can.after_results or can.gap):
            why = "has an image, for which the model's template has no place there."
            raise wrong(f"{where}.content", why, "unsupported_media")


def normalise(
    turns: Sequence[Turn], can: Abilities, *, hoist: bool = False, tools: bool = False
) -> list[Turn]:
    """hoist: system messages go to the top, wherever they are. tools: the model is told of some."""
    normal = matched(turns)
    normal = _with_systems(normal, can, hoist)
    if tools and can.below_system and (not normal or normal[0]["role"] != "system"):
        normal.insert(0, {"role": "system", "content": ""})
    normal = with_calls(normal, can)
    normal = with_results(normal, can)
    normal = _in_turn(normal, can)
    ids = Ids(can)
    return [written(turn, can, ids) for turn in normal]


def tools_for(
    tools: Sequence[Any], referred: Iterable[str], can: Abilities, *, called: bool
) -> list[Any] | None:
    """Those that are told at the beginning: not the deferred ones, nor any that stands elsewhere.

    Told later, a tool changes no token before that. called: there are calls in the conversation.
    """
    first: list[Any] = []
    for tool in tools:
        if not isinstance(tool, Mapping):
            first.append(tool)
            continue
        function = tool.get("function", {})
        if tool.get("deferred") or function.get("name") in referred:
            continue
        shown = {key: value for key, value in tool.items() if key not in _OWN_KEYS}
        shown = shown if can.any_schema else complete(shown)
        first.append(shown["function"] if can.tools == "flat" else shown)
    return first or ([] if can.needs_tools or (called and can.calls_need_tools) else None)


def pictures_of(turns: Iterable[Turn]) -> list[int]:
    """Which of the request's pictures come in which order."""
    contents = [turn["content"] for turn in turns if isinstance(turn["content"], list)]
    return [part.at for parts in contents for part in parts if isinstance(part, Picture)]


# -- who speaks when -----------------------------------------------------------------------


def _with_systems(turns: Sequence[Turn], can: Abilities, hoist: bool) -> list[Turn]:
    """B13: the leading ones are one; later ones stay, or go into the turn beside them."""
    lead = list(takewhile(lambda turn: turn["role"] == "system", turns))
    rest = list(turns[len(lead) :])
    if hoist:
        lead += [turn for turn in rest if turn["role"] == "system"]
        rest = [turn for turn in rest if turn["role"] != "system"]
    if not can.middle:
        rest = [_folded(turn) if turn["role"] == "system" else turn for turn in rest]
    if not lead:
        return rest
    first = lead[0]
    for turn in lead[1:]:
        first = {**first, "content": joined(first["content"], turn["content"])}
    asked = any(turn["role"] == "user" for turn in rest)
    keeps = can.system and (can.alone or asked)
    return [first if keeps else _folded(first), *rest]


def _folded(turn: Turn) -> Turn:
    return {**turn, "role": "user", FOLDED: True}


def _in_turn(turns: Sequence[Turn], can: Abilities) -> list[Turn]:
    """B12: users and assistants alternate where the template needs that."""
    merged: list[Turn] = []
    for turn in turns:
        before = merged[-1] if merged else {"role": ""}
        same = turn["role"] if turn["role"] == before["role"] else ""
        if same == "user" and (FOLDED in turn or FOLDED in before or not can.users):
            merged[-1] = {**before, "content": joined(before["content"], turn["content"])}
            if FOLDED not in turn:
                merged[-1].pop(FOLDED, None)
        elif same == "assistant" and not can.assistants:
            merged[-1] = _both(before, turn)
        else:
            merged.append(turn)
    first = next((at for at, turn in enumerate(merged) if turn["role"] != "system"), len(merged))
    if first < len(merged) and merged[first]["role"] == "assistant" and not can.reply_first:
        merged.insert(first, {"role": "user", "content": ""})
    return merged


def _both(one: Turn, two: Turn) -> Turn:
    made = {**two, **one, "content": joined(one["content"], two["content"])}
    if "tool_calls" in made:
        made["tool_calls"] = [*one.get("tool_calls", ()), *two.get("tool_calls", ())]
    thoughts = [turn["reasoning_content"] for turn in (one, two) if "reasoning_content" in turn]
    return {**made, "reasoning_content": BETWEEN.join(thoughts)} if thoughts else made
