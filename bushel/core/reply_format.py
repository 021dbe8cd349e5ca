"""How a model writes what is not plain text: its thoughts and its calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplyFormat:
    """Names of `chat.reply`'s forms; empty: the model has no such thing.

    markers: (id, text) of the special tokens that those forms are made of. Other special tokens
    never become text; these do, for the reader of the reply.
    """

    tools: str = ""
    thinking: str = ""
    markers: tuple[tuple[int, str], ...] = ()
