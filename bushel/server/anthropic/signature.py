"""Signatures of thinking blocks: opaque to clients, which send them back as they came.

Where a client asks for thoughts to be left out of a reply, the signature carries them, so that
the conversation still holds them in the next turn and its tokens stay the same.
"""

from __future__ import annotations

import base64
import binascii

# What ends a block whose thoughts are shown; clients only look whether there is something.
SHOWN = "YnVzaGVs"
_CARRIES = "bushel."


def carrying(thoughts: str) -> str:
    """A signature that stands for thoughts which are not shown."""
    return _CARRIES + base64.urlsafe_b64encode(thoughts.encode()).decode()


def carried(signature: object) -> str:
    """The thoughts a signature stands for; empty if it is somebody else's, or damaged."""
    if not isinstance(signature, str) or not signature.startswith(_CARRIES):
        return ""
    try:
        return base64.urlsafe_b64decode(signature.removeprefix(_CARRIES)).decode()
    except (binascii.Error, ValueError):
        return ""
