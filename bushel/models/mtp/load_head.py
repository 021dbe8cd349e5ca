"""From a checkpoint's tensors to a head that runs beside its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from bushel.core import ModelError
from bushel.models.cast_predicate import cast_predicate
from bushel.models.device import raise_device_fault
from bushel.models.hidden_states import body_of
from bushel.models.mtp.head_cache import HeadKVCache
from bushel.models.mtp.head_weights import HeadTensors, read_head
from bushel.models.mtp.mtp_head import HeadBlock, MTPHead
from bushel.models.mtp.norm_reading import add_one, settle_norms

if TYPE_CHECKING:
    from bushel.models.model import Model

_STATES = ("KVCache", "QuantizedKVCache")  # of layers that a head's may be like


def load_head(model: Model, path: Path | None = None) -> MTPHead:
    """The head in a model's own checkpoint, or in a folder that holds nothing else.

    ModelError if there is none, or if it is not of this model. Layers of another form than the
    model's own fail as they are made, filled or run: whatever they raise, the model does without.
    """
    try:
        head = _load(model, path or model.host.path)
        _try(head)
    except ModelError:
        raise
    except Exception as error:
        raise_device_fault(error)
        raise ModelError(
            f"The prediction head is of a form that Bushel does not know: {error}"
        ) from error
    return head


def _try(head: MTPHead) -> None:
    """A pass of one row, and one of two at different places."""
    norm = head.block.norm.weight
    for starts in ([0], [0, 1]):
        rows = len(starts)
        hidden = mx.zeros((rows, 2, norm.size), norm.dtype)
        tokens = mx.zeros((rows, 2), mx.uint32)
        mx.eval(head.logits(head(hidden, tokens, starts, starts, HeadKVCache(rows))))


def _load(model: Model, path: Path) -> MTPHead:
    language = getattr(model.network, "language_model", model.network)
    body = body_of(model.network)
    attending = _attending(model, body)
    if not attending:
        raise ModelError(f"{model.name} has no attention layer that a head's could be like.")
    tensors = read_head(path, attending[-1][1].self_attn)
    index, like = _alike(attending, tensors)
    norm = like.input_layernorm
    block = HeadBlock(type(like)(language.args, index), norm.weight.shape[0], norm.eps)
    weights = _owned(tensors.weights, body, language, block)
    _fill(block, _cast(weights, norm.weight.dtype, model.network))
    head = MTPHead(
        block,
        block.get("embed_tokens", body.embed_tokens),
        block.get("lm_head", _unembed(body, language)),
        model.text_positions,
        recycles_normed=tensors.recycles_normed,
    )
    if tensors.from_one:
        add_one(head)
    elif tensors.recycles_normed:
        settle_norms(head, model)
    block.eval()
    mx.eval(block.parameters())
    return head


def _attending(model: Model, body: Any) -> list[tuple[int, Any]]:
    """Layers with plain keys and values, and their numbers."""
    pairs = zip(body.layers, model.make_state(), strict=True)
    return [
        (number, layer)
        for number, (layer, state) in enumerate(pairs)
        if "self_attn" in layer and type(state).__name__ in _STATES
    ]


def _alike(attending: list[tuple[int, Any]], tensors: HeadTensors) -> tuple[int, Any]:
    """The last layer that mixes experts if the head does, and none if it does not."""
    mixes = any(".switch_mlp." in name for name in tensors.weights)
    for index, layer in reversed(attending):
        if mixes == ("switch_mlp" in layer.mlp):
            return index, layer
    what = "has experts" if mixes else "has no experts"
    raise ModelError(f"The prediction head {what}, unlike the layers of its model.")


def _unembed(body: Any, language: Any) -> Callable[[mx.array], mx.array]:
    return language.lm_head if "lm_head" in language else body.embed_tokens.as_linear


def _owned(
    weights: Mapping[str, mx.array], body: Any, language: Any, block: HeadBlock
) -> dict[str, mx.array]:
    """Without embeddings that are the body's once more; others become the head's own."""
    own = dict(weights)
    width = block.norm.weight.shape[0]
    for name, theirs in (
        ("embed_tokens", body.embed_tokens),
        ("lm_head", language.lm_head if "lm_head" in language else body.embed_tokens),
    ):
        parts = {key: own[key] for key in weights if key.startswith(f"{name}.")}
        if not parts:
            continue
        if all(_same(part, theirs.get(key.rpartition(".")[2])) for key, part in parts.items()):
            for key in parts:
                del own[key]
            continue
        rows = own[f"{name}.weight"].shape[0]
        block[name] = (
            nn.Embedding(rows, width)
            if name == "embed_tokens"
            else nn.Linear(width, rows, bias=False)
        )
    return own


def _same(own: mx.array, theirs: mx.array | None) -> bool:
    if theirs is None or own.shape != theirs.shape:
        return False
    return bool(mx.array_equal(own.astype(theirs.dtype), theirs).item())


def _cast(weights: dict[str, mx.array], dtype: mx.Dtype, network: Any) -> dict[str, mx.array]:
    """To what the body computes in, but for what its family keeps as it is."""
    may = cast_predicate(network)
    return {
        name: weight.astype(dtype)
        if mx.issubdtype(weight.dtype, mx.floating) and (dtype == mx.float32 or may(name))
        else weight
        for name, weight in weights.items()
    }


def _fill(block: HeadBlock, weights: dict[str, mx.array]) -> None:
    """Give a block its weights, quantized as they come."""

    def packing(path: str, module: Any) -> bool | dict[str, Any]:
        scales = weights.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        return _packing(module, weights[f"{path}.weight"], scales, f"{path}.biases" in weights)

    try:
        nn.quantize(block, class_predicate=packing)
        block.load_weights(list(weights.items()))
    except ValueError as error:
        raise ModelError(f"The prediction head is not of this model: {error}") from error


def _packing(module: Any, packed: mx.array, scales: mx.array, biased: bool) -> dict[str, Any]:
    """How a matrix is quantized, by its shapes: files seldom say it of heads."""
    inputs = module.weight.shape[-1]
    bits, group = packed.shape[-1] * 32 // inputs, inputs // scales.shape[-1]
    if biased:
        return {"group_size": group, "bits": bits, "mode": "affine"}
    mode = "mxfp8" if bits == 8 else "nvfp4" if group == 16 else "mxfp4"
    return {"group_size": group, "bits": bits, "mode": mode}
