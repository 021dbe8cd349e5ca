"""From items to turns.

Items are smaller: what an assistant thought, said and called in one reply
are several items, and one turn.

    reasoning, message, function_call, function_call, function_call_output, function_call_output
    └────────────── one assistant turn ────────────┘  └── tool ───────────┘ └── tool ───────────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bushel.core.conversation import ToolCall, Turn
from bushel.server.api.errors import InvalidField
from bushel.server.api.opaque_thoughts import unseal
from bushel.server.api.unread_fields import note_ignored
from bushel.server.responses.compaction import KINDS, summary_of
from bushel.server.responses.content_parts import Content, content_of, text_of
from bushel.server.responses.items import Item
from bushel.server.responses.tools import BRINGING, flat_name

_ROLES = ("user", "assistant", "system", "developer")
# What OpenAI's own tools leave in a history. Their results are not text that could be told.
_SKIPPED = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "web_search_call",
    }
)


def turns_of(instructions: Any, earlier: Sequence[Item], items: Sequence[Item]) -> list[Turn]:
    turns = _Turns()
    if instructions:
        turns.speak("system", content_of("instructions", instructions))
    for at, item in enumerate(earlier):
        turns.take(f"previous_response_id: item {at}", item)
    for at, item in enumerate(items):
        turns.take(f"input[{at}]", item)
    turns.end_reply()
    if not turns.all:
        raise InvalidField("input", "must have at least one message")
    return turns.all


class _Turns:
    """Takes items in order. `_reply` is the assistant's turn that still grows."""

    def __init__(self) -> None:
        self.all: list[Turn] = []
        self._reply: Turn | None = None
        self._names: dict[str, str] = {}  # of calls, by their ids
        # What the reply has said and thought so far. Joining them each time costs their square.
        self._contents: list[Content] = []
        self._thoughts: list[str] = []

    def take(self, where: str, item: Item) -> None:
        kind = item["type"]
        if kind == "message":
            self._message(where, item)
        elif kind == "reasoning":
            self._thought(item)
        elif kind in ("function_call", "custom_tool_call"):
            self._call(where, item)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._result(where, item)
        elif kind in KINDS:
            self.speak("user", summary_of(where, item))
        elif kind in BRINGING:  # `tools.offers_of` has seen to them
            return
        elif kind in _SKIPPED:
            note_ignored(f"input: {kind}", "such tools are not run here")
        else:
            raise InvalidField(f"{where}.type", "is not a kind of item that this server knows")

    def speak(self, role: Any, content: Content) -> None:
        self.end_reply()
        self.all.append({"role": role, "content": content})

    def _message(self, where: str, item: Item) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidField(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
        silent = role == "assistant"
        content = content_of(f"{where}.content", item.get("content"), silent=silent)
        if role == "assistant":
            self._answer(content)
        else:
            self.speak("system" if role == "developer" else role, content)  # B11

    def _answer(self, content: Content) -> None:
        if self._contents and not self._growing().get(
            "tool_calls"
        ):  # two replies, one after the other
            self.end_reply()
        self._growing()
        if content:
            self._contents.append(content)

    def _thought(self, item: Item) -> None:
        text = unseal(item.get("encrypted_content"))
        if text is None:
            text = text_of(item.get("content")) or text_of(item.get("summary"))
        if text:
            self._growing()
            self._thoughts.append(text)

    def _call(self, where: str, item: Item) -> None:
        given = "arguments" if item["type"] == "function_call" else "input"
        for key in ("call_id", "name", given):
            if not isinstance(item.get(key), str):
                raise InvalidField(f"{where}.{key}", "must be a string")
        name = flat_name(item["name"], item.get("namespace"))
        arguments = item[given] if given == "arguments" else {"input": item[given]}
        call: ToolCall = {
            "id": item["call_id"],
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        self._names[item["call_id"]] = name
        self._growing().setdefault("tool_calls", []).append(call)

    def _result(self, where: str, item: Item) -> None:
        call = item.get("call_id")
        if not isinstance(call, str):
            raise InvalidField(f"{where}.call_id", "must be a string")
        content = content_of(f"{where}.output", item.get("output"), silent=True)
        self.end_reply()
        turn: Turn = {"role": "tool", "tool_call_id": call, "content": content}
        if call in self._names:
            turn["name"] = self._names[call]
        self.all.append(turn)

    def _growing(self) -> Turn:
        if self._reply is None:
            self._reply = {"role": "assistant", "content": ""}
            self.all.append(self._reply)
        return self._reply

    def end_reply(self) -> None:
        if self._reply is not None:
            self._reply["content"] = _joined(self._contents)
            if self._thoughts:
                self._reply["reasoning_content"] = "\n".join(self._thoughts)
        self._reply, self._contents, self._thoughts = None, [], []


def _joined(contents: list[Content]) -> Content:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n".join(texts)
    parts: list[dict[str, Any]] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts
