"""From a directory or hub id to a `Model`, through the library that should own it."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import logging
import resource
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path

from bushel.core import ModelError, public_message
from bushel.core.checkpoint import Checkpoint, loaded_bytes, read_checkpoint, require_fit
from bushel.core.load_progress import OnLoaded
from bushel.core.options import Task
from bushel.core.text_alone import text_alone_because
from bushel.models.cast_predicate import cast_predicate
from bushel.models.device import ON_CPU, require_device, use_cpu
from bushel.models.encoder_model import encoder_task, open_encoder
from bushel.models.kv_bits import BITS, plan_kv_bits
from bushel.models.model import Model, Prompt, State
from bushel.models.preparer import Preparer
from bushel.models.quantization import misread, unreadable
from bushel.models.text_model import TextModel
from bushel.models.vision.processors import provide
from bushel.models.vision.vision_model import VisionModel
from bushel.text.tokenizer import Tokenizer, load_tokenizer
from bushel.text.transformers_import import import_transformers

log = logging.getLogger(__name__)
# Bytes of weights that are read at once. 512 MB of bfloat16, made float32, took as long in such
# groups as all at once, and 1056 MB at the most instead of 1104.
_GROUP = 64 << 20
_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


def _nothing(*_: int) -> None:
    pass


@contextlib.contextmanager
def _file_limits_kept() -> Iterator[None]:
    """Importing mlx_lm lowers RLIMIT_NOFILE, hard limit included, for the whole process."""
    original = resource.setrlimit
    resource.setrlimit = lambda *_: None
    try:
        yield
    finally:
        resource.setrlimit = original


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """What an import makes stays: 0.1 of mlx_vlm's 1.7 s looked for garbage in it."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _known_to(library: str, checkpoint: Checkpoint) -> bool:
    if library == "mlx_vlm":
        with _collector_paused():
            import_transformers()
            from mlx_vlm.utils import get_model_type

        model_type = get_model_type(checkpoint.config) or ""
    else:
        with _file_limits_kept(), _collector_paused():
            import_transformers()
            from mlx_lm.utils import MODEL_REMAPPING
        model_type = MODEL_REMAPPING.get(checkpoint.model_type, checkpoint.model_type)
    if "." in model_type:  # a path, or a module inside a module: find_spec would raise
        return False
    return importlib.util.find_spec(f"{library}.models.{model_type}") is not None


@contextlib.contextmanager
def _explained(checkpoint: Checkpoint, library: str) -> Iterator[None]:
    """What a library says of weights that others have packed names tensors, and no way out."""
    try:
        yield
    except Exception as error:  # as in `load`
        why = unreadable(checkpoint, library, public_message(error))
        if why is None:
            raise
        raise ModelError(why) from error


def _open_text(checkpoint: Checkpoint, trust: bool) -> Model:
    with _file_limits_kept():
        from mlx_lm.utils import load_model
    if (why := misread(checkpoint, "mlx_lm")) is not None:
        raise ModelError(why)
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=trust)
    with _explained(checkpoint, "mlx_lm"):
        network, _ = load_model(checkpoint.path, lazy=True, trust_remote_code=trust)
    return TextModel(checkpoint, network, tokenizer)


def _open_vision(checkpoint: Checkpoint, trust: bool) -> Model:
    import mlx_vlm

    provide(checkpoint.model_type)
    with _explained(checkpoint, "mlx_vlm"):
        network, processor = mlx_vlm.load(str(checkpoint.path), lazy=True, trust_remote_code=trust)
    hf = getattr(processor, "tokenizer", processor)
    render = None if getattr(hf, "chat_template", None) else processor.apply_chat_template
    tokenizer = Tokenizer(hf, checkpoint, render)
    return VisionModel(checkpoint, network, processor, tokenizer)


def _open_text_of_vlm(checkpoint: Checkpoint, trust: bool) -> Model:
    """Of a family that mlx-vlm alone has, and that takes text alone: there is no processor."""
    from mlx_vlm.utils import load_model

    tokenizer = load_tokenizer(checkpoint, trust_remote_code=trust)
    with _explained(checkpoint, "mlx_vlm"):
        network = load_model(checkpoint.path, lazy=True, trust_remote_code=trust)
    return VisionModel(checkpoint, network, None, tokenizer)


def _open_encoder(checkpoint: Checkpoint, trust: bool, task: Task) -> Model:
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=trust)
    return open_encoder(checkpoint, tokenizer, task)


def _settle(network: Any, dtype: str | None, loading: OnLoaded) -> None:
    """Read the weights, a group after the other: somebody waits, and may want to interrupt it."""
    if dtype is not None:
        _cast(network, _DTYPES[dtype])
    network.eval()
    named: Any = tree_flatten(network.parameters())
    weights: list[mx.array] = [weight for _, weight in named]
    total, done = sum(weight.nbytes for weight in weights), 0
    loading(0, total)
    for group in _groups(weights):
        mx.eval(group)
        done += sum(weight.nbytes for weight in group)
        if done < total:
            loading(done, total)
    loading(total, total)


def _groups(weights: Sequence[mx.array]) -> Iterator[list[mx.array]]:
    """Of about `_GROUP` bytes, in their order, which is that of most files."""
    group: list[mx.array] = []
    size = 0
    for weight in weights:
        group.append(weight)
        size += weight.nbytes
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _cast(network: Any, dtype: mx.Dtype) -> None:
    may = cast_predicate(network)

    def convert(path: str, weight: Any) -> Any:
        if not isinstance(weight, mx.array) or not mx.issubdtype(weight.dtype, mx.floating):
            return weight
        return weight.astype(dtype) if dtype == mx.float32 or may(path) else weight

    network.update(tree_map_with_path(convert, network.parameters()))


