"""`docs/behaviours.md` and the tests name the same promises."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "behaviours.md").read_text()
CODE = re.compile(r"\bB\d{1,2}[a-z]?\b")
PROMISE = re.compile(r"^- \*\*(B\d+a?)\*\* ", re.MULTILINE)
READ = {".md", ".py", ".sh", ".toml", ".cu", ".cpp", ""}  # "": Makefile and .ci/run


def promises(page: str) -> tuple[list[str], list[str]]:
    """Codes of what holds today, and of what is to come."""
    today, to_come = page.split("\n## To come\n")
    return PROMISE.findall(today), PROMISE.findall(to_come)


def prose(path: Path, text: str) -> str:
    """What is written for people: of Python, only comments and docstrings."""
    return "\n".join(_prose_of_python(text)) if path.suffix == ".py" else text


def _prose_of_python(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def unknown(path: Path, text: str) -> set[str]:
    """Codes in a file that no promise has."""
    today, to_come = promises(PAGE)
    known = {*today, *to_come}
    if known.issuperset(CODE.findall(text)):
        return set()
    return set(CODE.findall(prose(path, text))) - known


@cache
def docstrings(text: str) -> tuple[tuple[str, str], ...]:
    """Names of a file's tests, with their docstrings."""
    nodes = ast.walk(ast.parse(text))
    functions = (it for it in nodes if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef))
    tests = (it for it in functions if it.name.startswith("test_"))
    return tuple((it.name, ast.get_docstring(it) or "") for it in tests)


def shown(text: str) -> set[str]:
    """Codes in the docstrings of a file's tests."""
    return {code for _, docstring in docstrings(text) for code in CODE.findall(docstring)}


def bare(text: str) -> list[str]:
    """Tests whose docstrings are nothing but codes."""
    dull = re.compile(rf"{CODE.pattern}|[\s,.]")
    return [
        name for name, docstring in docstrings(text) if docstring and not dull.sub("", docstring)
    ]


def sources() -> list[Path]:
    folders = ("bushel", "tests", "docs", "benchmarks", "tools", "scripts", ".ci")
    below = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    paths = [*ROOT.glob("*"), *below]
    return [
        path
        for path in paths
        if path.is_file() and path.suffix in READ and not path.name.startswith(".")
    ]


SOURCES = sources()
TESTS = {path: path.read_text() for path in SOURCES if path.match("test_*.py")}


def without_test(page: str, tests: Iterable[str]) -> set[str]:
    """Promises of today that no test shows."""
    today, _ = promises(page)
    return set(today).difference(*map(shown, tests))


def test_every_code_is_a_promise() -> None:
    """Whoever meets a code in a source, a test or a page finds what it means."""
    found = {str(path): unknown(path, path.read_text()) for path in SOURCES}
    assert {path: codes for path, codes in found.items() if codes} == {}


def test_every_promise_of_today_has_a_test() -> None:
    assert without_test(PAGE, TESTS.values()) == set()


def test_every_promise_stands_on_the_page_once_and_no_number_is_left_out() -> None:
    today, to_come = promises(PAGE)
    assert len({*today, *to_come}) == len([*today, *to_come])
    assert {int(code[1:].rstrip("a")) for code in (*today, *to_come)} == set(range(1, 85))


def test_no_docstring_of_a_test_is_a_code_alone() -> None:
    assert {str(path): bare(text) for path, text in TESTS.items() if bare(text)} == {}


def test_control_a_code_that_was_made_up_is_found() -> None:
    made_up = "B" + "99"
    source = f'x = "{made_up} in a string is data"\ndef work():\n    """Works. {made_up}."""\n'
    assert unknown(Path("work.py"), source) == {made_up}
    assert unknown(Path("work.py"), f"work()  # {made_up}\n") == {made_up}
    assert unknown(Path("page.md"), f"As {made_up} says.") == {made_up}
    assert unknown(Path("work.py"), f'{made_up} = "{made_up}"\n') == set()


def test_control_a_promise_without_a_test_is_found() -> None:
    page = PAGE.replace("## To come", "- **B90** Everything is free.\n\n## To come", 1)
    assert without_test(page, TESTS.values()) == {"B90"}
    helper = 'def free():\n    """Everything is free. B90."""\n'
    assert without_test(page, [*TESTS.values(), helper]) == {"B90"}
    assert without_test(page, [*TESTS.values(), helper.replace("free()", "test_free()")]) == set()


def test_control_a_docstring_of_codes_alone_is_found() -> None:
    assert bare('def test_one():\n    """B1, B2."""\ndef test_two():\n    """Two. B1."""\n') == [
        "test_one"
    ]
