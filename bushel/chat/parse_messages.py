"""What a conversation's messages say, checked, in one form whatever the client wrote.

    content          text, or a list of parts that holds at least one picture
    tool_calls       arguments are objects (`Arguments`), or a text that is none
    role             system, user, assistant or tool, or one that only the template knows
    reasoning_content, tool_call_id, name    as in `core.conversation`

One turn stands for each message, at the same place. What a template needs beyond that is
`chat.template.normalise`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from bushel.chat.media.decode import Intake
from bushel.core import RequestError

Turn = dict[str, Any]

BETWEEN = "\n\n"  # two messages that become one
# Keys that are no message's own, and never a template's.
FOLDED = "\0folded"  # the turn is to become part of the user's turn beside it
MATCHED = "\0matched"  # of a result: which of its turn's calls it answers

_ROLES = {"developer": "system", "function": "tool"}  # B11
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thought")
_PARTS = "text, image_url, video_url or video part"
_MEDIA = ("image_url", "video_url", "image", "video")  # image is a script's


class Picture(dict[str, Any]):
    """A part for the template; `at` counts the images and videos as they were sent."""

    def __init__(self, kind: str, at: int):
        super().__init__(type=kind)
        self.at = at


class Arguments(dict[str, Any]):
    """Of a call; `text` is how they were sent."""

    def __init__(self, value: Mapping[str, Any], text: str | None):
        super().__init__(value)
        self.text = json.dumps(value, ensure_ascii=False) if text is None else text


class Numbers:
    """Numbers with more digits than a float has: integers stand for them while templates run."""

    def __init__(self, content: Any):
        self._content = content
        self._texts: dict[str, str] = {}

    def read(self, text: str) -> float | int:
        number = float(text)
        if Decimal(text) == Decimal(repr(number)):
            return number
        stand_in = 87310964528917 * 10**20 + len(self._texts)
        written = json.dumps(self._content, default=str)
        while str(stand_in) in written:
            stand_in += 10**10
        self._texts[str(stand_in)] = text
        return stand_in

    def restored(self, rendered: str) -> str:
        for stand_in, text in self._texts.items():
            rendered = rendered.replace(stand_in, text)
        return rendered


def wrong(where: str, why: str, code: str = "invalid_request_error") -> RequestError:
    return RequestError(f"{where} {why}", code=code, param="messages")


class ParsedMessages:
    """Of one request's messages. `turns` has one for each; `referred` names tools that results
    refer to, whose definitions stand there."""

    def __init__(self, messages: Any, tools: Sequence[Any], media: Intake):
        if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
            raise RequestError(
                "messages must be a list with at least one message.", param="messages"
            )
        self.numbers = Numbers(messages)
        self.referred: set[str] = set()
        self._functions = dict(_functions(tools))
        self._media = media
        self.turns = [self._turn(f"messages[{at}]", message) for at, message in enumerate(messages)]

    def _turn(self, where: str, message: Any) -> Turn:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise wrong(where, "must be an object with a role.")
        turn = {key: value for key, value in message.items() if value is not None}
        turn["role"] = _ROLES.get(turn["role"], turn["role"])
        turn["content"] = self._content(f"{where}.content", turn["role"], turn.get("content"))
        if turn["role"] == "assistant":
            thoughts = [turn.pop(key) for key in _THOUGHTS if key in turn]
            if thought := next((text for text in thoughts if text and isinstance(text, str)), ""):
                turn["reasoning_content"] = thought
            calls = self._calls(where, turn)
            if calls and isinstance(turn["content"], str) and not turn["content"].strip():
                turn["content"] = ""  # clients differ in how they write silence
            turn |= {"tool_calls": calls} if calls else {}
        return turn

    # -- content ---------------------------------------------------------------------------

    def _content(self, where: str, role: str, content: Any) -> str | list[Any]:
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, Sequence) or not content:
            raise wrong(where, "must be text or a list of parts.")
        parts = [self._part(f"{where}[{at}]", role, part) for at, part in enumerate(content)]
        return collapsed(parts)

    def _part(self, where: str, role: str, part: Any) -> dict[str, Any]:
        """B17."""
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            return text_part(part["text"])
        if kind in _MEDIA:
            self._media.take(where, kind, part.get(kind), part)
            return Picture(kind.removesuffix("_url"), len(self._media.items) - 1)
        if kind == "tool_reference" and role == "tool" and isinstance(part.get("name"), str):
            self.referred.add(part["name"])
            function = self._functions.get(part["name"], {"name": part["name"]})
            return text_part(json.dumps(function, ensure_ascii=False))
        raise wrong(where, f"is not a {_PARTS}.")

    # -- calls -----------------------------------------------------------------------------

    def _calls(self, where: str, turn: Turn) -> list[dict[str, Any]]:
        calls = turn.pop("tool_calls", [])
        called = turn.pop("function_call", None)  # as they were once
        if isinstance(called, Mapping) and not calls:
            calls = [{"function": called}]
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise wrong(f"{where}.tool_calls", "must be a list of calls.")
        return [self._call(f"{where}.tool_calls[{at}]", call) for at, call in enumerate(calls)]

    def _call(self, where: str, call: Any) -> dict[str, Any]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise wrong(where, "must be an object with a function that has a name.")
        id = call.get("id")
        if id is not None and not isinstance(id, str):
            raise wrong(f"{where}.id", "must be a string.")
        arguments = self._arguments(f"{where}.function.arguments", function.get("arguments"))
        made = {"type": "function", "function": {**function, "arguments": arguments}}
        return {"id": id, **made} if id else made

    def _arguments(self, where: str, given: Any) -> Arguments | str:
        """B18."""
        if isinstance(given, Mapping):
            return Arguments(given, None)
        if given is None or (isinstance(given, str) and not given.strip()):
            return Arguments({}, "{}")
        if not isinstance(given, str):
            raise wrong(where, "must be an object, or the text of one.")
        try:
            value = json.loads(given, parse_float=self.numbers.read, parse_constant=_refuse)
        except (ValueError, RecursionError):  # models write such things, and clients repeat them
            return given
        return Arguments(value, given) if isinstance(value, dict) else given


def _refuse(name: str) -> float:
    raise ValueError(name)


def _functions(tools: Iterable[Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            yield function["name"], function


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def collapsed(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """As they are if there is a picture among them; otherwise their texts, line by line."""
    if any(isinstance(part, Picture) for part in parts):
        return list(parts)
    return "\n".join(part["text"] for part in parts)


def joined(one: Any, two: Any) -> Any:
    """Text with text; a list of parts stays whole, and in order."""
    if not one or not two:
        return one or two
    if isinstance(one, str) and isinstance(two, str):
        return one + BETWEEN + two
    left, right = (
        [text_part(content)] if isinstance(content, str) else content for content in (one, two)
    )
    seam = left[-1]["type"] == right[0]["type"] == "text"
    return [*left, *([text_part(BETWEEN)] if seam else ()), *right]
