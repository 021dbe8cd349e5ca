"""How far a reply's thoughts have come, where they may not go on for ever.

reply   <think> … … … </think> answer          opening, thoughts, ending
count           1 2 3 … up to the budget: then the row is made to say `closing`
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from bushel.core import Decoding, ThinkingBudget
from bushel.text.detokenizer import Decode, OutputProcessor

# Tokens beyond the budget in which a character that it cuts may still be completed.
_GRACE = 4


class ThinkingProgress:
    """Owned by one row. The ending is found in the text, because models spell it as they like."""

    def __init__(self, budget: ThinkingBudget, decode: Decode, decoding: Decoding):
        self._budget = budget
        whole = replace(decoding, stops=(), end_ids=frozenset(), markers=budget.markers)
        self._reply = OutputProcessor(decode, whole)
        self._text = ""  # which may still become the opening, or the ending
        self._begun = budget.opened
        self._spent = 0  # tokens of thought
        self._said = 0  # tokens of `closing`
        self.over = False  # no more of them can come, or could

    def copy(self) -> ThinkingProgress:
        """One that goes on by itself."""
        twin = copy(self)
        twin._reply = self._reply.copy()
        return twin

    def add(self, token: int) -> None:
        """A token that the row chose."""
        if self.over:
            return
        self._reply.add(token)
        self._text += self._reply.take()
        if self._begun:
            self._spent += 1
            self._look_for_ending()
        else:
            self._look_for_opening()

    def close(self) -> None:
        """The row has said the first of `forced`."""
        self._said += 1
        self.over = self._said == len(self._budget.closing)

    @property
    def forced(self) -> tuple[int, ...]:
        """What the row has to say next; empty while it is free."""
        late = self._spent - self._budget.tokens
        if self.over or not self._begun or late < 0:
            return ()
        if self._said == 0 and self._reply.mid_character and late < _GRACE:
            return ()
        return self._budget.closing[self._said :]

    def free(self, index: int) -> bool:
        """Whether nothing is forced at this place of the reply, whatever comes before it."""
        return self.over or index < self._budget.tokens

    def _look_for_opening(self) -> None:
        text, opening = self._text.lstrip(), self._budget.opening
        if text.startswith(opening):
            self._begun, self._text = True, text[len(opening) :]
            self._look_for_ending()
        elif not opening.startswith(text):
            self.over = True

    def _look_for_ending(self) -> None:
        ending = self._budget.ending
        self.over = ending in self._text
        self._text = self._text[1 - len(ending) :] if len(ending) > 1 else ""
