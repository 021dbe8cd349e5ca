"""The order of tests in which several processes start as few servers as they can.

Each process is given as many tests as the others, one behind the other, and when it has none left
half of what another has left to do, from the end (`--dist worksteal`). In the order of their names
the last process would have all servers, and the others would take files of its in halves and start
the servers of both. So each has some folders of servers first, and then tests that need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

_SERVERS = ("tests/server/", "tests/peers/", "tests/commands/", "tests/test_guides.py")

Test = TypeVar("Test")


def starts_servers(file: str) -> bool:
    return file.startswith(_SERVERS)


def in_piles(tests: Sequence[Test], file: Callable[[Test], str], piles: int) -> list[Test]:
    """The same tests, in order, but for those of servers; these are cut between files alone."""
    first = [test for test in tests if starts_servers(file(test))]
    rest = iter([test for test in tests if not starts_servers(file(test))])
    dealt = _cut([list(group) for _, group in groupby(first, file)], len(first), piles)
    ordered: list[Test] = []
    for at, pile in enumerate(dealt, 1):
        ordered += pile
        ordered += _next(rest, at * len(tests) // piles - len(ordered))
    return [*ordered, *rest]


def _cut(files: Iterable[list[Test]], total: int, piles: int) -> list[list[Test]]:
    dealt: list[list[Test]] = [[] for _ in range(piles)]
    done = 0
    for tests in files:
        dealt[min(piles - 1, done * piles // max(1, total))] += tests
        done += len(tests)
    return dealt


def _next(rest: Iterable[Test], count: int) -> list[Test]:
    return [test for _, test in zip(range(count), rest, strict=False)]
