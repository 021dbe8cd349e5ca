"""Turns as a model's template can take them: see `chat.template` for what templates differ in.

Nothing a conversation says is lost or invented on the way. What has no place of its own is put
into the turn beside it, so that earlier tokens stay as they are when the conversation goes on.
Each step is a function from turns to turns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from bushel.chat.schemas import complete
from bushel.chat.template import Abilities
from bushel.chat.turns import Arguments, Picture, Turn, collapsed, text_part, wrong
from bushel.core import RequestError

BETWEEN = "\n\n"  # two messages that become one
_FOLDED = "\0folded"  # a key: the turn is to become part of the user's turn beside it
_MATCHED = "\0matched"  # a key: the result's call is there, and which of its turn's it is
_NINE = re.compile("[A-Za-z0-9]{9}")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def require_places(turns: Sequence[Turn], tools: Sequence[Any], can: Abilities) -> None:
    """Refuse what the template has no place for. One turn stands for each message."""
    if tools and not can.tools:
        raise RequestError(
            "tools: the model's chat template has no place for tools.",
            code="unsupported_tools",
            param="tools",
        )
    code = "unsupported_tools"
    for at, turn in enumerate(turns):
        where = f"messages[{at}]"
        calls = turn.get("tool_calls", [])
        if calls and not can.calls:
            told = "cannot be said: the model's chat template has no place for calls."
            raise wrong(f"{where}.tool_calls", told, code)
        if turn["role"] == "tool" and not can.results:
            told = "cannot be said: the model's chat template has no place for tools' results."
            raise wrong(where, told, code)
        for n, call in enumerate(calls):
            if isinstance(call["function"]["arguments"], str) and not can.call_text:
                told = "has arguments that are no JSON object, as the model's template needs them."
                raise wrong(f"{where}.tool_calls[{n}]", told)
        shows = turn["role"] == "tool" and isinstance(turn["content"], list)
        if shows and can.images == {"user"} and not (can.after_results or can.gap):
            told = "has an image, for which the model's template has no place there."
            raise wrong(f"{where}.content", told, "unsupported_media")


def normalise(
    turns: Sequence[Turn], can: Abilities, *, hoist: bool = False, tools: bool = False
) -> list[Turn]:
    """hoist: system messages go to the top, wherever they are. tools: the model is told of some."""
    found = _matched(turns)
    found = _with_systems(found, can, hoist)
    if tools and can.below_system and (not found or found[0]["role"] != "system"):
        found.insert(0, {"role": "system", "content": ""})
    found = _with_calls(found, can)
    found = _with_results(found, can)
    found = _in_turn(found, can)
    ids = _Ids(can)
    return [_written(turn, can, ids) for turn in found]


def tools_for(tools: Sequence[Any], referred: Iterable[str], can: Abilities) -> list[Any] | None:
    """Those that are told at the beginning: not the deferred ones, nor any that stands elsewhere.

    Told later, a tool changes no token before that.
    """
    told: list[Any] = []
    for tool in tools:
        if not isinstance(tool, Mapping):
            told.append(tool)
            continue
        function = tool.get("function", {})
        if tool.get("deferred") or function.get("name") in referred:
            continue
        shown = {key: it for key, it in tool.items() if key != "deferred"}
        shown = shown if can.any_schema else complete(shown)
        told.append(shown["function"] if can.tools == "flat" else shown)
    return told or ([] if can.needs_tools else None)


def pictures_of(turns: Iterable[Turn]) -> list[int]:
    """Which of the request's pictures come in which order."""
    contents = [turn["content"] for turn in turns if isinstance(turn["content"], list)]
    return [part.at for parts in contents for part in parts if isinstance(part, Picture)]


# -- calls and their results ---------------------------------------------------------------


def _matched(turns: Sequence[Turn]) -> list[Turn]:
    """Every call has an id, and every result that of its call, its name, and its place.

    Results come in the order of their calls: many templates tell them apart by nothing else.
    """
    found: list[Turn] = []
    calls: list[dict[str, Any]] = []  # of the last turn that had any
    waiting: list[int] = []  # which of them have no result yet
    named = 0
    for turn in turns:
        if turn.get("tool_calls"):
            calls = []
            for call in turn["tool_calls"]:
                calls.append({**call, "id": call.get("id") or f"call_{named}"})
                named += 1
            waiting = list(range(len(calls)))
            turn = {**turn, "tool_calls": calls}
        elif turn["role"] == "tool":
            at = _call_of(turn, calls, waiting)
            if at is not None:
                waiting = [it for it in waiting if it != at]
                call = calls[at]
                name = turn.get("name") or call["function"]["name"]
                turn = {**turn, "tool_call_id": call["id"], "name": name, _MATCHED: at}
        found.append(turn)
    return _ordered(found)


