"""Calls as part of an assistant's text, for models whose templates leave it to others to write.

Some templates tell tools and results, and print of a reply nothing but its text: the model's own
call markup is expected to stand in there. It is known by the control token that it begins with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bushel.chat.template.abilities import Abilities
from bushel.text.tokenizer import Tokenizer

Call = Mapping[str, Any]
Write = Callable[[Sequence[Call]], str]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _python(value: Any) -> str:
    """A literal, with texts between double quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json(key)}: {_python(it)}" for key, it in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    return _json(value) if isinstance(value, str) else repr(value)


def _liquid(calls: Sequence[Call]) -> str:
    made = []
    for call in calls:
        arguments = call["function"]["arguments"]
        given = ", ".join(f"{name}={_python(it)}" for name, it in arguments.items())
        made.append(f"{call['function']['name']}({given})")
    return f"<|tool_call_start|>[{', '.join(made)}]<|tool_call_end|>"


def _granite(calls: Sequence[Call]) -> str:
    functions = [call["function"] for call in calls]
    return "<|tool_call|>" + _json(
        [{key: it[key] for key in ("name", "arguments")} for it in functions]
    )


def _kimi(calls: Sequence[Call]) -> str:
    made = [
        f"<|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>"
        f"{_json(call['function']['arguments'])}<|tool_call_end|>"
        for call in calls
    ]
    return f"<|tool_calls_section_begin|>{''.join(made)}<|tool_calls_section_end|>"


_WRITERS: dict[str, Write] = {
    "<|tool_call_start|>": _liquid,
    "<|tool_calls_section_begin|>": _kimi,
    "<|tool_call|>": _granite,
}


def writer_of(tokenizer: Tokenizer, can: Abilities) -> Write | None:
    """None also where the template writes calls by itself."""
    if can.calls or not can.tools or not can.results:
        return None
    return next((it for name, it in _WRITERS.items() if name in tokenizer.controls), None)


def with_writer(can: Abilities, write: Write) -> Abilities:
    """What the template can take if its calls are written for it."""
    ids: Any = "indexed" if write is _kimi else "any"
    return replace(
        can, calls="object", said="beside", parallel=True, unanswered=True, silence="", ids=ids
    )


def inlined(turns: Sequence[Mapping[str, Any]], write: Write) -> list[dict[str, Any]]:
    """Texts in the turns are marked already (`chat.control_tokens`); what is added here is not."""
    found = []
    for turn in turns:
        made = dict(turn)
        if calls := made.pop("tool_calls", None):
            said = made["content"]
            made["content"] = "\n".join(it for it in (said, write(calls)) if it)
        found.append(made)
    return found
