"""The releases of the libraries that are installed are those that Bushel says it is tested with."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize("name", ["mlx", "mlx-lm", "mlx-vlm", "transformers", "huggingface_hub"])
def test_installed_versions_are_inside_the_tested_bounds(name: str) -> None:
    wanted = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    [bounds] = [line for line in wanted if re.match(rf"{name}[<>=]", line)]
    low, high = re.fullmatch(rf"{name}>=([\d.]+),<([\d.]+)", bounds).groups()  # type: ignore[union-attr]
    assert numbers(low) <= numbers(version(name)) < numbers(high)


@pytest.mark.parametrize("name", ["mlx", "mlx-lm", "mlx-vlm"])
def test_libraries_whose_insides_are_used_are_held_to_one_minor_version(name: str) -> None:
    wanted = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    [bounds] = [line for line in wanted if re.match(rf"{name}[<>=]", line)]
    low, high = (numbers(part) for part in re.findall(r"[\d.]+", bounds.removeprefix(name)))
    assert (high[0], high[1]) == (low[0], low[1] + 1)
