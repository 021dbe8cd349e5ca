"""A model's thoughts as a string that clients keep without reading it, and send back as it came.

Where a reply does not show its thoughts, such a string stands for them, so that the conversation
still holds them in the next turn and its tokens stay the same. Nothing in it is secret: it is the
client's own reply.
"""

from __future__ import annotations

import base64
import binascii

_MARK = "bushel-1."
_MARKS = (_MARK, "bushel.")  # the second one is in conversations that began with an earlier version


def seal(thoughts: str) -> str:
    return _MARK + base64.urlsafe_b64encode(thoughts.encode()).decode()


def unseal(sealed: object) -> str | None:
    """The thoughts; None if another server wrote this, or nobody, or it is damaged."""
    if not isinstance(sealed, str) or not sealed.startswith(_MARKS):
        return None
    _, _, encoded = sealed.partition(".")
    try:
        return base64.urlsafe_b64decode(encoded).decode()
    except (binascii.Error, ValueError):
        return None
