"""What a tool format is: how a model writes calls among its text.

The reader passes text on until one of a format's `starts` appears (B28). From there on the text
belongs to a section, which reads it in whatever pieces it comes, until the section is done:

    Let me look. <tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call> Then …
    text         ^ start      section                                                 ^ rest

The same text gives the same deltas, joined, however it is cut into pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from bushel.core.delta import Delta

# Name of each offered tool, with the JSON schema of its arguments.
Offered = Mapping[str, Mapping[str, Any]]


class CallSection(ABC):
    """One stretch of calls, from after its start marker.

    It emits CallBegin as soon as the name is known to be complete and offered, arguments as they
    come, and CallEnd. A call of a tool that was not offered, and what turns out to be no call,
    is emitted as `Text`, as it was generated, its markers included (B27). Markup itself is never
    emitted, nor is white space between calls.
    """

    def __init__(self, start: str, offered: Offered, first: int):
        """start: the marker that was found. first: the index of its first call."""
        self.start = start
        self.offered = offered
        self.index = first  # of the next call that begins
        self.done = False  # nothing more may be fed
        self.rest = ""  # when it is done: what came behind it

    @abstractmethod
    def feed(self, text: str) -> list[Delta]:
        """More text, of at least one character."""

    @abstractmethod
    def finish(self) -> list[Delta]:
        """The reply ends here. A call that is not complete ends as such (B24), and without
        anything that was not generated; what is no call yet is text."""


class ToolFormat(ABC):
    name: ClassVar[str]
    # Where a section may begin; the earliest one in the text counts, then the longest.
    starts: ClassVar[tuple[str, ...]]
    # Whether a section can only begin where nothing but white space was said before.
    leading: ClassVar[bool] = False
    # Of the starts of a leading format, those that may stand anywhere all the same.
    anywhere: ClassVar[tuple[str, ...]] = ()
    # Strings by which a template is known to use the format.
    signs: ClassVar[tuple[str, ...]] = ()
    # What it writes besides its starts that may be special tokens of a model.
    markup: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def section(self, start: str, offered: Offered, first: int) -> CallSection: ...


def held(text: str, markers: Iterable[str]) -> int:
    """Characters at the end of `text` that may be the beginning of a marker."""
    found = 0
    for marker in markers:
        for size in range(min(len(marker) - 1, len(text)), found, -1):
            if marker.startswith(text[-size:]):
                found = size
                break
    return found
