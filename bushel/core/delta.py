"""What a reply says, piece by piece: text, thoughts and calls.

Every API writes these in its own form. A reply that is not streamed is their fold.
"""

from __future__ import annotations

import msgspec


class TextDelta(msgspec.Struct, frozen=True, tag=True):
    text: str


class ThoughtDelta(msgspec.Struct, frozen=True, tag=True):
    text: str


class CallBegin(msgspec.Struct, frozen=True, tag=True):
    """A call of an offered tool; `index` counts a reply's calls from 0."""

    index: int
    name: str


class CallPart(msgspec.Struct, frozen=True, tag=True):
    """A fragment of the call's arguments; together they are one JSON object's text."""

    index: int
    json: str


class CallEnd(msgspec.Struct, frozen=True, tag=True):
    """Exactly one for each `CallBegin`, before anything else is said.

    complete: False if the reply was cut off inside the call (B24); the fragments are then what was
    said so far, and nothing was added to make them look valid.
    """

    index: int
    complete: bool


Delta = TextDelta | ThoughtDelta | CallBegin | CallPart | CallEnd
