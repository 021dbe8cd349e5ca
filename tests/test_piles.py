"""Tests come in an order in which no process has all the servers."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from tests.piles import in_piles, starts_servers

FOLDERS = ["tests/cache", "tests/server", "tests/peers", "tests/text"]
FILES = st.lists(st.tuples(st.sampled_from(FOLDERS), st.integers(1, 9)), max_size=30)
Name = tuple[str, int]


def names(files: list[tuple[str, int]]) -> list[Name]:
    return [
        (f"{folder}/{at}.py", one) for at, (folder, many) in enumerate(files) for one in range(many)
    ]


@given(FILES, st.integers(1, 4))
def test_every_test_is_run_once_and_no_file_of_servers_is_cut(
    files: list[tuple[str, int]], piles: int
) -> None:
    tests = names(files)
    ordered = in_piles(tests, lambda test: test[0], piles)
    assert sorted(ordered) == sorted(tests)
    runs = [file for file, _ in groupby(ordered, lambda test: test[0]) if starts_servers(file)]
    assert len(runs) == len(set(runs))
    light = [test for test in ordered if not starts_servers(test[0])]
    assert light == [test for test in tests if not starts_servers(test[0])]


def test_each_process_begins_with_servers_and_ends_with_what_needs_none() -> None:
    tests = names([("tests/cache", 8)] * 6 + [("tests/server", 4)] * 6)
    ordered = in_piles(tests, lambda test: test[0], 3)
    for at in range(3):
        kinds = [starts_servers(file) for file, _ in ordered[24 * at : 24 * (at + 1)]]
        assert kinds == [True] * 8 + [False] * 16
