"""How many of the examples of random and exhaustive tests are tried.

A part of them, in a run that somebody waits for; with BUSHEL_TEST_DEPTH=all every one, as in
`make test-long`.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

ALL = os.environ.get("BUSHEL_TEST_DEPTH") == "all"


def some(count: int) -> int:
    """Of so many random examples, how many are tried."""
    return count if ALL else -(-count // 4)


Case = TypeVar("Case")


def rarely(cases: Iterable[Case], which: Callable[[Case], bool]) -> list[Any]:
    """Cases for `parametrize`, of which these are long: others stand for them."""
    return [
        pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.long)
        if which(case)
        else case
        for case in cases
    ]


def often(cases: Iterable[Case], *those: Case) -> list[Any]:
    """Cases for `parametrize`, of which all but these are long: these stand for the others."""
    return rarely(cases, lambda case: case not in those)


def one_in(count: int, cases: Iterable[Case]) -> list[Any]:
    """Cases for `parametrize`, of which one in so many is tried and the others are long: they are
    alike. Those that have marks already are not counted.
    """
    found: list[Any] = []
    tried = 0
    for case in cases:
        if hasattr(case, "marks"):
            found.append(case)
            continue
        found += rarely([case], lambda _, at=tried: at % count > 0)
        tried += 1
    return found
