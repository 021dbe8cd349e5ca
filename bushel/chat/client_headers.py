"""Lines that agents put before their system prompt, which are about them and not for the model.

They change from conversation to conversation, and being the first tokens of all they would keep
any two from sharing a word (B19). They are taken out before rendering, unless the server is told
to keep them (`--keep-client-headers`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

_LEADING = ("system", "developer")

# Name, and where it has been seen.
KNOWN = {
    # Claude Code 2.1: "cc_version=2.1.325.669; cc_entrypoint=sdk-cli;". The last three digits of
    # the version are made from the first question.
    "x-anthropic-billing-header": "the first block of Claude Code's system prompt",
}

_LINES = re.compile(rf"(?:(?:{'|'.join(map(re.escape, KNOWN))}):[^\n]*(?:\n+|\Z))+", re.IGNORECASE)


def without_headers(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns, of which the leading system messages have lost such lines at their beginning.

    One that consists of nothing else is left out.
    """
    lead = len(list(takewhile(lambda turn: turn.get("role") in _LEADING, turns)))
    kept = [_stripped(turn) for turn in turns[:lead]]
    pairs = zip(kept, turns, strict=False)
    leading = [left for left, turn in pairs if left is turn or left["content"]]
    return [*leading, *turns[lead:]] or list(turns)


def _stripped(turn: dict[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    text = parts[0].get("text") if parts else None
    headers = _LINES.match(text) if isinstance(text, str) else None
    if headers is None:
        return turn
    rest = headers.string[headers.end() :]
    if isinstance(content, str):
        return {**turn, "content": rest}
    return {**turn, "content": [{**parts[0], "text": rest}, *parts[1:]] if rest else parts[1:]}
