"""`bushel check`: equal families pass, a family that is wrong in batches does not."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from bushel.cache.chunked import BatchChunkedKVCache
from bushel.cache.kv_cache import KV
from bushel.cache.recurrent import Recurrent
from bushel.check import _around
from bushel.cli import main
from bushel.models.known_families import _FAMILIES
from bushel.models.row_positions import long_rope
from bushel.models.text_model import TextModel
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.checkpoint import chatml
from tests.families.vision import VISION
from tests.models.altered_checkpoints import copied, set_json, set_template
from tests.parity.mutations import (
    Patch,
    blocks_from_the_padding,
    padding_forgotten,
    rows_swapped,
    state_forgotten,
    tokens_of_other_rows,
)

from .broken_families import EXACT, MISPLACED, family

Capture = pytest.CaptureFixture[str]


def check(capsys: Capture, model: str, *flags: str) -> tuple[int, list[str]]:
    """The exit code and the lines of the table."""
    code = main(["check", model, *flags])
    told = capsys.readouterr()
    assert code == 2 or not told.err
    return code, told.out.splitlines()


def verdicts(lines: list[str]) -> dict[str, str]:
    """What the table says of each scenario."""
    head = next(at for at, line in enumerate(lines) if line.startswith("scenario"))
    rows = lines[head + 1 : lines.index("", head)]
    return {row[:22].strip(): row[46:] for row in rows}


def largest_batch(lines: list[str]) -> int:
    return max(int(line[28:33]) for line in lines if line[46:] in ("equal", "DIFFERENT"))


@pytest.mark.parametrize("name", often(["qwen3_5", "gemma3_text"], "gemma3_text"))
def test_an_equal_family_passes(name: str, capsys: Capture) -> None:
    code, lines = check(capsys, str(checkpoint_dir(name)))
    assert code == 0
    assert set(verdicts(lines).values()) == {"equal"}
    assert largest_batch(lines) == 8
    assert lines[-1] == "Equal to solo; lane: batch."


@pytest.mark.long
def test_the_largest_difference_is_told_of_a_family_that_is_known(capsys: Capture) -> None:
    model = str(checkpoint_dir("llama_sliding"))
    _, lines = check(capsys, model)
    largest = max(float(line[34:44]) for line in lines if line[46:] == "equal")
    assert f"Here at most {largest:.1e} apart, where 0.0001 is rounding." in lines


# With states that are new among families, of each network that there is of them.
NEWEST = [
    *("qwen4_exp", "deepseek_v4", "deepseek_v41", "glm5_next"),
    *("minimax_m3", "minimax_m3_vl-text", "minimax_m3_vl", "llama4", "llama4_text", "llama4_vl"),
]


@pytest.mark.long
@pytest.mark.parametrize("name", NEWEST)
def test_the_newest_families_share_batches_and_what_was_computed(
    name: str, capsys: Capture
) -> None:
    """Contexts on both sides of every budget, window and pool border that is near."""
    code, lines = check(capsys, str(checkpoint_dir(name)))
    found = verdicts(lines)
    assert code == 0
    assert set(found.values()) == {"equal"}
    assert found.keys() >= {"kept and restored"}
    assert ("images beside text" in found) == (name in VISION)
    assert largest_batch(lines) == 8
    assert "Prefixes: reused." in lines
    assert not any(line.startswith("Not checked") for line in lines)
    assert lines[-1] == "Equal to solo; lane: batch."


def same(lines: list[str], told: list[str]) -> bool:
    """Whether the report for scripts says of every scenario what the table does."""
    report = json.loads("\n".join(told))
    words = {each["scenario"]: each["ok"] for each in report["results"]}
    assert report["ok"] == all(words.values())
    return words == {name: verdict == "equal" for name, verdict in verdicts(lines).items()}


@pytest.mark.long
def test_half_precision_has_a_bound_of_its_own(capsys: Capture) -> None:
    code, lines = check(capsys, str(checkpoint_dir("llama_sliding")), "--dtype", "bfloat16")
    assert code == 0
    assert lines[0] == "llama_sliding, bfloat16: log-probabilities may differ by 0.5."


def test_a_family_that_sees_is_shown_images(capsys: Capture) -> None:
    code, lines = check(capsys, str(checkpoint_dir("qwen2_5_vl")))
    assert code == 0
    assert verdicts(lines)["images beside text"] == "equal"


@pytest.mark.long
def test_images_that_cannot_be_shown_are_not_said_to_be_equal(
    tmp_path: Path, capsys: Capture
) -> None:
    path = copied("qwen2_5_vl", tmp_path)
    set_template(path, chatml())
    code, lines = check(capsys, str(path))
    assert code == 0
    assert verdicts(lines)["images beside text"].startswith("not run: qwen2_5_vl takes no image")
    assert lines[-1] == "Equal to solo in all that was run; lane: batch."


@pytest.mark.long
def test_a_family_of_the_single_lane_is_checked_in_it(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setitem(_FAMILIES, "llama", "its rows look at each other")
    code, lines = check(capsys, str(checkpoint_dir("llama")))
    assert code == 0
    assert largest_batch(lines) == 1
    assert "lane: single (its rows look at each other)" in lines[-1]


def test_a_family_that_is_wrong_in_batches_fails(tmp_path: Path, capsys: Capture) -> None:
    """Run as users do: by another process, which says it with its exit code."""
    model = family(tmp_path, MISPLACED)
    command = [sys.executable, "-m", "bushel", "check", model, "--trust-remote-code"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert set(verdicts(lines).values()) == {"DIFFERENT"}
    assert "where alone it has" in done.stdout
    assert lines[-1].startswith("Not equal to solo; lane: single (the self-check found")
    code, told = check(capsys, model, "--trust-remote-code", "--json")
    assert code == 1
    assert same(lines, told)


@pytest.mark.long
def test_control_the_same_family_without_its_mistake_passes(
    tmp_path: Path, capsys: Capture
) -> None:
    model = family(tmp_path, EXACT)
    code, lines = check(capsys, model, "--trust-remote-code")
    assert code == 0
    assert largest_batch(lines) == 8
    code, told = check(capsys, model, "--trust-remote-code", "--json")
    assert code == 0
    assert same(lines, told)


@pytest.mark.long
def test_a_mistake_beyond_what_sparse_attention_looks_at_is_found(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 208 tokens in all, which no prompt of other families comes to."""
    path = copied("minimax_m3_vl-text", tmp_path)
    config = json.loads((path / "config.json").read_text())
    text = {**config["text_config"], "index_topk_blocks": 26}
    set_json(path / "config.json", text_config=text)
    blocks_from_the_padding(monkeypatch)
    code, lines = check(capsys, str(path))
    assert code == 1
    assert set(verdicts(lines).values()) == {"DIFFERENT"}


