"""`make parity` runs every test that tries more families when it is asked for all."""

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIABLE = "BUSHEL_TEST_FAMILIES"
# What tests import of the modules that read it.
WIDER = {"EVERY", "tried", "families"}
# Real templates, which need a corpus; and this.
OTHERS = {"tests/chat/corpus/test_corpus.py", "tests/tools/test_make.py"}


def widens(path: Path) -> bool:
    """However its imports are written, and also where it reads the variable itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and node.value == VARIABLE:
            return True
        if isinstance(node, ast.ImportFrom) and WIDER & {each.name for each in node.names}:
            return True
    return False


def test_make_parity_runs_every_test_that_tries_all_families() -> None:
    plan = ["make", "--dry-run", "--no-print-directory", "parity"]
    told = subprocess.run(plan, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [command] = [line for line in told.splitlines() if f"{VARIABLE}=all" in line]
    paths = {
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py") if widens(path)
    }
    assert len(paths) > 10
    assert paths - OTHERS <= {*command.split()}
