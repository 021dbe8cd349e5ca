"""Conversations with a mark in everything they say, so that each thing can be found again."""

import json
from dataclasses import dataclass, field
from typing import Any

_MARK = "q7m{}z"
_NUMBER = 7300000000


@dataclass
class Marked:
    """blocks: marks by the places they have; those of one place may come in any order.

    A reply, its calls and their results are one place: results come in the order of their calls,
    and some templates tell each right behind its call.
    """

    conversation: dict[str, Any]
    blocks: list[dict[str, str]] = field(default_factory=list)  # the text of each mark
    beside: set[str] = field(default_factory=set)  # marks of texts beside calls
    tools: dict[str, bool] = field(default_factory=dict)  # whether each is told at the beginning
    pictures: int = 0


class _Marker:
    def __init__(self, conversation: dict[str, Any]):
        self.count = 0
        self.found = Marked({**conversation})
        self.referred: set[str] = set()
        self.found.conversation["messages"] = self._messages(conversation["messages"])
        if conversation.get("tools"):
            self.found.conversation["tools"] = [self._tool(it) for it in conversation["tools"]]

    def _text(self, text: str) -> str:
        mark = _MARK.format(self.count)
        self.count += 1
        made = f"{text.rstrip()} {mark}"
        self.found.blocks[-1][mark] = made
        return made

    def _messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        made = []
        for message in messages:
            if message["role"] != "tool" or not self.found.blocks:
                self.found.blocks.append({})
            made.append(self._message(message))
        return made

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        made = dict(message)
        first = self.count
        content = message.get("content")
        if isinstance(content, str) and content.strip():
            made["content"] = self._text(content)
        elif isinstance(content, list):
            made["content"] = [self._part(part) for part in content]
        if calls := message.get("tool_calls"):
            self.found.beside |= {_MARK.format(at) for at in range(first, self.count)}
            made["tool_calls"] = [self._call(call) for call in calls]
        return made

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "text":
            return {**part, "text": self._text(part["text"])}
        if part["type"] == "tool_reference":
            self.referred.add(part["name"])
        else:
            self.found.pictures += 1
        return part

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = function["arguments"]
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        made = self._value(given)
        self.found.blocks[-1].setdefault(function["name"], function["name"])
        form = json.dumps(made) if isinstance(arguments, str) else made
        return {**call, "function": {**function, "arguments": form}}

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(it) for key, it in value.items()}
        if isinstance(value, list):
            return [self._value(it) for it in value]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.count += 1
            number = str(_NUMBER + self.count)
            self.found.blocks[-1][number] = number
            return int(number)
        return value

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        function = tool["function"]
        mark = _MARK.format(f"t{self.count}")
        self.count += 1
        told = not tool.get("deferred") and function["name"] not in self.referred
        self.found.tools[mark] = told
        if function["name"] in self.referred:
            at = next(
                n
                for n, it in enumerate(self.found.conversation["messages"])
                if {"type": "tool_reference", "name": function["name"]} in _parts(it)
            )
            assert at
        return {**tool, "function": {**function, "description": f"Of {mark}."}}


def _parts(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def marked(conversation: dict[str, Any]) -> Marked:
    return _Marker(conversation).found
