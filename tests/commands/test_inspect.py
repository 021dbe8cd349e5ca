"""`bushel inspect`: what is told without loading is what loading then shows."""

import json
from pathlib import Path

import mlx.core as mx
import pytest

from bushel.cache import BatchState
from bushel.chat.inspection import inspect_model
from bushel.cli import main
from bushel.core import Prepared
from bushel.models import load
from bushel.models.known_families import _FAMILIES
from tests.depth import often
from tests.families import checkpoint_dir

ROWS, TOKENS = 3, 1024
# Plain attention, windows, a hybrid, compressed keys, pictures, and nothing but a recurrence.
FAMILIES = (
    "llama",
    "gemma3_text",
    "qwen3_5",
    "deepseek_v3",
    "qwen2_5_vl",
    "mamba2",
    "deepseek_v41",
)


def held_by_rows(folder: Path) -> int:
    """Bytes that MLX reports with rows of that length in one batch, and the weights."""
    mx.clear_cache()
    before = mx.get_active_memory()
    model = load(str(folder))
    rows = BatchState(model.make_state)
    for _ in range(ROWS):
        state = model.make_state()
        prompt = model.embed(Prepared((1,) * TOKENS))
        for start in range(0, TOKENS, 512):
            model.prefill(prompt, start, start + 512, state)
            mx.eval([layer.state for layer in state])
        rows.join(state, TOKENS)
        mx.eval([layer.state for layer in rows.layers])
    del state, prompt
    mx.clear_cache()
    held = mx.get_active_memory() - before
    model.close()
    return held


@pytest.mark.parametrize("family", often(FAMILIES, "qwen3_5"))
def test_memory_is_told_within_a_tenth_of_what_mlx_then_reports(family: str) -> None:
    folder = checkpoint_dir(family)
    told = inspect_model(str(folder)).memory(ROWS, TOKENS)
    assert told == pytest.approx(held_by_rows(folder), rel=0.1)


def test_no_weight_is_read() -> None:
    weights = inspect_model("bushel:tiny").weights
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    inspect_model("bushel:tiny")
    assert mx.get_peak_memory() - before < weights / 20


def test_what_it_says_of_the_model_that_comes_with_bushel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["inspect", "bushel:tiny", "--json", "--rows", "2", "--context", "1000"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model_type"] == "qwen3_5"
    assert said["sees"] is True
    assert said["layers"] == {"recurrent": 4, "attention": 4}
    assert said["batching"] == "rows share a batch"
    assert (said["tools"], said["template"]["thinking"]) == ("hermes", "enable_thinking")
    assert [(each["rows"], each["tokens"]) for each in said["memory"]] == [(2, 1000)]
    assert main(["inspect", "bushel:tiny"]) == 0
    assert "4 recurrent, 4 attention" in capsys.readouterr().out


def test_a_family_that_takes_no_pictures_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Though it was made for them. B7a."""
    folder = str(checkpoint_dir("molmo_point"))
    assert main(["inspect", folder]) == 0
    said = capsys.readouterr().out
    assert "sees pictures" not in said
    assert "not taken: mlx-vlm keeps a reply's pictures on the model" in said
    assert inspect_model(folder).as_json()["no_pictures"]
    assert inspect_model("bushel:tiny").no_pictures == ""


def test_a_family_that_cannot_share_a_batch_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_FAMILIES, "llama", "its rows look at each other")
    assert main(["inspect", str(checkpoint_dir("llama"))]) == 0
    assert "one row at a time: its rows look at each other" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["no/such/model/here"], ["bushel:tiny", "--rows", "0"], ["bushel:tiny", "--x"]]
)
def test_what_is_wrong_is_told_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["inspect", *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
