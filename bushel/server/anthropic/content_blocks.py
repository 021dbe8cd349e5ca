"""A reply's deltas as content blocks, which begin, go on and end, one after the other.

Streams write these steps as they come; a whole reply is their fold (`ContentBlock`).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from bushel.core import CallBegin, CallEnd, CallPart, Delta, TextDelta
from bushel.server.api.call_arguments import arguments_object
from bushel.server.api.opaque_thoughts import seal

Kind = Literal["text", "thinking", "tool_use"]
# The signature of thoughts that are shown; clients only look whether there is something.
_SHOWN = "YnVzaGVs"


class BlockStart(NamedTuple):
    kind: Kind
    name: str = ""  # of the tool


class BlockDelta(NamedTuple):
    text: str


class BlockStop(NamedTuple):
    pass


Step = BlockStart | BlockDelta | BlockStop


class BlockEvents:
    """Which block each delta belongs to.

    Text that is nothing but white space makes no block: clients may not send such a one back.
    """

    def __init__(self) -> None:
        self._open: Kind | None = None
        self._blank = ""  # white space that no text has followed yet
        self.cut = False  # inside a call (B24)

    def take(self, delta: Delta) -> list[Step]:
        if isinstance(delta, CallPart):
            return [BlockDelta(delta.json)]
        if isinstance(delta, CallBegin):
            return self.begin("tool_use", delta.name)
        if isinstance(delta, CallEnd):
            self.cut = self.cut or not delta.complete
            return self.end()
        kind: Kind = "text" if isinstance(delta, TextDelta) else "thinking"
        if self._open == kind:
            return [BlockDelta(delta.text)]
        text = self._blank + delta.text
        if kind == "text" and not text.strip():
            ended, self._blank = self.end(), text
            return ended
        return [*self.begin(kind), BlockDelta(text if kind == "text" else delta.text)]

    def begin(self, kind: Kind, name: str = "") -> list[Step]:
        ended, self._open = self.end(), kind
        return [*ended, BlockStart(kind, name)]

    def end(self) -> list[Step]:
        """Also when the reply ends."""
        self._blank = ""
        if self._open is None:
            return []
        self._open = None
        return [BlockStop()]


class ContentBlock(msgspec.Struct):
    kind: Kind
    id: str = ""  # of a call
    name: str = ""
    pieces: list[str] = []

    def empty(self) -> dict[str, Any]:
        """As it is before anything of it was said."""
        if self.kind == "tool_use":
            return {"type": "tool_use", "id": self.id, "name": self.name, "input": {}}
        if self.kind == "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "text", "text": ""}

    def whole(self, hides_thoughts: bool) -> dict[str, Any]:
        text, block = "".join(self.pieces), self.empty()
        if self.kind == "tool_use":
            block["input"] = arguments_object(text)
        elif self.kind == "thinking":
            block["thinking"] = "" if hides_thoughts else text
            block["signature"] = self.signature(hides_thoughts)
        else:
            block["text"] = text
        return block

    def signature(self, hides_thoughts: bool) -> str:
        """It stands for thoughts that are not shown."""
        return seal("".join(self.pieces)) if hides_thoughts else _SHOWN
