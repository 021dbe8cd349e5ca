"""From a directory or hub id to a `Model`, through the library that should own it."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import resource
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map_with_path

from bushel.core import ModelError
from bushel.models.adapter import Model, State
from bushel.models.checkpoint import Checkpoint, read_checkpoint
from bushel.models.kv_bits import BITS, plan_kv_bits
from bushel.models.text import TextModel
from bushel.models.tokenizer import Tokenizer, load_tokenizer
from bushel.models.vision import VisionModel

_LONGEST_REASON = 300
_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


@contextlib.contextmanager
def _file_limits_kept() -> Iterator[None]:
    """Importing mlx_lm lowers RLIMIT_NOFILE, hard limit included, for the whole process."""
    original = resource.setrlimit
    resource.setrlimit = lambda *_: None
    try:
        yield
    finally:
        resource.setrlimit = original


def _known_to(library: str, checkpoint: Checkpoint) -> bool:
    if library == "mlx_vlm":
        from mlx_vlm.utils import get_model_type

        model_type = get_model_type(checkpoint.config) or ""
    else:
        with _file_limits_kept():
            from mlx_lm.utils import MODEL_REMAPPING
        model_type = MODEL_REMAPPING.get(checkpoint.model_type, checkpoint.model_type)
    if "." in model_type:  # a path, or a module inside a module: find_spec would raise
        return False
    return importlib.util.find_spec(f"{library}.models.{model_type}") is not None


def _load_text(checkpoint: Checkpoint, trust: bool, dtype: str | None) -> Model:
    with _file_limits_kept():
        from mlx_lm.utils import load_model
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=trust)
    network, _ = load_model(checkpoint.path, lazy=True, trust_remote_code=trust)
    _settle(network, dtype)
    return TextModel(checkpoint, network, tokenizer)


def _load_vision(checkpoint: Checkpoint, trust: bool, dtype: str | None) -> Model:
    import mlx_vlm

    network, processor = mlx_vlm.load(str(checkpoint.path), lazy=True, trust_remote_code=trust)
    hf = getattr(processor, "tokenizer", processor)
    render = None if getattr(hf, "chat_template", None) else processor.apply_chat_template
    tokenizer = Tokenizer(hf, checkpoint, render)
    _settle(network, dtype)
    return VisionModel(checkpoint, network, processor, tokenizer)


def _settle(network: Any, dtype: str | None) -> None:
    if dtype is not None:
        _cast(network, _DTYPES[dtype])
    network.eval()
    mx.eval(network.parameters())


def _cast(network: Any, dtype: mx.Dtype) -> None:
    owner = getattr(network, "language_model", network)
    keep = getattr(network, "cast_predicate", getattr(owner, "cast_predicate", lambda _: True))

    def convert(path: str, weight: Any) -> Any:
        if not isinstance(weight, mx.array) or not mx.issubdtype(weight.dtype, mx.floating):
            return weight
        return weight.astype(dtype) if dtype == mx.float32 or keep(path) else weight

    network.update(tree_map_with_path(convert, network.parameters()))


def _run_once(model: Model, dtype: str | None) -> State:
    """Some combinations fail only when they run: MLX's CPU build mixes experts in float32 alone."""
    try:
        state = model.make_state()
        mx.eval(model.forward(mx.array([[0]]), [0], state))
        return state
    except Exception as error:
        said = f"dtype {dtype}" if dtype else "its own dtype"
        raise ModelError(f"it does not run with {said} on this machine: {error}") from error


def _one_line(error: Exception) -> str:
    """The libraries' messages list every parameter, each on its line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}…"


def load(
    model: str,
    *,
    dtype: str | None = None,
    kv_bits: int | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a checkpoint, or raise one clear ModelError and leave no memory behind (B8)."""
    if dtype is not None and dtype not in _DTYPES:
        raise ModelError(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}.")
    if kv_bits is not None and kv_bits not in BITS:
        raise ModelError(f"kv_bits must be 8 or 4, or None for plain, not {kv_bits!r}.")
    checkpoint = read_checkpoint(model, trust_remote_code=trust_remote_code)
    custom = bool(checkpoint.config.get("model_file"))
    sees = checkpoint.sees and (custom or _known_to("mlx_vlm", checkpoint))
    if not sees and not custom and not _known_to("mlx_lm", checkpoint):
        raise ModelError(
            f"{checkpoint.path.name} is of model type {checkpoint.model_type!r}, which neither "
            "mlx-lm nor mlx-vlm knows. A newer release of theirs may."
        )
    if dtype is None and mx.default_device() == mx.cpu:
        dtype = "float32"
    try:
        loaded = (_load_vision if sees else _load_text)(checkpoint, trust_remote_code, dtype)
        state = _run_once(loaded, dtype)
        if kv_bits is not None:
            loaded.kv_bits = plan_kv_bits(int(kv_bits), state)
        return loaded
    except Exception as error:  # a broken checkpoint can raise anything inside the libraries
        reason = _one_line(error)
    # Raised here, because the exception above would keep the half-loaded weights alive.
    loaded = None  # type: ignore[assignment]
    gc.collect()
    mx.clear_cache()
    raise ModelError(f"{checkpoint.path.name} cannot be loaded: {reason}")