def _call_of(turn: Turn, calls: Sequence[Any], waiting: Sequence[int]) -> int | None:
    id, name = turn.get("tool_call_id"), turn.get("name")
    for at in [*waiting, *range(len(calls))]:
        if id and calls[at]["id"] == id:
            return at
    if id:
        return None
    fits = [at for at in waiting if name in (None, calls[at]["function"]["name"])]
    return fits[0] if fits else None


def _ordered(turns: Sequence[Turn]) -> list[Turn]:
    found: list[Turn] = []
    for run in _runs(turns):
        if run[0]["role"] == "tool":
            run = sorted(run, key=lambda turn: turn.get(_MATCHED, len(turns)))
        found += run
    return found


def _runs(turns: Sequence[Turn]) -> Iterable[list[Turn]]:
    """Turns of tools that follow one another, together; any other alone."""
    run: list[Turn] = []
    for turn in turns:
        if run and not (run[-1]["role"] == turn["role"] == "tool"):
            yield run
            run = []
        run.append(turn)
    if run:
        yield run


def _with_calls(turns: Sequence[Turn], can: Abilities) -> list[Turn]:
    """Every turn that calls, with its results, as one or more rounds that the template takes."""
    found: list[Turn] = []
    at = 0
    while at < len(turns):
        turn, at = turns[at], at + 1
        if not turn.get("tool_calls"):
            found.append(turn)
            continue
        results = []
        while at < len(turns) and turns[at]["role"] == "tool":
            results.append(turns[at])
            at += 1
        if not results and at < len(turns) and not can.unanswered:
            results = [_silent(n, call) for n, call in enumerate(turn["tool_calls"])]
        found += _rounds(turn, results, can)
    return found


def _silent(at: int, call: Mapping[str, Any]) -> Turn:
    name = call["function"]["name"]
    return {"role": "tool", "content": "", "tool_call_id": call["id"], "name": name, _MATCHED: at}


def _rounds(turn: Turn, results: Sequence[Turn], can: Abilities) -> Iterable[Turn]:
    calls = turn["tool_calls"]
    if turn["content"] and can.said == "before":
        thoughts = {key: it for key, it in turn.items() if key == "reasoning_content"}
        said = {key: it for key, it in turn.items() if key not in ("tool_calls", *thoughts)}
        yield {**said, **thoughts} if can.said_thoughts else said
        turn = {"role": "assistant", "content": "", "tool_calls": calls}
        turn |= {} if can.said_thoughts else thoughts
    if can.parallel or len(calls) == 1:
        yield turn
        yield from results
        return
    for at, call in enumerate(calls):
        yield {**turn, "tool_calls": [call]}
        yield from (it for it in results if it.get(_MATCHED) == at)
        turn = {"role": "assistant", "content": ""}
    yield from (it for it in results if _MATCHED not in it)


def _with_results(turns: Sequence[Turn], can: Abilities) -> list[Turn]:
    """Pictures, and what the user says, where results stand that cannot hold or precede them."""
    found: list[Turn] = []
    for run in _runs(turns):
        shown: list[Any] = []
        for turn in run:
            content = turn["content"]
            if turn["role"] != "tool":
                _follow(found, turn, can)
                continue
            if isinstance(content, list) and can.images and "tool" not in can.images:
                shown += [part for part in content if isinstance(part, Picture)]
                said = [part for part in content if not isinstance(part, Picture)]
                turn = {**turn, "content": collapsed(said)}
            if _MATCHED in turn or (can.orphans and any(it["role"] == "user" for it in found)):
                found.append(turn)
            else:
                _follow(found, {"role": "user", "content": turn["content"], _FOLDED: True}, can)
        if shown:
            _follow(found, {"role": "user", "content": shown, _FOLDED: True}, can)
    return found


def _follow(found: list[Turn], turn: Turn, can: Abilities) -> None:
    """Adds a turn that is no tool's.

    Some templates take no user's turn behind results, and others forget thoughts at it, whoever
    speaks. Then it becomes part of the last result, unless it is a user's own.
    """
    behind = bool(found) and found[-1]["role"] == "tool" and turn["role"] == "user"
    fits = isinstance(turn["content"], str) or "tool" in can.images
    if behind and fits and _FOLDED in turn and (can.forgets or not can.after_results):
        found[-1] = {**found[-1], "content": joined(found[-1]["content"], turn["content"])}
    elif behind and not can.after_results and can.gap:
        found += [{"role": "assistant", "content": ""}, turn]
    elif behind and not can.after_results and fits:
        found[-1] = {**found[-1], "content": joined(found[-1]["content"], turn["content"])}
    else:
        found.append(turn)


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
    return {**turn, "role": "user", _FOLDED: True}


