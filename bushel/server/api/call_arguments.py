"""A call's arguments as an object, for APIs that do not have them as text."""

from __future__ import annotations

from typing import Any

import msgspec

# Where an object is needed and none was said: what was, under the name that Anthropic's own
# documentation gives it, so that it cannot be taken for arguments (B24).
INVALID = "INVALID_JSON"


def arguments_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID: text}
