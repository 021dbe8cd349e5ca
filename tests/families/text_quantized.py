"""Families whose weights are quantized, in the formats that checkpoints of the hub have.

MLX's own are made by mlx-lm, as its converter makes them. What AutoAWQ and GPTQ's tools write is
packed here, because theirs need a GPU:

    AWQ    qweight [in, out / 8]   eight outputs a number, in the order of NIBBLES
    GPTQ   qweight [in / 8, out]   eight inputs a number, in their order, and g_idx [in]
    both   scales, qzeros          by groups of inputs; GPTQ's zeros are one less than they are
"""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import quantize_model

from .config_fragments import LOCAL, LOCAL_EXPERTS, TWO, Config, family
from .family import Family

Arrays = dict[str, mx.array]

GROUP = 32
NIBBLES = (
    0,
    2,
    4,
    6,
    1,
    3,
    5,
    7,
)  # which of eight outputs stands in the first four bits, and so on

QUANTIZED: tuple[Family, ...] = (
    family("llama_mixed_bits", "kv", TWO, model_type="llama", packed="mixed"),
    family("llama_awq", "kv", TWO, model_type="llama", packed="awq"),
    family("qwen3_nvfp4", "kv", TWO, model_type="qwen3", packed="nvfp4"),
    family(
        "gpt_oss_mxfp4", "kv window", LOCAL, LOCAL_EXPERTS, model_type="gpt_oss", packed="mxfp4"
    ),
)


def packed_checkpoint(network: nn.Module, family: Family) -> tuple[Arrays, Config]:
    """What stands in the files of a checkpoint that is packed so."""
    return _PACKERS[family.packed](network, family.config)


def _mlx(mode: str) -> Callable[[nn.Module, Config], tuple[Arrays, Config]]:
    def packed(network: nn.Module, config: Config) -> tuple[Arrays, Config]:
        return _converted(network, config, mode=mode)

    return packed


def _mixed(network: nn.Module, config: Config) -> tuple[Arrays, Config]:
    """More bits where it matters, as in most conversions that are not of one width."""

    def bits(path: str, module: nn.Module) -> dict[str, Any]:
        wide = path.endswith(("down_proj", "lm_head"))
        return {"group_size": GROUP if wide else 64, "bits": 6 if wide else 4}

    return _converted(network, config, quant_predicate=bits)


def _converted(network: nn.Module, config: Config, **how: Any) -> tuple[Arrays, Config]:
    with contextlib.redirect_stdout(io.StringIO()):  # it says how many bits that makes
        network, config = quantize_model(network, config, None, None, **how)
    return _arrays(network), config


def _awq(network: nn.Module, config: Config) -> tuple[Arrays, Config]:
    how = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    return _packed_projections(network, awq_tensors), {**config, "quantization_config": how}


def gptq(network: nn.Module, config: Config) -> tuple[Arrays, Config]:
    how = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}
    return _packed_projections(network, gptq_tensors), {**config, "quantization_config": how}


_PACKERS: dict[str, Callable[[nn.Module, Config], tuple[Arrays, Config]]] = {
    "mxfp4": _mlx("mxfp4"),
    "nvfp4": _mlx("nvfp4"),
    "mixed": _mixed,
    "awq": _awq,
}


def _arrays(network: nn.Module) -> Arrays:
    return dict(tree_flatten(network.parameters()))


def _packed_projections(
    network: nn.Module, tensors: Callable[[np.ndarray], dict[str, np.ndarray]]
) -> Arrays:
    """The matrices of layers: those tools leave the vocabulary as it is."""
    arrays: Arrays = {}
    for path, weight in _arrays(network).items():
        if weight.ndim == 2 and ".layers." in path:
            stem = path.removesuffix("weight")
            packed = tensors(np.array(weight))
            arrays |= {stem + name: mx.array(value) for name, value in packed.items()}
        else:
            arrays[path] = weight
    return arrays


def grouped(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of four bits [in, out], and the scales and zeros of their groups [groups, out]."""
    groups = weight.T.reshape(-1, GROUP, weight.shape[0])
    low, high = groups.min(axis=1, keepdims=True), groups.max(axis=1, keepdims=True)
    scale = (high - low) / 15
    zero = np.clip(np.rint(-low / scale), 0, 15)
    numbers = np.clip(np.rint(groups / scale) + zero, 0, 15)
    return numbers.reshape(weight.T.shape).astype(np.uint32), scale[:, 0], zero[:, 0]


def awq_tensors(weight: np.ndarray) -> dict[str, np.ndarray]:
    numbers, scale, zero = grouped(weight)
    return {
        "qweight": _in_eights(numbers, NIBBLES),
        "qzeros": _in_eights(zero.astype(np.uint32), NIBBLES),
        "scales": scale.astype(np.float32),
    }


def gptq_tensors(weight: np.ndarray) -> dict[str, np.ndarray]:
    numbers, scale, zero = grouped(weight)
    return {
        "qweight": _in_eights(numbers.T, range(8)).T.copy(),
        "qzeros": _in_eights((zero.astype(np.uint32) - 1) & 15, range(8)),
        "scales": scale.astype(np.float32),
        "g_idx": (np.arange(weight.shape[1]) // GROUP).astype(np.int32),
    }


def _in_eights(numbers: np.ndarray, order: Any) -> np.ndarray:
    """Eight of the last axis in one number of 32 bits."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8)
    packed = sum(eights[..., which] << np.uint32(4 * at) for at, which in enumerate(order))
    return np.asarray(packed, np.uint32).view(np.int32)