def _in_turn(turns: Sequence[Turn], can: Abilities) -> list[Turn]:
    """B12: users and assistants alternate where the template needs that."""
    found: list[Turn] = []
    for turn in turns:
        before = found[-1] if found else {"role": ""}
        same = turn["role"] if turn["role"] == before["role"] else ""
        if same == "user" and (_FOLDED in turn or _FOLDED in before or not can.users):
            found[-1] = {**before, "content": joined(before["content"], turn["content"])}
        elif same == "assistant" and not can.assistants:
            found[-1] = _both(before, turn)
        else:
            found.append(turn)
    first = next((at for at, turn in enumerate(found) if turn["role"] != "system"), len(found))
    if first < len(found) and found[first]["role"] == "assistant" and not can.reply_first:
        found.insert(first, {"role": "user", "content": ""})
    return found


def _both(one: Turn, two: Turn) -> Turn:
    made = {**two, **one, "content": joined(one["content"], two["content"])}
    if "tool_calls" in made:
        made["tool_calls"] = [*one.get("tool_calls", ()), *two.get("tool_calls", ())]
    thoughts = [it["reasoning_content"] for it in (one, two) if "reasoning_content" in it]
    return {**made, "reasoning_content": BETWEEN.join(thoughts)} if thoughts else made


def joined(one: Any, two: Any) -> Any:
    """Text with text; a list of parts stays whole, and in order."""
    if not one or not two:
        return one or two
    if isinstance(one, str) and isinstance(two, str):
        return one + BETWEEN + two
    left, right = ([text_part(it)] if isinstance(it, str) else it for it in (one, two))
    seam = left[-1]["type"] == right[0]["type"] == "text"
    return [*left, *([text_part(BETWEEN)] if seam else ()), *right]


# -- how it is written ---------------------------------------------------------------------


class _Ids:
    """Ids of calls in the form that the template needs, and the same for their results."""

    def __init__(self, can: Abilities):
        self._form = can.ids
        self._count = 0
        self._given: dict[str, str] = {}

    def of_call(self, at: int, call: Mapping[str, Any]) -> str:
        id, name = call["id"], call["function"]["name"]
        made = {
            "any": id,
            "nine": nine(id),
            "indexed": f"functions.{name}:{self._count}",
            "numbered": f"functions.{name}:{at}",
        }[self._form]
        self._count += 1
        self._given[id] = made
        return made

    def of_result(self, turn: Turn) -> str | None:
        id = turn.get("tool_call_id")
        if id in self._given:
            return self._given[id]
        if self._form == "nine":
            return nine(str(id))
        return id if self._form == "any" else f"functions.{turn.get('name', '')}:{self._count}"


def nine(id: str) -> str:
    """Nine letters and digits, always the same for the same id."""
    if _NINE.fullmatch(id):
        return id
    number = int.from_bytes(hashlib.sha256(id.encode("utf-8", "replace")).digest())
    return "".join(_DIGITS[number // 62**at % 62] for at in range(9))


def _written(turn: Turn, can: Abilities, ids: _Ids) -> Turn:
    made = {key: it for key, it in turn.items() if key not in (_FOLDED, _MATCHED)}
    if calls := turn.get("tool_calls"):
        made["tool_calls"] = [_call(at, call, can, ids) for at, call in enumerate(calls)]
        if turn["content"] == "":
            made["content"] = can.silence
    elif turn["role"] == "tool" and (id := ids.of_result(turn)) is not None:
        made["tool_call_id"] = id
    if thoughts := made.pop("reasoning_content", ""):
        _recall(made, thoughts, can)
    if can.as_parts and isinstance(made["content"], str):
        made["content"] = [text_part(made["content"])]
    return made


def _call(at: int, call: Mapping[str, Any], can: Abilities, ids: _Ids) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    if isinstance(arguments, Arguments):
        arguments = arguments.text if can.calls == "text" else dict(arguments)
    function = {**call["function"], "arguments": arguments}
    return {"id": ids.of_call(at, call), "type": "function", "function": function}


def _recall(turn: Turn, thoughts: str, can: Abilities) -> None:
    """Thoughts where the template looks for them; one that does not look shows none."""
    if can.thoughts == "content":
        if "tool_calls" in turn and can.said != "beside":
            return  # what is said there would take the calls' place
        before = f"<think>\n{thoughts}\n</think>{BETWEEN}"
        said = turn["content"] or ""
        turn["content"] = before + said if isinstance(said, str) else [text_part(before), *said]
    elif can.thoughts == "part":
        said = turn["content"] or ""
        parts = [text_part(said)] if isinstance(said, str) else said
        turn["content"] = [{"type": "thinking", "thinking": thoughts}, *parts]
    elif can.thoughts:
        turn[can.thoughts] = thoughts
