"""The last step of `normalise`: ids, arguments and thoughts in the forms that templates read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from bushel.chat.parse_messages import BETWEEN, FOLDED, MATCHED, Arguments, Turn, text_part
from bushel.text.template_abilities import Abilities

_NINE = re.compile("[A-Za-z0-9]{9}")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Ids:
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


def written(turn: Turn, can: Abilities, ids: Ids) -> Turn:
    made = {key: value for key, value in turn.items() if key not in (FOLDED, MATCHED)}
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


def _call(at: int, call: Mapping[str, Any], can: Abilities, ids: Ids) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    if isinstance(arguments, Arguments):
        arguments = arguments.text if can.calls == "text" else dict(arguments)
    function = {**call["function"], "arguments": arguments}
    return {"id": ids.of_call(at, call), "type": "function", "function": function}


def _recall(turn: Turn, thoughts: str, can: Abilities) -> None:
    """Thoughts where the template looks for them; one that does not look shows none."""
    content = turn["content"] or ""
    if can.thoughts == "content":
        if "tool_calls" in turn and can.text_with_calls != "beside":
            return  # what is said there would take the calls' place
        before = f"<think>\n{thoughts}\n</think>{BETWEEN}"
        whole = isinstance(content, str)
        turn["content"] = before + content if whole else [text_part(before), *content]
    elif can.thoughts == "part":
        parts = [text_part(content)] if isinstance(content, str) else content
        turn["content"] = [{"type": "thinking", "thinking": thoughts}, *parts]
    elif can.thoughts:
        turn[can.thoughts] = thoughts
