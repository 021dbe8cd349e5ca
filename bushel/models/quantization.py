"""How a checkpoint's weights are quantized: told of a network, and why a library cannot read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.core.checkpoint import Checkpoint

_PACKED = 32  # bits of a number that holds several weights
# Formats that tools for GPUs write, and of which a library reads less than there is.
_READ = {
    ("awq", "mlx_lm"): "which mlx-lm reads only in 4 bits and in AutoAWQ's GEMM layout",
    ("gptq", "mlx_lm"): "which mlx-lm reads only in 4 bits, without g_idx and in AWQ's layout",
}


@dataclass(frozen=True)
class PackedWeights:
    """Modules that are quantized alike. mode: affine, or that of a format of its own."""

    mode: str
    bits: int
    numbers: int  # that their weights stand for


def packed_weights(network: Any) -> tuple[PackedWeights, ...]:
    """How the network's weights are quantized, most of them first; from shapes alone."""
    numbers: Counter[tuple[str, int]] = Counter()
    for module in _packed_modules(network):
        mode = str(getattr(module, "mode", "affine"))
        numbers[mode, module.bits] += module["weight"].size * _PACKED // module.bits
    return tuple(PackedWeights(*how, count) for how, count in numbers.most_common())


def in_words(packed: tuple[PackedWeights, ...]) -> str:
    """4 bits; 4 and 6 bits; mxfp4. Most of the weights first; empty if none is quantized."""
    affine = [each.bits for each in packed if each.mode == "affine"]
    modes = [each.mode for each in packed if each.mode != "affine"]
    words = [f"{' and '.join(map(str, affine))} bits"] if affine else []
    first = modes + words if packed and packed[0].mode != "affine" else words + modes
    return ", ".join(first)


def parameters(network: Any) -> int:
    """Numbers that the weights are: packed ones count for all they hold, scales for nothing."""
    leaves: Any = tree_flatten(network.parameters())
    total = sum(leaf.size for _, leaf in leaves)
    for module in _packed_modules(network):
        beside = sum(module[name].size for name in ("scales", "biases") if name in module)
        packed = module["weight"].size
        total += packed * _PACKED // module.bits - packed - beside
    return total


def _packed_modules(network: Any) -> Iterator[Any]:
    for module in network.modules():
        weight = module.get("weight")
        if "scales" in module and isinstance(weight, mx.array) and weight.dtype == mx.uint32:
            yield module


def quantized_by(checkpoint: Checkpoint) -> str | None:
    """The tool or format that packed the weights, where it was not MLX."""
    config = checkpoint.config
    if isinstance(config.get("quantization"), dict):
        return None
    text = config.get("text_config")
    nested = text.get("quantization_config") if isinstance(text, dict) else None
    settings = config.get("quantization_config") or nested
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    return str(method) if method else None


def unreadable(checkpoint: Checkpoint, library: str, said: str) -> str | None:
    """What to do about weights that a library did not read, or None if they are MLX's own.

    said: by the library, when it tried.
    """
    method = quantized_by(checkpoint)
    if method is None:
        return None
    # The way out first: what the library said may be cut.
    return f"{_way_out(method, library)} (the library said: {said})"


def misread(checkpoint: Checkpoint, library: str) -> str | None:
    """What to do about weights that a library reads as others than they are, and says nothing.

    mlx-lm's ministral3 multiplies the bytes of FP8 by their scale, as if they were the numbers.
    """
    kind = (quantized_by(checkpoint), library, checkpoint.text_config.get("model_type"))
    scaled = any(name.endswith("weight_scale_inv") for name in checkpoint.weight_names)
    if not scaled or kind != ("fp8", "mlx_lm", "ministral3"):
        return None
    return _way_out("fp8", library)


def _way_out(method: str, library: str) -> str:
    reads = _READ.get((method, library), f"and {library} does not read them")
    return (
        f"its weights were quantized by {method}, {reads}. Convert the model it was made from: "
        f"{library}.convert --hf-path MODEL -q"
    )
