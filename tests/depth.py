"""How many of the examples of random and exhaustive tests are tried.

A part of them, in a run that somebody waits for; with BUSHEL_TEST_DEPTH=all every one, as in
`make test-long`.
"""

import os

ALL = os.environ.get("BUSHEL_TEST_DEPTH") == "all"


def some(count: int) -> int:
    """Of so many random examples, how many are tried."""
    return count if ALL else -(-count // 4)
