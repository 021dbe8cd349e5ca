"""The device is chosen in one place, and BUSHEL_DEVICE overrides MLX's choice."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

import bushel
from bushel.engine.solo_run import BOUNDS, bound
from bushel.models import device, load
from tests.depth import one_in
from tests.families import checkpoint_dir

SCRIPT = """
import sys
import mlx.core as mx
from bushel import LLM, SamplingParams
from bushel.models import device
with LLM(sys.argv[1]) as llm:
    (out,) = llm.generate({"prompt_token_ids": [5, 6, 7]}, SamplingParams(max_tokens=2))
    print(mx.default_device() == mx.cpu, device.ON_CPU, device.ON_CUDA, len(out.token_ids))
"""


def run(name: str | None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != device.VARIABLE}
    if name is not None:
        environment[device.VARIABLE] = name
    command = [sys.executable, "-c", SCRIPT, str(checkpoint_dir("llama"))]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_model_runs_on_the_cpu_where_that_is_asked_for() -> None:
    done = run("cpu")
    assert done.stdout.split() == ["True", "True", "False", "2"], done.stderr


@pytest.mark.skipif(not mx.is_available(mx.gpu), reason="there is no other device")
def test_control_it_would_not_by_itself() -> None:
    assert run(None).stdout.split()[:2] == ["False", "False"]


def test_a_device_that_is_not_there_is_told_in_a_line() -> None:
    done = run("tpu")
    assert "ModelError: BUSHEL_DEVICE must be cpu or gpu, not 'tpu'." in done.stderr
    wrong = device.unavailable("gpu")
    assert (wrong is None) == mx.is_available(mx.gpu)


TF32 = """
import os, sys
import mlx.core as mx
import bushel.check, bushel.engine.process, bushel.llm
from bushel.models import device
print(os.environ[device.TF32_VARIABLE], device.TF32, mx.get_peak_memory())
"""


@pytest.mark.parametrize(("asked", "value"), one_in(2, [(None, "0"), ("1", "1")]))
def test_float32_is_multiplied_in_full_unless_somebody_wants_it_fast(
    asked: str | None, value: str
) -> None:
    """MLX reads the variable at its first product; after all imports nothing has been computed."""
    environment = {k: v for k, v in os.environ.items() if k != "MLX_ENABLE_TF32"}
    if asked is not None:
        environment["MLX_ENABLE_TF32"] = asked
    command = [sys.executable, "-c", TF32]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    on = asked == "1" and not device.ON_CPU
    assert done.stdout.split() == [value, str(on), "0"], done.stderr


def test_where_float32_is_rounded_to_ten_bits_rows_may_differ_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an M5 whose owner wants the speed. What is worse than rounding is still found."""
    model = load(str(checkpoint_dir("llama")), dtype="float32")
    try:
        full = bound(model)
        monkeypatch.setattr(device, "TF32", True)
        assert (full, bound(model)) == (BOUNDS[mx.float32], BOUNDS[mx.float16])
    finally:
        model.close()


def asks_mlx(source: str) -> bool:
    names = {"default_device", "set_default_device"}
    return any(
        isinstance(it, ast.Attribute) and it.attr in names for it in ast.walk(ast.parse(source))
    )


def test_nobody_else_asks_or_sets_it() -> None:
    root = Path(bushel.__file__).parent
    found = [path.name for path in root.rglob("*.py") if asks_mlx(path.read_text())]
    assert found == ["device.py"]
    assert asks_mlx("import mlx.core as mx\nx = mx.default_device() == mx.cpu")  # the control
