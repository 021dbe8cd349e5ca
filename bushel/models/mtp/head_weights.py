"""The tensors of a prediction head (MTP) in a checkpoint, which both libraries leave unread.

A head is told by the norm of the hidden state that it reads. Published checkpoints have

    mtp.                   fc, pre_fc_norm_embedding, pre_fc_norm_hidden, layers.0, norm
    model.layers.N.        eh_proj, enorm, hnorm, shared_head, beside the layer's own tensors

of Qwen3-Next and Qwen3.5, and of DeepSeek V3 and GLM 4.5, where N is the number of layers. Other
tools leave the first part of these names away, or put another before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from bushel.core import ModelError
from bushel.core.checkpoint import TensorPlace, tensor_places

_QWEN = {
    "pre_fc_norm_hidden": "hidden_norm",
    "pre_fc_norm_embedding": "embedding_norm",
    "fc": "project",
    "norm": "norm",
    "layers.0": "layer",
}
_DEEPSEEK = {
    "hnorm": "hidden_norm",
    "enorm": "embedding_norm",
    "eh_proj": "project",
    "shared_head.norm": "norm",
    "shared_head.head": "lm_head",
    "embed_tokens": "embed_tokens",
    "": "layer",
}
_MARKS = {"pre_fc_norm_hidden.weight": _QWEN, "hnorm.weight": _DEEPSEEK}
_BEYOND_FIRST = re.compile(r"layers\.[1-9]\d*\.")  # of Qwen: heads that draft at one depth each
_UNUSED = re.compile(r"rotary_emb\.inv_freq$")
_BLOCK = 128  # rows and columns of a matrix in eight bits that share a scale


@dataclass(frozen=True)
class HeadTensors:
    """One head's tensors, by the names of `MTPHead`'s modules; not read so far."""

    weights: Mapping[str, mx.array]
    recycles_normed: bool  # its own hidden state goes into the next draft behind its norm
    from_one: bool  # its norms are stored as their distance from one


def holds_head(path: Path) -> bool:
    return _prefix(tensor_places(path)) is not None


def is_head_alone(path: Path) -> bool:
    """Whether a folder holds a head and no model: no embeddings but the head's own."""
    places = tensor_places(path)
    prefix = _prefix(places)
    if prefix is None:
        return False
    own = f"{prefix}embed_tokens.weight"
    return not any(name.endswith("embed_tokens.weight") and name != own for name in places)


def read_head(path: Path, attention: Any) -> HeadTensors:
    """The head of a checkpoint, or the one that is alone in a folder.

    attention: of the family, whose shapes some tensors are split by.
    """
    places = tensor_places(path)
    prefix = _prefix(places)
    if prefix is None:
        raise ModelError(f"{path.name} holds no prediction head (MTP) that Bushel knows.")
    style = next(style for mark, style in _MARKS.items() if f"{prefix}{mark}" in places)
    weights = _read(places, prefix)
    named = {
        _renamed(name, style): weight
        for name, weight in _from_eight_bits(weights).items()
        if not _UNUSED.search(name) and not (style is _QWEN and _BEYOND_FIRST.match(name))
    }
    named = _stacked(_split_experts(named))
    return HeadTensors(
        _split_latents(named, attention), style is _QWEN, style is _QWEN and _as_published(places)
    )


def _prefix(places: Mapping[str, TensorPlace]) -> str | None:
    """Before the names of the first head's tensors."""
    found = (
        name.removesuffix(mark)
        for name in places
        for mark in _MARKS
        if name == mark or name.endswith(f".{mark}")
    )
    return min(found, key=lambda prefix: (len(prefix), prefix), default=None)


def _read(places: Mapping[str, TensorPlace], prefix: str) -> dict[str, mx.array]:
    names = [name for name in places if name.startswith(prefix)]
    arrays: dict[str, mx.array] = {}
    for file in {places[name].file for name in names}:
        held: Any = mx.load(str(file))  # nothing is read before it is evaluated
        arrays.update({name: held[name] for name in names if name in held})
    return {name.removeprefix(prefix): array for name, array in arrays.items()}


