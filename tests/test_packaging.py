"""What is installed: the wheel has all of Bushel, and Macs find what it depends on."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from uv import find_uv_bin

from bushel.core.version import DISTRIBUTION, VERSION
from tests.depth import often
from tests.wheel import UNREACHABLE, built

ROOT = Path(__file__).parents[1]


def resolve(python: str, macos: str) -> subprocess.CompletedProcess[str]:
    """Wheels alone, as pip would choose them on a Mac with Apple's own chip."""
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": macos}
    target = ("--python-platform", "aarch64-apple-darwin", "--python-version", python)
    only = ("--only-binary", ":all:", "--no-python-downloads")
    command = [find_uv_bin(), "pip", "compile", "pyproject.toml", *only, *target]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if made.returncode and any(words in made.stderr for words in UNREACHABLE):
        pytest.skip("the package index cannot be reached from here")
    return made


@pytest.mark.parametrize(
    "python",
    often(["3.11", "3.12", "3.13", "3.14"], "3.14"),
)
def test_a_mac_finds_wheels_of_everything(python: str) -> None:
    made = resolve(python, "14.0")
    assert made.returncode == 0, made.stderr
    assert {"mlx", "mlx-lm", "mlx-vlm", "mlx-metal"} <= {
        line.split("==")[0] for line in made.stdout.splitlines()
    }


@pytest.mark.long
def test_control_an_older_macos_does_not() -> None:
    made = resolve("3.12", "13.0")
    assert made.returncode != 0
    assert "macosx_14_0_arm64" in made.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def about(files: tuple[Path, Path]) -> Message:
    with zipfile.ZipFile(files[0]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(wheel.read(name))


def test_the_wheel_says_what_it_is(about: Message) -> None:
    assert (about["Name"], about["Version"]) == (DISTRIBUTION, VERSION)
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == "Apache-2.0"
    links = dict(link.split(", ") for link in about.get_all("Project-URL", []))
    assert links.keys() == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert all(link.startswith("https://") for link in links.values())
    assert {"cpu", "cuda13"} <= set(about.get_all("Provides-Extra", []))
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_an_index_shows_the_readme(about: Message) -> None:
    """As Markdown: an index that is not told the kind shows source."""
    assert about["Description-Content-Type"] == "text/markdown"
    shown = about.get_payload(decode=True)
    assert isinstance(shown, bytes)
    assert shown.decode().strip() == (ROOT / "README.md").read_text().strip()


def test_the_wheel_has_everything_that_git_has_of_the_package(files: tuple[Path, Path]) -> None:
    """The page as it is built, kernels, the small model and its types among it."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "bushel"]
    told = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in told.splitlines() if (ROOT / name).exists()}
    with zipfile.ZipFile(files[0]) as wheel:
        held = set(wheel.namelist())
    assert wanted - held == set()
    assert {name.split("/")[0] for name in held} == {"bushel", f"bushel_mlx-{VERSION}.dist-info"}
    for kind in ("bushel/server/page/built/index.html", "bushel/py.typed", ".kernel", ".cu"):
        assert any(name.endswith(kind) for name in held)


def test_the_sources_have_what_belongs_to_them(files: tuple[Path, Path]) -> None:
    """The wheel was built from them, so that they are complete."""
    with tarfile.open(files[1]) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= names


def test_the_changelog_tells_of_this_version() -> None:
    assert VERSION in (ROOT / "CHANGELOG.md").read_text()
