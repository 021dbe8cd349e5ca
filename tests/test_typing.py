"""Types of the wheel, as a type checker of someone who installed it sees them."""

from __future__ import annotations

import re
import site
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.wheel import built, call

ROOT = Path(__file__).parents[1]
SCRIPTS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
# Libraries that bring no types, or take a minute to read: not what is looked at here.
CONFIG = "[mypy]\nstrict = True\n[mypy-mlx_lm.*,mlx_vlm.*,transformers.*]\nfollow_imports = skip\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Python that has the wheel, and what it depends on from here."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel, _ = built(folder)
    uv, python = find_uv_bin(), folder / "env" / "bin" / "python"
    call([uv, "venv", "--python", sys.executable, folder / "env"])
    call([uv, "pip", "install", "--no-deps", "--offline", "--python", python, wheel])
    [packages] = (folder / "env" / "lib").glob("*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    (folder / "mypy.ini").write_text(CONFIG)
    return folder


def complaints(folder: Path, script: str) -> list[str]:
    """What mypy has to say of a script that stands far from Bushel's sources."""
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini"]
    command += ["--python-executable", "env/bin/python", "script.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr or ran.stdout
    errors = [line for line in ran.stdout.splitlines() if ": error: " in line]
    assert all(line.startswith("script.py") for line in errors)
    return errors


@pytest.mark.parametrize("at", range(len(SCRIPTS)))
def test_the_readmes_scripts_pass_a_strict_type_checker(installed: Path, at: int) -> None:
    assert complaints(installed, SCRIPTS[at]) == []


WRONG = {
    "a number as a prompt": "llm.generate(5)",
    "an argument that does not exist": "llm.chat([], toolz=[])",
    "a text taken for a number": "x: int = llm.generate('a')[0].text",
    "an option that does not exist": "LLM('bushel:tiny', max_bach=3)",
    "a choice of no kind": "llm.chat([], tool_choice=5)",
}


@pytest.mark.parametrize("case", WRONG)
def test_control_a_wrong_call_is_seen(installed: Path, case: str) -> None:
    script = f"from bushel import LLM\n\nllm = LLM('bushel:tiny')\n{WRONG[case]}\n"
    assert len(complaints(installed, script)) == 1