@pytest.mark.long
def test_a_mistake_beyond_another_rotation_is_found(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    """From 200 tokens on, to which no prompt of other families comes; the longest row decides."""
    path = copied("phi3_v_long", tmp_path)
    set_json(path / "config.json", original_max_position_embeddings=200)
    code, lines = check(capsys, str(path))
    assert code == 0
    assert set(verdicts(lines).values()) == {"equal"}
    monkeypatch.setattr(long_rope, "_with_factors_by_row", lambda library: library)
    code, lines = check(capsys, str(path))
    assert code == 1
    assert verdicts(lines)["8 lengths, uncut"] == "DIFFERENT"


def test_prompts_lie_on_both_sides_of_the_two_farthest_borders() -> None:
    lengths = _around(8, 100, 500)
    assert {499, 500, 501, 99} <= {*lengths}
    assert max(lengths) > 600
    assert 40 in _around(500)


def test_a_border_that_is_too_far_away_is_told(tmp_path: Path, capsys: Capture) -> None:
    """And the nearer one is crossed."""
    path = copied("ministral3", tmp_path)
    rope = json.loads((path / "config.json").read_text())["rope_parameters"]
    rope["original_max_position_embeddings"] = 16384
    set_json(path / "config.json", rope_parameters=rope, max_position_embeddings=32768)
    code, lines = check(capsys, str(path))
    assert code == 0
    told = [line for line in lines if line.startswith("Not checked")]
    assert told == ["Not checked: contexts of more than 16384 tokens, where attention changes."]


def chunks_forgotten(patch: Patch) -> None:
    """A token sees all of its row."""

    def mask(self: BatchChunkedKVCache, tokens: int) -> mx.array:
        columns = mx.arange(self._idx + tokens) - self._idx
        held = self.offset[:, None, None] + columns
        asking = self.offset[:, None] + mx.arange(tokens)
        return ((held <= asking[:, :, None]) & (held >= 0))[:, None]

    patch.setattr(BatchChunkedKVCache, "make_mask", mask)


def test_a_mistake_beyond_a_chunk_is_found(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    """Chunks of 200 tokens, which no prompt of other families comes to."""
    path = copied("llama4", tmp_path)
    text = json.loads((path / "config.json").read_text())["text_config"]
    set_json(path / "config.json", text_config={**text, "attention_chunk_size": 200})
    chunks_forgotten(monkeypatch)
    code, lines = check(capsys, str(path))
    assert code == 1
    assert "DIFFERENT" in verdicts(lines).values()


def later_chunks_reversed(patch: Patch) -> None:
    original = TextModel.prefill

    def prefill(self: TextModel, prompt: Any, start: int, end: int, state: Any) -> mx.array:
        if start and end - start > 1:
            tokens = mx.array([prompt.ids[start:end][::-1]])
            return self.forward(tokens, [start], state)
        return original(self, prompt, start, end, state)

    patch.setattr(TextModel, "prefill", prefill)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        pytest.param("llama", padding_forgotten(KV, "merge"), marks=pytest.mark.long),
        ("llama", later_chunks_reversed),
        pytest.param("qwen3_5", rows_swapped(Recurrent), marks=pytest.mark.long),
        pytest.param("llama", rows_swapped(KV), marks=pytest.mark.long),
        pytest.param("llama", tokens_of_other_rows, marks=pytest.mark.long),
        pytest.param("qwen3_5", state_forgotten, marks=pytest.mark.long),
    ],
)
def test_control_a_mistake_of_the_engine_is_noticed(
    name: str, mistake: Callable[[Patch], None], monkeypatch: Patch, capsys: Capture
) -> None:
    """The reference has no part in what it judges."""
    mistake(monkeypatch)
    code, lines = check(capsys, str(checkpoint_dir(name)))
    assert code == 1
    assert "DIFFERENT" in verdicts(lines).values()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["check", "/no/such/directory"], "neither a directory"),
        (["check"], "MODEL"),
        (["check", "somewhere", "--dtype", "int3"], "--dtype"),
        (["check", "somewhere", "--frobnicate"], "--frobnicate"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(
    arguments: list[str], told: str, capsys: Capture
) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    found = capsys.readouterr()
    assert code == 2
    assert not found.out
    assert found.err.count("\n") == 1
    assert told in found.err


def test_code_of_a_checkpoint_has_to_be_trusted(tmp_path: Path, capsys: Capture) -> None:
    assert main(["check", family(tmp_path, EXACT)]) == 2
    assert "trust" in capsys.readouterr().err
