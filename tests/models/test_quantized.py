"""Quantized checkpoints as the hub has them: what they stand for, their size, and what is refused.

That their rows in a batch say what they say alone is a matter of `tests/parity`, where they are
families beside the others.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from bushel.chat.inspection import inspect_model
from bushel.core.checkpoint import loaded_bytes
from bushel.models import load
from tests.families import checkpoint_dir, text_quantized
from tests.families.checkpoint import write_arrays, write_config
from tests.families.text import TEXT, network
from tests.families.text_quantized import QUANTIZED, awq_tensors, gptq, packed_checkpoint

from .altered_checkpoints import copied, set_json
from .refused_checkpoints import assert_refused

NAMES = [family.name for family in QUANTIZED]
WORDS = {
    "llama_mixed_bits": "4 and 6 bits",
    "llama_awq": "4 bits",
    "qwen3_nvfp4": "nvfp4",
    "gpt_oss_mxfp4": "mxfp4, 8 bits",
}
# Of a matrix, relative to its size. Four bits in groups of 16 to 64 come to 0.08 to 0.12, and
# numbers in a wrong order to 1.4.
FAR = 0.2


def meant(module: Any) -> np.ndarray:
    """The weights that a packed module stands for."""
    how = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}
    biases = module.get("biases")
    return np.array(mx.dequantize(module.weight, module.scales, biases, dtype=mx.float32, **how))


def distance(found: nn.Module, original: nn.Module) -> float:
    """Of what the packed matrices of one network stand for from those of another, the largest."""
    plain = dict(original.named_modules())
    apart = []
    for path, module in found.named_modules():
        if "scales" in module:
            weight = np.array(plain[path]["weight"])
            apart.append(float(np.linalg.norm(meant(module) - weight) / np.linalg.norm(weight)))
    assert apart
    return max(apart)


@pytest.mark.conformance
@pytest.mark.parametrize("name", NAMES)
def test_a_quantized_checkpoint_stands_for_the_weights_it_was_made_from(name: str) -> None:
    model = load(str(checkpoint_dir(name)))
    assert distance(model.network, network(TEXT[name])) < FAR
    model.close()


def test_control_numbers_that_are_read_in_another_order_are_far_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_quantized, "NIBBLES", tuple(range(8)))
    path, family = copied("llama_awq", tmp_path), TEXT["llama_awq"]
    write_arrays(path, packed_checkpoint(network(family), family)[0])
    assert distance(load(str(path)).network, network(family)) > 5 * FAR


@pytest.mark.parametrize("name", NAMES)
def test_inspect_tells_the_size_and_the_format(name: str) -> None:
    path, plain = str(checkpoint_dir(name)), network(TEXT[name])
    told, model = inspect_model(path), load(path)
    assert told.weights == model.weights[0]
    assert loaded_bytes(path, None, widens=True) == pytest.approx(told.weights, rel=0.01)
    assert told.parameters == sum(array.size for _, array in tree_flatten(plain.parameters()))
    assert told.quantization == WORDS[name]
    model.close()


def test_a_checkpoint_that_is_not_quantized_says_nothing_of_bits() -> None:
    assert inspect_model(str(checkpoint_dir("llama"))).quantization == ""


def as_gptq(path: Path) -> None:
    """As GPTQ's tools write it, in which every checkpoint has g_idx."""
    family = TEXT["llama_awq"]
    arrays, config = gptq(network(family), family.config)
    write_arrays(path, arrays)
    write_config(path, config)


def in_eight_bits(path: Path) -> None:
    how = {"quant_method": "awq", "bits": 8, "group_size": 32}
    set_json(path / "config.json", quantization_config=how)


def by_another_tool(path: Path) -> None:
    """The library takes no notice of a method that it does not know, and finds odd tensors."""
    set_json(path / "config.json", quantization_config={"quant_method": "hqq", "nbits": 4})


@pytest.mark.parametrize(
    ("change", "method", "detail"),
    [
        (as_gptq, "gptq", "without g_idx"),
        (in_eight_bits, "awq", "only in 4 bits"),
        (by_another_tool, "hqq", "mlx_lm does not read them"),
    ],
)
def test_weights_that_cannot_be_read_are_refused_with_the_way_to_convert_them(
    change: Callable[[Path], None], method: str, detail: str, tmp_path: Path
) -> None:
    path = copied("llama_awq", tmp_path)
    change(path)
    assert_refused(str(path), f"its weights were quantized by {method}")
    assert_refused(str(path), detail)
    assert_refused(str(path), "mlx_lm.convert --hf-path MODEL -q")


