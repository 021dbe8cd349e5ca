"""The items that a reply is made of, each with the events that tell of it."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from bushel.server.api.custom_tool_input import InputText
from bushel.server.api.opaque_thoughts import seal
from bushel.server.responses.items import Item, new_id
from bushel.server.responses.tools import Offer

Emit = Callable[[str, dict[str, Any]], None]
Status = Literal["in_progress", "completed", "incomplete"]
Entries = list[msgspec.Raw]  # of log-probabilities, encoded once: they are told five times


@dataclass(frozen=True)
class ReasoningForm:
    """summarised: thoughts are told as a summary. encrypted: also as a string to send back."""

    summarised: bool = False
    encrypted: bool = False


class OutputItem(ABC):
    """One item. It is told when it begins, at each piece, and when it ends."""

    kind: str

    def __init__(self, emit: Emit, at: int):
        self.id = new_id(self.kind)
        self.status: Status = "in_progress"
        self._emit = emit
        self._at = at
        self._place = {"item_id": self.id, "output_index": at}
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def begin(self) -> None:
        self._emit("response.output_item.added", {"output_index": self._at, "item": self.item()})
        self.began()

    def end(self, status: Status) -> None:
        self.ended()
        self.status = status
        self._emit("response.output_item.done", {"output_index": self._at, "item": self.item()})

    @abstractmethod
    def item(self) -> Item:
        """As it is now; nothing of its content while it is being told."""

    @abstractmethod
    def began(self) -> None: ...

    @abstractmethod
    def add(self, text: str) -> None: ...

    @abstractmethod
    def ended(self) -> None: ...


class MessageItem(OutputItem):
    kind = "message"

    def __init__(self, emit: Emit, at: int):
        super().__init__(emit, at)
        self._place["content_index"] = 0
        self._entries: Entries = []

    def item(self) -> Item:
        content = [] if self.status == "in_progress" else [self._part()]
        head = {"id": self.id, "type": "message", "status": self.status}
        return {**head, "role": "assistant", "content": content}

    def _part(self) -> dict[str, Any]:
        logprobs = self._entries
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs}

    def began(self) -> None:
        self._emit("response.content_part.added", {**self._place, "part": self._part()})

    def add(self, text: str, entries: Sequence[msgspec.Raw] = ()) -> None:
        self._texts.append(text)
        self._entries.extend(entries)
        fields = {**self._place, "delta": text, "logprobs": entries}
        self._emit("response.output_text.delta", fields)

    def ended(self) -> None:
        fields = {**self._place, "text": self.text, "logprobs": self._entries}
        self._emit("response.output_text.done", fields)
        self._emit("response.content_part.done", {**self._place, "part": self._part()})


class ReasoningItem(OutputItem):
    """Its text is its content, or its summary, but not both: clients would show it twice."""

    kind = "reasoning"

    def __init__(self, emit: Emit, at: int, reasoning: ReasoningForm):
        super().__init__(emit, at)
        self._reasoning = reasoning
        if reasoning.summarised:
            index, text, part = "summary_index", "reasoning_summary_text", "reasoning_summary_part"
        else:
            index, text, part = "content_index", "reasoning_text", "content_part"
        self._place[index] = 0
        self._text_event, self._part_event = f"response.{text}", f"response.{part}"

    def item(self) -> Item:
        ended = self.status != "in_progress"
        parts = [self._part()] if ended else []
        summarised = self._reasoning.summarised
        item: Item = {"id": self.id, "type": "reasoning", "summary": parts if summarised else []}
        if not summarised:
            item["content"] = parts
        if self._reasoning.encrypted and ended:
            item["encrypted_content"] = seal(self.text)
        return {**item, "status": self.status}

    def _part(self) -> dict[str, Any]:
        kind = "summary_text" if self._reasoning.summarised else "reasoning_text"
        return {"type": kind, "text": self.text}

    def began(self) -> None:
        self._emit(f"{self._part_event}.added", {**self._place, "part": self._part()})

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._emit(f"{self._text_event}.delta", {**self._place, "delta": text})

    def ended(self) -> None:
        self._emit(f"{self._text_event}.done", {**self._place, "text": self.text})
        self._emit(f"{self._part_event}.done", {**self._place, "part": self._part()})


class FunctionCallItem(OutputItem):
    kind = "function_call"
    _key = "arguments"
    _event = "response.function_call_arguments"

    def __init__(self, emit: Emit, at: int, offer: Offer):
        super().__init__(emit, at)
        self._offer = offer
        self._call_id = f"call_{uuid.uuid4().hex}"
        self._told = {"name": offer.name}  # beside the arguments, when they are whole

    def item(self) -> Item:
        text = "" if self.status == "in_progress" else self.text
        head = {"id": self.id, "type": self.kind, "status": self.status, "call_id": self._call_id}
        return {**head, **self._offer.identity, self._key: text}

    def began(self) -> None:
        return

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._emit(f"{self._event}.delta", {**self._place, "delta": text})

    def ended(self) -> None:
        self._emit(f"{self._event}.done", {**self._place, **self._told, self._key: self.text})


class CustomCallItem(FunctionCallItem):
    kind = "custom_tool_call"
    _key = "input"
    _event = "response.custom_tool_call_input"

    def __init__(self, emit: Emit, at: int, offer: Offer):
        super().__init__(emit, at, offer)
        self._told = {}
        self._input = InputText()

    def add(self, text: str) -> None:
        if added := self._input.feed(text):
            super().add(added)

    def ended(self) -> None:
        if rest := self._input.finish():
            super().add(rest)
        super().ended()
