"""What a reply is held to while it is written, beyond its sampling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ThinkingBudget:
    """Reasoning ends after `tokens`: then the row is made to write `closing`, and goes on.

    opened: the prompt ends inside a thinking block. Otherwise reasoning begins with `opening`,
    and a reply that does not begin with it has none. markers: as `ReplyFormat.markers`, for these
    two.
    """

    tokens: int
    opened: bool
    opening: str
    ending: str
    closing: tuple[int, ...]
    markers: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Constraint:
    """grammar: llguidance's, as the text of a Lark grammar, for the whole reply."""

    grammar: str | None = None
    budget: ThinkingBudget | None = None
