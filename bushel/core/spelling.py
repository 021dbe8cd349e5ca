"""What someone may have meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a sentence that says so: a near name of those that are known, or a full stop."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def one_edit_apart(one: str, two: str) -> bool:
    """Whether one letter more, less or changed, or two that changed places, makes one the other."""
    if one == two or abs(len(one) - len(two)) > 1:
        return False
    at = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    if at is None:  # one goes on where the other ends
        return True
    swapped = one[at : at + 2] == two[at : at + 2][::-1] and one[at + 2 :] == two[at + 2 :]
    replaced = one[at + 1 :] == two[at + 1 :]
    return swapped or replaced or one[at + 1 :] == two[at:] or one[at:] == two[at + 1 :]
