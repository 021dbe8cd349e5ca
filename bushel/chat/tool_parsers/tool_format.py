"""What a tool format is: one way in which models write calls, in four parts.

    detect    how a model is known to use it
    section   reads calls out of a reply
    grammar   holds a reply to calls
    history   writes the calls of earlier turns into a prompt

A format is a value of `ToolFormat` in a file of its own, and a line in `registry.py`.

The reader passes text on until one of a format's `starts` appears (B28). From there on the text
belongs to a section, which reads it in whatever pieces it comes, until the section is done:

    Let me look. <tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call> Then …
    text         ^ start      section                                                 ^ rest

The same text gives the same deltas, joined, however it is cut into pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from bushel.chat.tool_parsers.grammar.call_form import CallGrammar
from bushel.core.delta import Delta

# Name of each offered tool, with the JSON schema of its arguments.
Offered = Mapping[str, Mapping[str, Any]]
# A call of an earlier turn, as templates are given it; its arguments are an object.
WrittenCall = Mapping[str, Any]


class CallSection(ABC):
    """One stretch of calls, from after its start marker.

    It emits CallBegin as soon as the name is known to be complete and offered, arguments as they
    come, and CallEnd. A call of a tool that was not offered, and what turns out to be no call,
    is emitted as `TextDelta`, as it was generated, its markers included (B27). Markup itself is
    never emitted, nor is white space between calls.
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


@dataclass(frozen=True)
class Detection:
    """By what a model is known to use a format. By nothing: only where no other one is known."""

    # Strings that stand in its template, or in what that renders for a call.
    signs: tuple[str, ...] = ()
    # For models that come without a template, or whose template leaves calls to a program.
    model_types: tuple[str, ...] = ()

    def matches(self, template: str) -> bool:
        return any(sign in template for sign in self.signs)


@dataclass(frozen=True)
class InlineCalls:
    """Calls as part of an assistant's text, for models whose templates leave that to others.

    Such a template tells tools and results, and prints of a reply nothing but its text: the
    model's own markup is expected to stand in there. control: the control token that it begins
    with, by which the model is known. ids: the form that the calls' ids must have.
    """

    control: str
    write: Callable[[Sequence[WrittenCall]], str]
    ids: Literal["any", "indexed"] = "any"


# The model's own template writes the calls of earlier turns.
BY_TEMPLATE: Final = "by template"


@dataclass(frozen=True, eq=False)
class ToolFormat:
    name: str
    detect: Detection
    # Where a section may begin; the earliest one in the text counts, then the longest.
    starts: tuple[str, ...]
    section: Callable[[str, Offered, int], CallSection]
    grammar: CallGrammar
    history: InlineCalls | Literal["by template"]
    # What it writes besides its starts that may be special tokens of a model.
    markup: tuple[str, ...] = ()
    # Whether a section can only begin where nothing but white space was said before.
    leading: bool = False
    # Of the starts of a leading format, those that may stand anywhere all the same.
    anywhere: tuple[str, ...] = ()
    # All of a reply is written in it, thoughts too: its section reads the reply from its first
    # character on, and the thinking format of the same name goes with it.
    whole_reply: bool = False

    @property
    def later_starts(self) -> tuple[str, ...]:
        """Where calls may begin behind other text."""
        return self.anywhere if self.leading else self.starts
