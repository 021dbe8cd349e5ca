"""A reply's items, and the events by which they are told as they grow.

deltas ─> ItemOutput ─> emit("response.output_text.delta", {...}) …
                  └───> items: what the reply is made of when it has ended

A reply that is not streamed is the same, with nobody to listen.
"""

from __future__ import annotations

from bushel.core import Event
from bushel.core.delta import CallBegin, CallEnd, CallPart, TextDelta, ThoughtDelta
from bushel.server.responses.items import Item
from bushel.server.responses.output_items import (
    CustomCallItem,
    Emit,
    Entries,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningForm,
    ReasoningItem,
    Status,
)
from bushel.server.responses.tools import Offers


class ItemOutput:
    """Takes a reply's events in order, then its `end`."""

    def __init__(self, emit: Emit, offers: Offers, reasoning: ReasoningForm):
        self._emit = emit
        self._offers = offers
        self._reasoning = reasoning
        self._all: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._space = ""  # what was said of an item that has nothing else yet
        self._entries: Entries = []  # of tokens that are not text yet

    @property
    def items(self) -> list[Item]:
        return [growing.item() for growing in self._all]

    def take(self, event: Event, entries: Entries) -> None:
        """entries: the log-probabilities of those of its tokens that are shown."""
        self._entries += entries
        for delta in event.deltas:
            if isinstance(delta, TextDelta):
                self._text(delta.text)
                continue
            self._entries = []
            if isinstance(delta, ThoughtDelta):
                self._thought(delta.text)
            elif isinstance(delta, CallBegin):
                self._space = ""
                offer = self._offers[delta.name]
                kind = FunctionCallItem if offer.kind == "function" else CustomCallItem
                self._begin(kind(self._emit, len(self._all), offer))
            elif isinstance(delta, CallPart):
                assert self._open is not None
                self._open.add(delta.json)
            elif isinstance(delta, CallEnd):
                self._end("completed" if delta.complete else "incomplete")

    def end(self, *, cut: bool) -> None:
        """cut: the reply ended by its limit (B24)."""
        if not self._all:
            self._begin(MessageItem(self._emit, 0))
        self._end("incomplete" if cut else "completed")

    def lose(self) -> None:
        """The reply ends here, and nobody needs to be told of its items."""
        if self._open is not None:
            self._open.status, self._open = "incomplete", None

    def _text(self, text: str) -> None:
        if not isinstance(self._open, MessageItem):
            # White space between thoughts and a call is no message.
            if not (text := self._more_than_space(text)):
                return
            self._begin(MessageItem(self._emit, len(self._all)))
        entries, self._entries = self._entries, []
        assert isinstance(self._open, MessageItem)
        self._open.add(text, entries)

    def _thought(self, text: str) -> None:
        if not isinstance(self._open, ReasoningItem):
            if not (text := self._more_than_space(text)):
                return
            self._begin(ReasoningItem(self._emit, len(self._all), self._reasoning))
        assert self._open is not None
        self._open.add(text)

    def _more_than_space(self, text: str) -> str:
        """All that waits, if an item can begin with it; else it goes on waiting."""
        text = self._space + text
        self._space = "" if text.strip() else text
        return "" if self._space else text

    def _begin(self, item: OutputItem) -> None:
        self._end("completed")
        self._open = item
        self._all.append(item)
        item.begin()

    def _end(self, status: Status) -> None:
        if self._open is not None:
            self._open.end(status)
            self._open = None
