"""Code inside a checkpoint runs only for those who trust its authors."""

import contextlib
from pathlib import Path

import pytest

from bushel import LLM, ModelError
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, greedy, prompt, solo

from .altered_checkpoints import copied, set_json
from .refused_checkpoints import assert_refused

PLANTED = "from pathlib import Path\nPath({marker!r}).touch()\n"
MODEL_CODE = "from mlx_lm.models.llama import Model, ModelArgs\n"
TOKENIZER_CODE = (
    "from transformers import PreTrainedTokenizerFast\n"
    "class Planted(PreTrainedTokenizerFast):\n    pass\n"
)
PROCESSOR_CODE = (
    "from transformers import ProcessorMixin\nclass Planted(ProcessorMixin):\n    pass\n"
)
CONFIG_CODE = (
    "from transformers import PretrainedConfig\n"
    "class Planted(PretrainedConfig):\n    model_type = 'planted'\n"
)


def plant(path: Path, file: str, code: str) -> Path:
    marker = path.parent / "ran"
    (path / file).write_text(PLANTED.format(marker=str(marker)) + code)
    return marker


def test_a_model_file_runs_only_when_trusted(tmp_path: Path) -> None:
    path = copied("llama", tmp_path)
    set_json(path / "config.json", model_file="planted.py")
    marker = plant(path, "planted.py", MODEL_CODE)
    assert_refused(str(path), "planted.py")
    assert_refused(str(path), "trust_remote_code=True")
    assert not marker.exists()
    with LLM(str(checkpoint_dir("llama"))) as llm:
        expected = solo(llm, prompt(20), greedy(6))
    with LLM(str(path), trust_remote_code=True) as llm:
        assert_same(solo(llm, prompt(20), greedy(6)), expected)
    assert marker.exists()


def test_a_model_file_of_a_vision_checkpoint_is_refused(tmp_path: Path) -> None:
    """mlx-vlm by itself would run it without asking."""
    path = copied("qwen3_5_vl", tmp_path)
    set_json(path / "config.json", model_file="planted.py")
    marker = plant(path, "planted.py", "from mlx_vlm.models.qwen3_5 import *\n")
    assert_refused(str(path), "planted.py")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["llama", "qwen3_5_vl"])
def test_tokenizer_code_is_refused(name: str, tmp_path: Path) -> None:
    path = copied(name, tmp_path)
    set_json(
        path / "tokenizer_config.json",
        tokenizer_class="Planted",
        auto_map={"AutoTokenizer": [None, "planted.Planted"]},
    )
    marker = plant(path, "planted.py", TOKENIZER_CODE)
    assert_refused(str(path), "planted.Planted")
    assert not marker.exists()


def test_tokenizer_code_runs_when_trusted(tmp_path: Path) -> None:
    path = copied("llama", tmp_path)
    set_json(
        path / "tokenizer_config.json",
        tokenizer_class="Planted",
        auto_map={"AutoTokenizer": [None, "planted.Planted"]},
    )
    marker = plant(path, "planted.py", TOKENIZER_CODE)
    with LLM(str(path), trust_remote_code=True) as llm:
        assert solo(llm, {"prompt": "A bushel"}, greedy(3)).finish_reason == "length"
    assert marker.exists()


@pytest.mark.parametrize("file", ["processor_config.json", "preprocessor_config.json"])
def test_processor_code_does_not_run_untrusted(file: str, tmp_path: Path) -> None:
    """Whether the checkpoint then loads with the library's own processor is up to the library."""
    path = copied("qwen3_5_vl", tmp_path)
    named = {"AutoProcessor": "planted.Planted", "AutoImageProcessor": "planted.Planted"}
    set_json(path / file, processor_class="Planted", auto_map=named)
    set_json(path / "config.json", auto_map=named)
    marker = plant(path, "planted.py", PROCESSOR_CODE)
    with contextlib.suppress(ModelError):
        LLM(str(path)).close()
    assert not marker.exists()


@pytest.mark.parametrize("name", ["llama", "qwen3_5_vl"])
def test_config_code_does_not_run_untrusted(name: str, tmp_path: Path) -> None:
    path = copied(name, tmp_path)
    set_json(path / "config.json", auto_map={"AutoConfig": "planted.Planted"})
    marker = plant(path, "planted.py", CONFIG_CODE)
    with contextlib.suppress(ModelError):
        LLM(str(path)).close()
    assert not marker.exists()
