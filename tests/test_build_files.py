"""The build runs on a Mac as it comes: Apple's make is 3.81 of 2006, its bash 3.2 of 2007."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = ROOT / "Makefile"
SCRIPTS = sorted([*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"])

NEWER_BASH = {
    "associative arrays (4.0)": r"\b(declare|local|typeset)\s+-\w*A",
    "declare -g (4.2)": r"\b(declare|typeset)\s+-\w*g",
    "declare -n (4.3)": r"\b(declare|local|typeset)\s+-\w*n",
    "mapfile (4.0)": r"\b(mapfile|readarray)\b",
    "case of a variable (4.0)": r"\$\{\w+(\[[^]]*\])?[,^]",
    "${x@Q} (4.4)": r"\$\{\w+@\w\}",
    "negative index (4.2)": r"\$\{\w+\[-\d",
    "|& (4.0)": r"\|&",
    "&>> (4.0)": r"&>>",
    ";& (4.0)": r";;?&",
    "coproc (4.0)": r"\bcoproc\b",
    "globstar (4.0)": r"\bglobstar\b",
    "{01..10} (4.0)": r"\{0\d+\.\.",
    "wait -n (4.3)": r"\bwait\s+-n",
    "test -v (4.2)": r"\[\[?\s+(!\s+)?-v\s",
    "printf %(…)T (4.2)": r"%\([^)]*\)T",
    "EPOCHSECONDS (5.0)": r"\bEPOCH(SECONDS|REALTIME)\b",
    "read -t with a fraction (4.0)": r"\bread\b[^|;]*-t\s*\d*\.\d",
}
NEWER_MAKE = {
    ".ONESHELL (3.82)": r"^\.ONESHELL",
    ".RECIPEPREFIX (3.82)": r"^\.RECIPEPREFIX",
    "$(file …) (4.0)": r"\$[({]file\s",
    "$(guile …) (4.0)": r"\$[({]guile\s",
    "!= (4.0)": r"^\w+\s*!=",
    "::= (4.0)": r"::=",
    "grouped targets (4.3)": r"&:",
    "$(let …) (4.4)": r"\$[({](let|intcmp)\s",
    "private (3.82)": r"^private\b",
    "undefine (3.82)": r"^undefine\b",
    ".SHELLFLAGS (3.82)": r"^\.SHELLFLAGS",
    "--output-sync (4.0)": r"--output-sync|\B-O(none|line|target|recurse)",
}


def code(text: str) -> str:
    """Without lines that are comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def newer(text: str, constructs: dict[str, str]) -> list[str]:
    lines = code(text)
    return [name for name, form in constructs.items() if re.search(form, lines, re.MULTILINE)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_run_in_the_bash_of_a_mac(path: Path) -> None:
    assert newer(path.read_text(), NEWER_BASH) == []
    subprocess.run(["bash", "-n", path], check=True)


def test_the_makefile_runs_in_the_make_of_a_mac() -> None:
    assert newer(MAKEFILE.read_text(), {**NEWER_MAKE, **NEWER_BASH}) == []


@pytest.mark.parametrize(
    ("line", "constructs"),
    [
        ("declare -A seen", NEWER_BASH),
        ("mapfile -t lines < file", NEWER_BASH),
        ("echo ${name,,}", NEWER_BASH),
        ("make test |& tee log", NEWER_BASH),
        ("last=${words[-1]}", NEWER_BASH),
        (".ONESHELL:", NEWER_MAKE),
        ("$(file >list,$(FILES))", NEWER_MAKE),
        ("NOW != date", NEWER_MAKE),
    ],
)
def test_control_what_is_newer_is_seen(line: str, constructs: dict[str, str]) -> None:
    assert newer(f"set -e\n{line}\n", constructs) != []
    assert newer(f"set -e\n# {line}\n", constructs) == []


def planned(folder: Path, target: str) -> str:
    """What make would do for a target in a fresh clone."""
    (folder / "bushel" / "core").mkdir(parents=True, exist_ok=True)
    for name in ("Makefile", "pyproject.toml", "bushel/core/version.py"):
        (folder / name).write_text((ROOT / name).read_text())
    (folder / "scripts").mkdir(exist_ok=True)
    for path in (ROOT / "scripts").glob("*.sh"):
        (folder / "scripts" / path.name).write_text(path.read_text())
    command = ["make", "--dry-run", "MLX=cuda13", target]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["setup", "serve", "metal-check"])
def test_serving_installs_no_tools_of_tests(tmp_path: Path, target: str) -> None:
    assert 'scripts/setup.sh "cuda13"\n' in planned(tmp_path, target)


@pytest.mark.parametrize("target", ["dev", "lint", "test", "test-long", "parity"])
def test_tests_bring_their_tools_in_one_go(tmp_path: Path, target: str) -> None:
    steps = planned(tmp_path, target)
    assert steps.count("scripts/setup.sh") == 1
    assert 'scripts/setup.sh "cuda13" dev\n' in steps
