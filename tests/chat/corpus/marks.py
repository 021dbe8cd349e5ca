"""Conversations with a mark in everything they say, so that each thing can be found again."""

import json
from dataclasses import dataclass, field
from typing import Any

from bushel.chat.client_headers import KNOWN

_MARK = "q7m{}z"
_NUMBER = 7300000000
_HEADERS = tuple(KNOWN)


@dataclass
class Marked:
    """A conversation, and where each of its marks belongs.

    blocks: the texts by their marks, for every place. A reply, its calls and their results are one
    place: results come in the order of their calls, and some templates tell each behind its call.
    """

    conversation: dict[str, Any]
    blocks: list[dict[str, str]] = field(default_factory=list)
    beside: set[str] = field(default_factory=set)  # marks of texts beside calls
    calls: list[str] = field(default_factory=list)  # names, in order
    results: bool = False
    told: list[str] = field(default_factory=list)  # marks of tools told at the beginning
    later: list[str] = field(default_factory=list)  # of those that results refer to
    untold: list[str] = field(default_factory=list)  # of those that nothing refers to
    pictures: int = 0


class _Marker:
    def __init__(self, conversation: dict[str, Any]):
        self.count = 0
        self.found = Marked({**conversation})
        self.referred: set[str] = set()
        self.found.conversation["messages"] = self._messages(conversation["messages"])
        if conversation.get("tools"):
            self.found.conversation["tools"] = [self._tool(tool) for tool in conversation["tools"]]

    def _mark(self) -> str:
        self.count += 1
        return _MARK.format(self.count)

    def _text(self, text: str) -> str:
        mark = self._mark()
        made = f"{text.rstrip()} {mark}"
        first, _, rest = made.partition("\n")
        # The one thing that is left out (B19).
        self.found.blocks[-1][mark] = rest if first.lower().startswith(_HEADERS) else made
        return made

    def _messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        made = []
        for message in messages:
            is_result = message["role"] == "tool"
            self.found.results |= is_result
            if not is_result or not self.found.blocks:
                self.found.blocks.append({})
            made.append(self._message(message))
        return made

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        made, content = dict(message), message.get("content")
        before = set(self.found.blocks[-1])
        if isinstance(content, str) and content.strip():
            made["content"] = self._text(content)
        elif isinstance(content, list):
            made["content"] = [self._part(part) for part in content]
        if calls := message.get("tool_calls"):
            self.found.beside |= set(self.found.blocks[-1]) - before
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
        function, arguments = call["function"], call["function"]["arguments"]
        self.found.calls.append(function["name"])
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        made = self._value(given)
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
        function, mark = tool["function"], self._mark()
        if function["name"] in self.referred:
            self.found.later.append(mark)
        else:
            (self.found.untold if tool.get("deferred") else self.found.told).append(mark)
        return {**tool, "function": {**function, "description": f"Of {mark}."}}


def marked(conversation: dict[str, Any]) -> Marked:
    return _Marker(conversation).found
