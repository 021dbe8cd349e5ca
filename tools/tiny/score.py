"""Whether a reply is right, by what its question asks for."""

from __future__ import annotations

import json
import re
from typing import Any

from tools.tiny.chat import Check

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^>\n]+)>\s*(.*?)\s*</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def calls_in(reply: str) -> list[dict[str, Any]] | None:
    """The calls of a reply in either form; None where one cannot be read.

    Values of the `<parameter>` form are text; `same_calls` compares them as such.
    """
    calls: list[dict[str, Any]] = []
    for body in _CALL.findall(reply):
        function = _FUNCTION.search(body)
        if function:
            arguments = dict(_PARAMETER.findall(function.group(2)))
            calls.append({"name": function.group(1), "arguments": arguments, "text": True})
            continue
        try:
            call = json.loads(body)
            calls.append({"name": call["name"], "arguments": call["arguments"]})
        except (ValueError, KeyError, TypeError):
            return None
    return calls


def same_calls(reply: str, expected: list[dict[str, Any]]) -> bool:
    """Names and arguments exactly, types included."""
    calls = calls_in(reply)
    if calls is None or len(calls) != len(expected):
        return False
    return all(_same(call, wanted) for call, wanted in zip(calls, expected, strict=True))


def _same(call: dict[str, Any], wanted: dict[str, Any]) -> bool:
    arguments = wanted["arguments"]
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if call.get("text"):
        arguments = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in arguments.items()
        }
    # json.dumps tells 1 from 1.0 and from true, which == does not.
    mine, theirs = (
        json.dumps(it, sort_keys=True, ensure_ascii=False) for it in (call["arguments"], arguments)
    )
    return call["name"] == wanted["name"] and mine == theirs


def well_thought(reply: str) -> bool:
    """Thinking began in the prompt: it ends once, and an answer follows."""
    parts = reply.split("</think>")
    return len(parts) == 2 and "<think>" not in reply and all(part.strip() for part in parts)


def ends_with(reply: str, mark: str) -> bool:
    """Something, then the mark and nothing after it."""
    text = spoken(reply)
    return text.endswith(mark) and bool(text.removesuffix(mark).strip())


def spoken(reply: str) -> str:
    return reply.rpartition("</think>")[2].strip()


def _named(text: str, words: tuple[str, ...]) -> list[str]:
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word in words]


def right(reply: str, check: Check) -> bool:
    text, expected = spoken(reply), check.expected
    match check.how:
        case "says":
            return all(str(word).lower() in text.lower() for word in expected)
        case "any":
            return any(str(word).lower() in text.lower() for word in expected)
        case "exact":
            return text == expected.strip()
        case "number":
            found = _NUMBER.findall(text)
            return bool(found) and found[-1] == str(expected)
        case "yes":
            return _named(text, ("yes", "no")) == ["yes" if expected else "no"]
        case "last":  # of all these words, the first of them
            return _named(text, tuple(expected))[-1:] == expected[:1]
        case "which":
            return _named(text, ("first", "second")) == [expected]
        case "json":
            try:
                return bool(json.loads(text) == expected)
            except ValueError:
                return False
        case "calls":
            return same_calls(reply, expected)
        case "no_call":
            if calls_in(reply) != []:
                return False
            return right(reply, expected) if isinstance(expected, Check) else True
        case "ends":
            mark = expected["mark"]
            if not text.endswith(mark):
                return False
            return right(text.removesuffix(mark).strip(), expected["inner"])
        case "starts":
            mark = expected["mark"]
            if not text.startswith(mark):
                return False
            return right(text.removeprefix(mark).strip(), expected["inner"])
    raise ValueError(check.how)
