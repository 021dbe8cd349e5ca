"""A model's thoughts as a string that clients keep without reading it (`encrypted_content`).

They send it back with the next turn. Nothing in it is secret: it is the client's own reply.
"""

from __future__ import annotations

import base64
import binascii

_MARK = "bushel-1."


def sealed(text: str) -> str:
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def opened(content: object) -> str | None:
    """The thoughts; None if another server wrote this, or nobody."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return None
    try:
        return base64.urlsafe_b64decode(content.removeprefix(_MARK)).decode()
    except (binascii.Error, ValueError):
        return None
