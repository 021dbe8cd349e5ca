"""Harmony, in which gpt-oss writes its whole reply: messages with a channel and a recipient.

    <|channel|>analysis<|message|>Let me look.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>
    {"path": "a.txt"}<|call|>
    <|start|>assistant to=functions.read<|channel|>commentary json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>It says …<|return|>

The newlines are only here. The prompt ends with `<|start|>assistant`, or inside a message. Tokens
that end a reply do not come as text, so the last message may just stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import around_arguments
from bushel.chat.tool_parsers.reading.parser import NoCall, Parser
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, Offered, ToolFormat
from bushel.core.delta import Delta, TextDelta, ThoughtDelta

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
# A message that was not ended ends where the next one begins.
_NEXT = (_START, _CHANNEL)
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_WHOLE_RECIPIENT = re.compile(r"\bto=([^\s<]+)(?=[\s<])")
_NOBODY = ("assistant", "user", "all")


class HarmonyReply(Parser):
    """Reads a reply like a section that never ends.

    opened: the prompt ends inside a message of thoughts.
    """

    def __init__(self, start: str, offered: Offered, first: int, *, opened: bool = False):
        self._body: Callable[[str], Delta] | None = ThoughtDelta if opened else None
        super().__init__(start, offered, first)

    def read(self) -> Generator[None]:
        if self._body:
            yield from self._message(self._body)
        while True:
            if marker := (yield from self.maybe(_START, _CHANNEL, _MESSAGE, "to=")):
                try:
                    yield from self._headed(marker)
                except NoCall:
                    self._named, self.refused = "", True
                    yield from self._unread()
            else:
                yield from self._message(TextDelta)

    def _headed(self, header: str) -> Generator[None]:
        if header != _MESSAGE:
            more, _ = yield from self.until(_MESSAGE)
            header += more
        recipient = _RECIPIENT.search(header)
        _, _, channel = header.rpartition(_CHANNEL)
        if recipient and recipient.group(1) not in _NOBODY:
            yield from self._call(recipient.group(1))
        else:
            yield from self._message(ThoughtDelta if channel.startswith("analysis") else TextDelta)

    def _message(self, kind: Callable[[str], Delta]) -> Generator[None]:
        """The rest of a message that is passed on."""
        self.raw, self._body = [], kind
        end = yield from self.pour(self._pass, *_ENDS, *_NEXT)
        self._body = None
        if end in _NEXT:
            self.back(end)
        self.raw = []

    def _pass(self, piece: str) -> None:
        self.raw = []
        if piece and self._body:
            self._out.append(self._body(piece))

    def _unread(self) -> Generator[None]:
        """A message that is said as it was generated, its markers included."""
        end = yield from self.pour(lambda _: self.settle(), *_ENDS, *_NEXT)
        if end in _NEXT:
            self.back(end)
        self.settle()

    def _call(self, recipient: str) -> Generator[None]:
        self.name(self._tool(recipient))
        if self._named in self.offered:
            yield from self.arguments(*_ENDS)
            self.end()
            yield from self.maybe(*_ENDS)
            self.settle()
        else:
            self.begin()
            yield from self._unread()
            self.end()

    def _tool(self, recipient: str) -> str:
        return recipient if recipient in self.offered else recipient.removeprefix("functions.")

    def finish(self) -> list[Delta]:
        if self._body:
            self._reading.close()
            self._pass(self.take(len(self.text)))
            self.done = True
            return self._given()
        header = "".join(self.raw) + self.text
        if not self.open and not self._named and any(marker in header for marker in _NEXT):
            # A header is markup, unless it names a call.
            named = _WHOLE_RECIPIENT.search(header)
            self.name(self._tool(named.group(1)) if named else "")
            self.raw, self.text, self.refused = [], "", False
        return super().finish()


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = around_arguments(lark, tools, f"to=functions.NAME <|constrain|>json{_MESSAGE}")
    return CallForm(bodies, open=f"{_CHANNEL}commentary ", single=True)


# Its markers are those of the thinking format of the same name.
HARMONY = ToolFormat(
    name="harmony",
    detect=Detection(model_types=("gpt_oss",)),
    starts=(),
    section=HarmonyReply,
    grammar=_grammar,
    history=BY_TEMPLATE,
    whole_reply=True,
)