def _renamed(name: str, style: Mapping[str, str]) -> str:
    for theirs, ours in style.items():
        if theirs and name.startswith(f"{theirs}."):
            return f"{ours}.{name.removeprefix(f'{theirs}.')}"
    return f"{style['']}.{name}" if "" in style else name


def _as_published(places: Mapping[str, TensorPlace]) -> bool:
    """Whether the body is as it was published: converters turn its convolutions, and add one to
    its norms.
    """
    shapes = [place.shape for name, place in places.items() if name.endswith("conv1d.weight")]
    return any(shape and shape[-1] != 1 for shape in shapes)


def _from_eight_bits(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """As DeepSeek publishes: one scale for each block of a matrix."""
    plain = {}
    for name, weight in weights.items():
        if name.endswith(".weight_scale_inv"):
            continue
        scales = weights.get(f"{name}_scale_inv")
        if scales is not None:
            rows, columns = weight.shape
            wide = mx.repeat(mx.repeat(scales, _BLOCK, axis=0), _BLOCK, axis=1)[:rows, :columns]
            weight = (mx.from_fp8(weight, dtype=mx.float32) * wide).astype(mx.bfloat16)
        plain[name] = weight
    return plain


def _split_experts(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Qwen3.5 publishes the first two projections of all experts as one tensor."""
    split = {}
    for name, weight in weights.items():
        experts, found, what = name.partition(".experts.gate_up_proj")
        if found:
            gate, up = mx.split(weight, 2, axis=-2)
            split[f"{experts}.switch_mlp.gate_proj.{_part(what)}"] = gate
            split[f"{experts}.switch_mlp.up_proj.{_part(what)}"] = up
            continue
        experts, found, what = name.partition(".experts.down_proj")
        if found:
            split[f"{experts}.switch_mlp.down_proj.{_part(what)}"] = weight
        else:
            split[name] = weight
    return split


def _part(suffix: str) -> str:
    """Of a tensor without a last name: weight, scales or biases."""
    return suffix.lstrip("._") or "weight"


def _stacked(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Experts that were published one by one, as one tensor for each projection."""
    experts: dict[str, dict[int, mx.array]] = {}
    stacked = {}
    for name, weight in weights.items():
        match = re.fullmatch(r"(.*)\.experts\.(\d+)\.(\w+\.\w+)", name)
        if match is None:
            stacked[name] = weight
            continue
        owner, number, projection = match.groups()
        experts.setdefault(f"{owner}.switch_mlp.{projection}", {})[int(number)] = weight
    for name, numbered in experts.items():
        if set(numbered) != set(range(len(numbered))):
            raise ModelError(f"The prediction head lacks some experts of {name}.")
        stacked[name] = mx.stack([numbered[number] for number in range(len(numbered))])
    return stacked


def _split_latents(weights: dict[str, mx.array], attention: Any) -> dict[str, mx.array]:
    """Latent attention is published with one matrix, of which mlx-lm makes two."""
    name = "layer.self_attn.kv_b_proj"
    if f"{name}.weight" not in weights or not hasattr(attention, "kv_lora_rank"):
        return weights
    matrix = weights.pop(f"{name}.weight")
    if f"{name}.scales" in weights:
        raise ModelError("The prediction head's kv_b_proj is quantized, which is not read.")
    heads = matrix.reshape(attention.num_heads, -1, attention.kv_lora_rank)
    keys, values = mx.split(heads, [attention.qk_nope_head_dim], axis=1)
    weights["layer.self_attn.embed_q.weight"] = mx.contiguous(keys.swapaxes(-1, -2))
    weights["layer.self_attn.unembed_out.weight"] = mx.contiguous(values)
    return weights
