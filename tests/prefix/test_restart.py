"""What was computed outlives the process, and a file that is not as it was is a miss (B46).

`disk/test_damage.py` damages files in every way, without a model.
"""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bushel.cache.prefix.disk.file_format import VERSION
from tests.families.text import TEXT

from .caching_llm import EVERY, Serving, families, words

pytestmark = pytest.mark.long

SOME = (
    *("llama", "gemma3_text", "qwen3_5", "mamba2", "falcon_h1", "deepseek_v3", "deepseek_v41"),
    "minimax_m3",
)
POOLED = ("glm5_next", "deepseek_v4")  # which see, and keep state as no text family does
BEGIN = words(80, 1)
PROMPTS = (BEGIN, BEGIN + words(40, 2), BEGIN[:50] + words(60, 3))


def ask_all(name: str, folder: Path, **options: object) -> list[tuple[int, str]]:
    """Cached tokens and hit of each; `Serving` checks that every answer is the cold one."""
    with Serving(name, cache_dir=str(folder), **options) as serving:
        answers = [serving.ask(prompt) for prompt in PROMPTS]
    return [(answer.cached, answer.hit) for answer in answers]


@pytest.mark.parametrize("name", [*families(TEXT.values(), SOME), "qwen4_exp", *POOLED])
def test_a_new_process_goes_on_where_the_last_one_ended(name: str, tmp_path: Path) -> None:
    ask_all(name, tmp_path)
    first, second, third = ask_all(name, tmp_path)
    assert second == (len(PROMPTS[1]) - 1, "disk")
    assert third == (len(PROMPTS[2]) - 1, "disk")
    assert first[0] >= 50 - 1  # that of a prompt which another one continues is not kept
    # With room for little, what is not in memory is read again.
    assert ask_all(name, tmp_path, cache_memory=400_000)[1][0] == len(PROMPTS[1]) - 1


def test_another_checkpoint_finds_nothing(tmp_path: Path) -> None:
    ask_all("llama", tmp_path)
    assert ask_all("qwen3_5", tmp_path)[0] == (0, "")
    assert ask_all("llama", tmp_path)[1][1] == "disk"


def test_what_an_earlier_version_wrote_is_dropped(tmp_path: Path) -> None:
    """Its files may hold state of other tokens than they name: nothing of them is used. B46."""
    ask_all("llama", tmp_path)
    (tmp_path / f"v{VERSION}").rename(tmp_path / f"v{VERSION - 1}")
    assert ask_all("llama", tmp_path)[0] == (0, "")
    assert [it.name for it in tmp_path.iterdir()] == [f"v{VERSION}"]


def flipped(path: Path, _: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 16
    path.write_bytes(data)


def cut_short(path: Path, _: Path) -> None:
    os.truncate(path, path.stat().st_size - 40)


def older(path: Path, _: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(f'"layout":"{VERSION}"'.encode(), b'"layout":"0"'))
    assert path.read_bytes() != data


def foreign(path: Path, others: Path) -> None:
    shutil.copy(next(iter(sorted(others.rglob("*.safetensors")))), path)


def linked(path: Path, others: Path) -> None:
    aside = others / f"aside-{path.name}"
    shutil.copy(path, aside)
    path.unlink()
    path.symlink_to(aside)


DAMAGES = [flipped, cut_short, older, foreign, linked]


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_damaged_in_turn(
    damage: Callable[[Path, Path], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, others = tmp_path / "whole", tmp_path / "others"
    ask_all("qwen3_5", whole)
    ask_all("mamba2", others)
    files = sorted(it.relative_to(whole) for it in whole.rglob("*.safetensors"))
    assert len(files) > 4
    # Every second one, and the others by the next damage.
    for file in files if EVERY or damage is flipped else files[DAMAGES.index(damage) % 2 :: 2]:
        folder = tmp_path / "damaged"
        shutil.copytree(whole, folder)
        damage(folder / file, others)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            ask_all("qwen3_5", folder)
        told = any("Disk cache" in record.getMessage() for record in caplog.records)
        unread = damage is flipped and (folder / file).exists()  # nobody asked for its tensors
        assert told or unread, file
        again = ask_all("qwen3_5", folder)
        assert again[1] == (len(PROMPTS[1]) - 1, "disk")
        shutil.rmtree(folder)
