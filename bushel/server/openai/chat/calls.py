"""A reply's calls in chunks and messages: of functions, of custom tools, or in the older form."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from bushel.core import CallBegin, CallPart
from bushel.core.delta import CallEnd
from bushel.server.api.custom_tool_input import InputText

_OLDER = {"tool_calls": "function_call"}  # of a finish reason


class ChatCall(ABC):
    """One call. What each of its pieces adds is a part of the call's object."""

    def __init__(self, name: str):
        self.id = f"call_{uuid.uuid4().hex[:24]}"
        self.name = name

    @abstractmethod
    def add(self, json: str) -> dict[str, Any] | None:
        """None if there is nothing to tell yet."""

    @abstractmethod
    def end(self) -> dict[str, Any] | None: ...

    @abstractmethod
    def as_object(self) -> dict[str, Any]:
        """All of it so far."""


class ChatFunctionCall(ChatCall):
    def __init__(self, name: str):
        super().__init__(name)
        self._arguments: list[str] = []

    def add(self, json: str) -> dict[str, Any]:
        self._arguments.append(json)
        return {"function": {"arguments": json}}

    def end(self) -> None:
        return None

    def as_object(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self._arguments)}
        return {"id": self.id, "type": "function", "function": function}


class ChatCustomCall(ChatCall):
    def __init__(self, name: str):
        super().__init__(name)
        self._input = InputText()

    def add(self, json: str) -> dict[str, Any] | None:
        return _input(self._input.feed(json))

    def end(self) -> dict[str, Any] | None:
        return _input(self._input.finish())

    def as_object(self) -> dict[str, Any]:
        custom = {"name": self.name, "input": self._input.text}
        return {"id": self.id, "type": "custom", "custom": custom}


def _input(text: str) -> dict[str, Any] | None:
    return {"custom": {"input": text}} if text else None


class ReplyCalls:
    """Of one choice. custom: names of tools whose input is text. older: the client knows
    `function_call` only, of which a message has one.
    """

    def __init__(self, custom: Collection[str], *, older: bool):
        self._custom = custom
        self._older = older
        self._all: list[ChatCall] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def take(self, delta: CallBegin | CallPart | CallEnd) -> dict[str, Any] | None:
        """What it adds, as a chunk's `delta`."""
        if isinstance(delta, CallBegin):
            kind = ChatCustomCall if delta.name in self._custom else ChatFunctionCall
            self._all.append(kind(delta.name))
            return self._told(delta.index, self._all[-1].as_object())
        call = self._all[-1]
        added = call.add(delta.json) if isinstance(delta, CallPart) else call.end()
        return self._told(delta.index, added)

    def _told(self, index: int, added: dict[str, Any] | None) -> dict[str, Any] | None:
        if added is None or (self._older and index > 0):
            return None
        if self._older:
            return {"function_call": added["function"]}
        return {"tool_calls": [{"index": index, **added}]}

    def message(self) -> dict[str, Any]:
        """What a whole message has of them."""
        if not self._all:
            return {}
        if self._older:
            return {"function_call": self._all[0].as_object()["function"]}
        return {"tool_calls": [call.as_object() for call in self._all]}

    def finish_reason(self, reason: str) -> str:
        return _OLDER.get(reason, reason) if self._older else reason
