"""`python -m tests.conformance`: the newest mlx, mlx-lm and mlx-vlm, held to what Bushel relies on.

    python -m tests.conformance                     the newest that go together
    python -m tests.conformance mlx-lm==0.32.2      this one, and the newest of the others

They are installed in an environment of their own, beside the one with the releases that Bushel is
tested with. Prints what moved, then a line for everything that is no longer so. Exits with 0 if all
of it holds, with 1 if something does not, and with 2 if they cannot be installed.
"""

import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from .moved import Environment, Outcome, environment, moved, outcome, requirements

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-conformance"
PYTHON = VENV / "bin" / "python"


def install(asked: list[str]) -> bool:
    """The newest that go together; what is there already is brought up to date."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements(project, linux=sys.platform == "linux", asked=asked)
    pip = [PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile"]
    return subprocess.run([*pip, "--upgrade", *wanted], check=False).returncode == 0


def site_of(python: str | Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def marked() -> list[str]:
    """Files with tests of that mark: others may need what is not installed there."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if "mark.conformance" in file.read_text()]


def tried() -> Outcome:
    with tempfile.TemporaryDirectory(prefix="bushel-conformance-") as folder:
        report = Path(folder) / "report.xml"
        pytest = [str(PYTHON), "-m", "pytest", "-q", "--tb=short", "-m", "conformance"]
        command = ["scripts/env.sh", "--tests", *pytest, f"--junitxml={report}", *marked()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(done.stdout)
        if not report.exists():
            return Outcome(0, (f"the tests did not run: {done.stderr.strip()[-500:]}",))
        return outcome(report.read_text())


def main(asked: list[str]) -> int:
    if not install(asked):
        print("These releases cannot be installed together.", file=sys.stderr)
        return 2
    before: Environment = environment(Path(sysconfig.get_path("purelib")))
    after = environment(site_of(PYTHON))
    found = tried()
    print("\n".join(moved(before, after)) or f"Nothing moved: {after.versions}")
    print(f"{found.held} of what Bushel relies on hold, {len(found.broken)} do not.")
    print("\n".join(f"  {line}" for line in found.broken))
    return 1 if found.broken or not found.held else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