def _run_once(model: Model, dtype: str | None) -> State:
    """Some combinations fail only when they run: MLX's CPU build mixes experts in float32 alone."""
    try:
        state = model.make_state()
        if model.encodes:
            mx.eval(model.encode([Prompt((0,))]))
        else:
            mx.eval(model.forward(mx.array([[0]]), [0], state))
        return state
    except Exception as error:
        kind = f"dtype {dtype}" if dtype else "its own dtype"
        raise ModelError(f"it does not run with {kind} on this machine: {error}") from error


def _open(model: str, trust: bool) -> tuple[Checkpoint, Callable[[], Model]]:
    """What the checkpoint is, and how to open it; its weights are read when they are used."""
    checkpoint = read_checkpoint(model, trust_remote_code=trust)
    if (task := encoder_task(checkpoint)) is not None:
        return checkpoint, lambda: _open_encoder(checkpoint, trust, task)
    opener = _opener(checkpoint)
    return checkpoint, lambda: opener(checkpoint, trust)


def _opener(checkpoint: Checkpoint) -> Callable[[Checkpoint, bool], Model]:
    custom = bool(checkpoint.config.get("model_file"))
    if text_alone_because(checkpoint.config):
        return _open_text_of_vlm
    if checkpoint.sees and (custom or _known_to("mlx_vlm", checkpoint)):
        return _open_vision
    if custom or _known_to("mlx_lm", checkpoint):
        return _open_text
    if _known_to("mlx_vlm", checkpoint):
        return _open_text_of_vlm
    raise ModelError(
        f"{checkpoint.path.name} is of model type {checkpoint.model_type!r}, which neither "
        "mlx-lm nor mlx-vlm knows. A newer release of theirs may."
    )


def open_host(
    model: str,
    *,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
    max_model_len: int | None = None,
) -> Preparer:
    """The part of a checkpoint that prepares requests, without reading a weight.

    chat_template: instead of its own. max_model_len: as of `load`.
    """
    use_cpu()
    loaded = _opened(model, trust_remote_code)
    host = loaded.host
    loaded.close()
    _bound_context(host, max_model_len)
    if chat_template is not None:
        host.use_template(chat_template)
    return host


def _bound_context(host: Preparer, most: int | None) -> None:
    """No longer than the model's own: what lies behind that it was never taught."""
    if most is not None:
        host.context = most if host.context is None else min(most, host.context)


def outline(model: str, *, dtype: str | None = None, trust_remote_code: bool = False) -> Model:
    """A checkpoint of which no weight is read as long as nothing is computed: MLX knows the shapes
    of what it has not made.
    """
    loaded = _opened(model, trust_remote_code)
    dtype = _default_dtype(dtype)
    if dtype is not None:
        _cast(loaded.network, _DTYPES[dtype])
    loaded.network.eval()
    return loaded


def _opened(model: str, trust: bool) -> Model:
    checkpoint, opened = _open(model, trust)
    try:
        return opened()
    except Exception as error:  # as in `load`
        raise ModelError(
            f"{checkpoint.path.name} cannot be loaded: {public_message(error)}"
        ) from error


def _default_dtype(asked: str | None) -> str | None:
    """None: the checkpoint's own."""
    if asked is not None and asked not in _DTYPES:
        raise ModelError(f"dtype must be one of {', '.join(_DTYPES)}, not {asked!r}.")
    return "float32" if asked is None and ON_CPU else asked


def load(
    model: str,
    *,
    dtype: str | None = None,
    kv_bits: int | None = None,
    trust_remote_code: bool = False,
    max_model_len: int | None = None,
    usable: int | None = None,
    loading: OnLoaded = _nothing,
) -> Model:
    """Load a checkpoint, or raise one clear ModelError and leave no memory behind (B8).

    max_model_len: tokens of prompt and reply, if that is less than the model's context.
    usable: bytes of memory; weights that are more are not even read. loading: hears how many are.
    """
    dtype = _default_dtype(dtype)
    if kv_bits is not None and kv_bits not in BITS:
        raise ModelError(f"kv_bits must be 8 or 4, or None for plain, not {kv_bits!r}.")
    require_device()
    checkpoint, opened = _open(model, trust_remote_code)
    if usable is not None:
        require_fit(loaded_bytes(str(checkpoint.path), dtype, widens=ON_CPU), usable)
    try:
        loaded = opened()
        own = loaded.context
        _bound_context(loaded.host, max_model_len)
        if own is not None and max_model_len is not None and max_model_len > own:
            log.warning("a context of %d tokens was asked for, and %d is all", max_model_len, own)
        _settle(loaded.network, dtype, loading)
        state = _run_once(loaded, dtype)
        if kv_bits is not None:
            loaded.kv_bits = plan_kv_bits(int(kv_bits), state)
        return loaded
    except Exception as error:  # a broken checkpoint can raise anything inside the libraries
        reason = public_message(error)
    # Raised here, because the exception above would keep the half-loaded weights alive.
    loaded = None  # type: ignore[assignment]
    gc.collect()
    mx.clear_cache()
    raise ModelError(f"{checkpoint.path.name} cannot be loaded: {reason}")
