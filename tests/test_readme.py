"""`tests/README.md` names every variable that tests read and every module that helps them."""

import re
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parent
README = (TESTS / "README.md").read_text()
# Programs of other people's libraries, which `clients/README.md` tells of.
ELSEWHERE = TESTS / "clients" / "libraries"


def variables(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"\bBUSHEL_TEST_[A-Z_]+\b", text)}


def helpers() -> set[str]:
    plain = {"__init__.py", "__main__.py", "conftest.py"}
    return {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.name not in plain
        and not path.name.startswith("test_")
        and not path.is_relative_to(ELSEWHERE)
    }


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    root = TESTS.parent
    sources = [*TESTS.rglob("*.py"), *root.glob("tools/**/*.py")]
    used = variables(source.read_text() for source in sources if source != Path(__file__))
    assert used == variables([README])


def test_every_helper_is_named_and_every_named_one_exists() -> None:
    named = set(re.findall(r"`([a-z_/]+\.py)`", README.split("## Modules that help")[1]))
    assert helpers() == named


def test_a_variable_that_nobody_documented_is_noticed() -> None:
    made_up = "BUSHEL_TEST_" + "NOTHING"
    assert variables([f'os.environ["{made_up}"]']) - variables([README]) == {made_up}
