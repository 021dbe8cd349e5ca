"""What is shown to those who begin: docstrings, the notebook, and the README's scripts, all run."""

import ast
import asyncio
import doctest
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bushel
from tests.depth import one_in
from tests.drawings import see

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SCRIPTS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
NAMES = {name: getattr(bushel, name) for name in bushel.__all__}


def examples(name: str, docstring: str | None) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(docstring or "", dict(NAMES), name, None, None)


def failures(test: doctest.DocTest) -> int:
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    return runner.run(test, out=lambda text: print(text, end="")).failed


# -- docstrings -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(4, bushel.__all__))
def test_the_example_of_a_public_name_runs(name: str) -> None:
    test = examples(name, inspect.getdoc(NAMES[name]))
    assert test.examples, f"{name} has none"
    assert failures(test) == 0


def test_control_an_example_that_is_wrong_is_seen() -> None:
    assert failures(examples("wrong", ">>> 3 + 4\n8\n")) == 1


@pytest.mark.parametrize("name", ["LLM", "SharedLLM", "AsyncLLM", "Handle"])
def test_what_is_called_is_explained(name: str) -> None:
    """Every public method with arguments of its own says what it does."""
    silent = [
        method
        for method, value in vars(NAMES[name]).items()
        if not method.startswith("_")
        and inspect.isfunction(value)
        and len(inspect.signature(value).parameters) > 1
        and not inspect.getdoc(value)
    ]
    assert silent == []


# -- the notebook -----------------------------------------------------------------------------


def run_notebook(cells: list[dict[str, Any]]) -> None:
    """As Jupyter would: one after the other, in one namespace, with `await` where it stands."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for at, cell in enumerate(cells):
            if cell["cell_type"] != "code":
                continue
            flag = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile("".join(cell["source"]), f"cell {at}", "exec", flags=flag)
            result = eval(code, namespace)
            if inspect.iscoroutine(result):
                runner.run(result)


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    run_notebook(notebook["cells"])


def test_there_is_a_notebook_and_it_shows_every_way_to_ask() -> None:
    text = "".join(path.read_text() for path in NOTEBOOKS)
    assert all(f".{name}(" in text for name in ("generate", "chat", "stream"))
    assert "AsyncLLM" in text


def test_control_a_cell_that_fails_is_seen() -> None:
    cells = [{"cell_type": "code", "source": ["x = 3\n"]}, {"cell_type": "code", "source": "x / 0"}]
    with pytest.raises(ZeroDivisionError):
        run_notebook(cells)


# -- the README -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", one_in(2, range(len(SCRIPTS))))
def test_a_script_of_the_readme_runs(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    see("circle", "red").save(tmp_path / "picture.png")
    monkeypatch.chdir(tmp_path)
    exec(compile(SCRIPTS[at], "README.md", "exec"), {"__name__": "__main__"})
    assert "3 + " in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("at", range(len(SCRIPTS)))
def test_a_script_of_the_readme_runs_in_a_process_of_its_own(at: int, tmp_path: Path) -> None:
    see("circle", "red").save(tmp_path / "picture.png")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPTS[at]], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "3 + " in ran.stdout


def test_the_readme_has_scripts() -> None:
    assert len(SCRIPTS) == 2
