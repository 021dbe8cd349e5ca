"""The conformance job names what moved, and misses nothing that failed."""

import tomllib
from pathlib import Path

import pytest

from .__main__ import ROOT, marked
from .moved import Environment, environment, moved, outcome, requirements


def test_the_libraries_are_asked_for_without_bounds_and_the_rest_with_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements(project, linux=True)
    assert {"mlx", "mlx-lm", "mlx-vlm", "transformers", "mlx[cpu]"} <= {*wanted}
    assert any(one.startswith("fastapi>=") for one in wanted)
    assert any(one.startswith("pytest>=") for one in wanted)
    assert not any(one.startswith("pytest-xdist") for one in wanted)
    chosen = requirements(project, linux=False, asked=["mlx-lm==0.31.0"])
    assert [one for one in chosen if one.startswith("mlx-lm")] == ["mlx-lm==0.31.0"]


def installed(site: Path, version: str, families: str, states: str) -> Environment:
    models = site / "mlx_lm" / "models"
    models.mkdir(parents=True)
    (site / f"mlx_lm-{version}.dist-info").mkdir()
    for name in families.split():
        (models / f"{name}.py").write_text("class Model: ...\n")
    (models / "cache.py").write_text("".join(f"class {name}: ...\n" for name in states.split()))
    return environment(site)


def test_what_came_and_what_went_is_named(tmp_path: Path) -> None:
    before = installed(tmp_path / "old", "0.32.2", "llama phi", "KVCache OldCache")
    after = installed(tmp_path / "new", "0.33.0", "llama llama5", "KVCache PoolCache")
    assert list(moved(before, after)) == [
        "mlx-lm 0.32.2 -> 0.33.0",
        "mlx-lm, new families: llama5",
        "mlx-lm, families that are gone: phi",
        "mlx-lm, new states: PoolCache",
        "mlx-lm, states that are gone: OldCache",
    ]
    assert list(moved(after, after)) == []


REPORT = """
<testsuites><testsuite>
  <testcase classname="tests.models.test_x" name="test_a_cache_counts_its_tokens[mlx_lm]"/>
  <testcase classname="tests.models.test_x" name="test_logits_are_arrays[llama]">
    <failure message="AssertionError: assert 3 == 4&#10;  more">trace</failure>
  </testcase>
  <testcase classname="" name="tests.models.test_y">
    <error message="collection failure">ImportError</error>
  </testcase>
  <testcase classname="tests.models.test_x" name="test_only_elsewhere"><skipped/></testcase>
</testsuite></testsuites>
"""


def test_every_failure_is_a_line_in_words() -> None:
    found = outcome(REPORT)
    assert found.held == 1
    assert found.broken == (
        "logits are arrays (llama): AssertionError: assert 3 == 4",
        "tests.models.test y: collection failure",
    )


@pytest.mark.parametrize("name", ["test_conformance.py", "test_cache_conformance.py"])
def test_files_with_the_mark_are_found(name: str) -> None:
    assert name in {Path(file).name for file in marked()}
