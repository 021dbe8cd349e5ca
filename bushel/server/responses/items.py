"""A request's input as a list of items: each with a type and an id, references resolved."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bushel.server.api.errors import InvalidField
from bushel.server.errors import ApiError

Item = dict[str, Any]
# The item of an id, if it is known.
Find = Callable[[str], Item | None]

MOST_ITEMS = 16384
_REFERENCE = "item_reference"
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "cto",
    "compaction": "cmp",
}


def new_id(kind: str) -> str:
    return f"{_PREFIXES.get(kind, 'item')}_{uuid.uuid4().hex}"


def references(given: Any) -> list[str]:
    """The ids that a body's `input` refers to, as often as it does."""
    listed = given if isinstance(given, list) and len(given) <= MOST_ITEMS else []
    ids = [
        item.get("id") for item in listed if isinstance(item, dict) and _kind(item) == _REFERENCE
    ]
    return [name for name in ids if isinstance(name, str)]


def items_of(given: Any, find: Find) -> list[Item]:
    """Of a body's `input`; what an item says is looked at later."""
    if isinstance(given, str):
        return [_named({"role": "user", "content": given}, "message")]
    if not isinstance(given, list):
        raise InvalidField("input", "must be a string or a list of items")
    if len(given) > MOST_ITEMS:
        raise InvalidField("input", f"must be at most {MOST_ITEMS} items")
    return [_item(f"input[{at}]", item, find) for at, item in enumerate(given)]


def _item(where: str, item: Any, find: Find) -> Item:
    if not isinstance(item, dict):
        raise InvalidField(where, "must be an object")
    kind = _kind(item)
    if not isinstance(kind, str):
        raise InvalidField(f"{where}.type", "must say what kind of item it is")
    return _referenced(where, item, find) if kind == _REFERENCE else _named(item, kind)


def _kind(item: Item) -> Any:
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else _REFERENCE if "id" in item else None
    return kind


def _named(item: Mapping[str, Any], kind: str) -> Item:
    own = item.get("id")
    return {**item, "type": kind, "id": own if isinstance(own, str) and own else new_id(kind)}


def _referenced(where: str, item: Item, find: Find) -> Item:
    name = item.get("id")
    if not isinstance(name, str):
        raise InvalidField(f"{where}.id", "must be a string")
    kept = find(name)
    if kept is None:
        raise ApiError(
            404,
            f"{where} refers to the item {name[:100]!r}, which is not kept here. Items are kept in "
            "memory for a while, unless the request says store: false, and lost when the server "
            "restarts. Send the item itself.",
            code="item_not_found",
            param=f"{where}.id",
        )
    return kept


def shown(item: Item) -> Item:
    """As clients get it back: content is always a list of parts."""
    content = item.get("content")
    if item["type"] != "message" or not isinstance(content, str):
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    return {"status": "completed", **item, "content": [{"type": kind, "text": content}]}
