"""Types of the package, as a type checker of someone who installed it sees them."""

from __future__ import annotations

import re
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.wheel import call

ROOT = Path(__file__).parents[1]
SCRIPTS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
# Libraries that bring no types, or take a minute to read: not what is looked at here.
CONFIG = "[mypy]\nstrict = True\n[mypy-mlx_lm.*,mlx_vlm.*,transformers.*]\nfollow_imports = skip\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Python that has the package, and what it depends on from here."""
    folder = tmp_path_factory.mktemp("installed")
    call([find_uv_bin(), "venv", "--python", sys.executable, folder / "env"])
    [packages] = (folder / "env" / "lib").glob("*/site-packages")
    shutil.copytree(ROOT / "bushel", packages / "bushel")  # a wheel has as much (test_packaging.py)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    (folder / "mypy.ini").write_text(CONFIG)
    return folder


WRONG = {
    "a number as a prompt": "llm.generate(5)",
    "an argument that does not exist": "llm.chat([], toolz=[])",
    "a text taken for a number": "x: int = llm.generate('a')[0].text",
    "an option that does not exist": "LLM('bushel:tiny', max_bach=3)",
    "a choice of no kind": "llm.chat([], tool_choice=5)",
}


def complaints(folder: Path, *scripts: str) -> list[list[int]]:
    """Lines of each script that mypy has something to say of, far from Bushel's sources."""
    names = [f"script_{at}.py" for at in range(len(scripts))]
    for name, script in zip(names, scripts, strict=True):
        (folder / name).write_text(script)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini"]
    command += ["--python-executable", "env/bin/python", *names]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr or ran.stdout
    errors = [line.split(":")[:2] for line in ran.stdout.splitlines() if ": error: " in line]
    assert {name for name, _ in errors} <= {*names}
    return [[int(line) for where, line in errors if where == name] for name in names]


@pytest.mark.long
def test_the_readmes_scripts_pass_a_strict_type_checker_and_wrong_calls_do_not(
    installed: Path,
) -> None:
    """The wrong ones are the control: each is seen, where it stands."""
    head = ["from bushel import LLM", "llm = LLM('bushel:tiny')"]
    *told, wrong = complaints(installed, *SCRIPTS, "\n".join([*head, *WRONG.values()]))
    assert told == [[]] * len(SCRIPTS)
    assert wrong == list(range(3, 3 + len(WRONG)))
