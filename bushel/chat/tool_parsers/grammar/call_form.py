"""How a model writes calls, as far as a grammar has to know it.

    begin  open body close  between  open body close  end
           '---- a call --'          '---- a call --'

All but the bodies is fixed text. A body is one tool's name and arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bushel.chat.structured_output.json_schema import Schema
from bushel.chat.structured_output.lark import Lark


@dataclass(frozen=True)
class ToolGrammar:
    name: str
    schema: Schema  # of its arguments, as `json_schema.checked` leaves it
    exact: bool  # its arguments must match, or the request is refused


@dataclass(frozen=True)
class CallForm:
    """leading: nothing marks a call, so that it can only be the whole reply."""

    bodies: Sequence[str]  # one for each tool, in the grammar's text
    begin: str = ""
    open: str = ""
    close: str = ""
    between: str = ""
    end: str = ""
    single: bool = False  # a reply ends with its first call
    leading: bool = False


# Whether the model has a token, or its template a line, that says this text.
Knows = Callable[[str], bool]
# Writes the bodies of some tools' calls into a grammar.
CallGrammar = Callable[[Lark, Sequence[ToolGrammar], Knows], CallForm]


def ordered(lark: Lark, members: Sequence[tuple[str, bool]], separator: str) -> str:
    """Members in their order, (text, required) each, with separators between those that come.

    after: what may follow something; first: what may come where nothing came yet.
    """
    after = first = ""
    for text, required in reversed(members):
        following = f"{lark.mark(separator)} {text} {after}"
        leading = f"{text} {after}"
        if required:
            after, first = lark.rule(following), lark.rule(leading)
        else:
            first = lark.rule(f"{leading} | {first}" if first else f"({leading})?")
            after = lark.rule(f"{following} | {after}" if after else f"({following})?")
    return first
