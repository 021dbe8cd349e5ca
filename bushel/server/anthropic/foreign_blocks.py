"""Blocks of earlier turns that another server made: what of them a model can read.

A conversation may have begun at a server that searches, fetches and runs code by itself. What it
found is part of what was said since; what cannot be carried leaves a line in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bushel.server.anthropic.blocks_to_parts import Part, parts_of
from bushel.server.api.errors import InvalidField

_CALLS = ("server_tool_use", "mcp_tool_use")
_RESULT = "_tool_result"
# Of a result, what is text. What is encrypted, and what names things, is not.
_READABLE = ("title", "url", "text", "data", "stdout", "stderr", "error_code", "file_id")
_DEEPEST = 8


def carried(where: str, kind: str, block: Mapping[str, Any]) -> list[Part]:
    """As `parts_of`; of a kind that this server does not support, a text that stands for it."""
    try:
        return parts_of(where, kind, block)
    except InvalidField as error:
        if error.code != "unsupported_block":
            raise
    return [{"type": "text", "text": f"[{_told(kind[:64], block)}]"}]


def _told(kind: str, block: Mapping[str, Any]) -> str:
    found = "\n".join(_words(block, 0))
    if kind in _CALLS:
        name, given = str(block.get("name", "a tool"))[:64], block.get("input") or {}
        return f"{name} was called: {json.dumps(given, ensure_ascii=False)}"
    if kind.endswith(_RESULT):
        tool = kind.removesuffix(_RESULT)
        return f"{tool} gave:\n{found}" if found else f"{tool} gave nothing that can be shown"
    about = f", of which this is known:\n{found}" if found else ""
    return f"A {kind} was here that cannot be shown{about}"


def _words(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _words(item, depth + 1)
    elif isinstance(value, dict):
        encoded = value.get("type") == "base64"
        for key, inner in value.items():
            if key in _READABLE and isinstance(inner, str) and not (encoded and key == "data"):
                yield inner
            elif isinstance(inner, list | dict):
                yield from _words(inner, depth + 1)