def test_a_vision_checkpoint_by_awq_is_refused_likewise(tmp_path: Path) -> None:
    path = copied("qwen2_5_vl", tmp_path)
    arrays: Any = mx.load(str(path / "model.safetensors"))
    name = next(
        name for name in arrays if name.endswith("mlp.down_proj.weight") and "language" in name
    )
    packed = awq_tensors(np.array(arrays.pop(name)))
    arrays |= {name.removesuffix("weight") + key: mx.array(value) for key, value in packed.items()}
    write_arrays(path, arrays)
    how = {"quant_method": "awq", "bits": 4, "group_size": 32}
    set_json(path / "config.json", quantization_config=how)
    assert_refused(str(path), "mlx_vlm.convert --hf-path MODEL -q")


def test_another_fault_of_a_checkpoint_of_mlx_is_told_as_it_is(tmp_path: Path) -> None:
    """Nobody is sent to a converter whose checkpoint only lacks a tensor."""
    path = copied("llama_mixed_bits", tmp_path)
    arrays: Any = mx.load(str(path / "model.safetensors"))
    del arrays["model.norm.weight"]
    write_arrays(path, arrays)
    assert_refused(str(path), "model.norm.weight")


def in_fp8(path: Path, quantized: bool = True) -> None:
    """As Mistral publishes it: one scale for each matrix, and types that MLX writes as bytes."""
    found = mx.load(str(path / "model.safetensors"))
    assert isinstance(found, dict)
    tensors: dict[str, tuple[str, mx.array]] = {}
    for name, weight in found.items():
        if not quantized or "proj" not in name:
            tensors[name] = ("F32", weight.astype(mx.float32))
            continue
        scale = mx.abs(weight).max() / 448
        tensors[name] = ("F8_E4M3", mx.to_fp8(weight / scale))
        tensors[f"{name}_scale_inv"] = ("F32", scale.astype(mx.float32))
    header, data = {}, b""
    for name, (kind, array) in tensors.items():
        packed = np.array(array).tobytes()
        places = [len(data), len(data) + len(packed)]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": places}
        data += packed
    told = json.dumps(header).encode()
    file = struct.pack("<Q", len(told)) + told + data
    (path / "model.safetensors").write_bytes(file)
    how = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
    set_json(path / "config.json", quantization_config=how)


def inside_another(path: Path) -> None:
    """A text model that was published with a tower, without it."""
    config = json.loads((path / "config.json").read_text())
    set_json(path / "config.json", model_type="mistral3", text_config=config)


@pytest.mark.parametrize("wrapped", [False, True])
def test_bytes_that_the_library_takes_for_numbers_are_refused(
    wrapped: bool, tmp_path: Path
) -> None:
    """mlx-lm's Ministral multiplies the bytes of FP8 by their scale, and says nothing."""
    path = copied("ministral3", tmp_path)
    in_fp8(path)
    if wrapped:
        inside_another(path)
    assert_refused(str(path), "its weights were quantized by fp8")
    assert_refused(str(path), "mlx_lm.convert --hf-path MODEL -q")


def test_plain_weights_that_were_made_from_fp8_are_read(tmp_path: Path) -> None:
    """Their config still has the words."""
    path = copied("ministral3", tmp_path)
    in_fp8(path, quantized=False)
    load(str(path)).close()


@pytest.mark.conformance
def test_mlx_lm_takes_bytes_of_fp8_for_numbers(tmp_path: Path) -> None:
    """When this fails, `quantization.misread` can go."""
    path, plain = copied("ministral3", tmp_path), network(TEXT["ministral3"])
    in_fp8(path)
    found, _ = load_model(path, lazy=True)
    name = "model.layers.0.mlp.down_proj"
    weights = [np.array(dict(it.named_modules())[name].weight) for it in (found, plain)]
    assert np.linalg.norm(weights[0] - weights[1]) > 5 * FAR * np.linalg.norm(weights[1])
