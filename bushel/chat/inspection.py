"""What can be told of a checkpoint without reading its weights.

MLX reads arrays when they are used: a network that was opened has all their shapes. What only a run
can tell is said to be found at load.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from bushel.cache import kind_of
from bushel.cache.kinds import unbatchable
from bushel.cache.layer_report import LayerReport, kind_word, layer_reports
from bushel.cache.prefix import cannot_restore
from bushel.chat.reply.format_detection import reply_format_of
from bushel.core import BushelError
from bushel.core.footprint import STEP, LayerFootprint, alike
from bushel.core.options import ChatOptions
from bushel.core.text_alone import text_alone_because
from bushel.models import Model, Preparer, State
from bushel.models.known_families import batches_exactly, cuts_matter, single_because
from bushel.models.load import outline
from bushel.models.quantization import in_words, packed_weights, parameters

_LENGTHS = (4096, 32768, 131072)
_ROWS = (1, 8, 32)


@dataclass(frozen=True)
class Inspection:
    """Sizes are bytes; those of memory are as MLX will hold them, with the dtype that was asked."""

    name: str
    path: str
    model_type: str
    task: str  # generate, or what an encoder is for
    sees: bool
    no_pictures: str  # why it takes none, though it was made for them; else empty
    parameters: int
    quantization: str  # as the checkpoint tells it; empty if it has none
    dtype: str  # of most of its weights, in memory
    disk: int
    weights: int
    context: int | None
    vocabulary: int
    layers: dict[str, int]  # how many of each kind
    states: tuple[LayerReport, ...]  # what they keep, by class
    row_token: int  # what a row keeps of every token
    row_fixed: int  # and beside that, whatever its length
    window: int | None  # tokens that its sliding windows keep
    batching: str
    prefixes: str  # whether what prompts share is computed once
    tools: str  # the format of its calls; empty: none
    thinking: str
    template: dict[str, Any]  # what the chat template can take
    sampling: dict[str, Any]  # the checkpoint's own defaults
    sizes: tuple[LayerFootprint, ...] = field(default=(), repr=False)

    def memory(self, rows: int, tokens: int) -> int:
        """Weights, and so many rows of so many tokens each, when nothing runs."""
        kept = -(-tokens // STEP) * STEP
        return self.weights + rows * sum(size.count * _held(size, kept) for size in self.sizes)

    def lengths(self, asked: int | None) -> tuple[int, ...]:
        """Of rows to tell the memory of: what was asked, or some up to its context."""
        if asked is not None:
            return (asked,)
        most = self.context or _LENGTHS[-1]
        return (*(length for length in _LENGTHS if length < most), min(most, _LENGTHS[-1]))

    @staticmethod
    def rows(asked: int | None) -> tuple[int, ...]:
        return _ROWS if asked is None else (asked,)

    def as_json(self, rows: int | None = None, tokens: int | None = None) -> dict[str, Any]:
        """With the memory of so many rows of so many tokens each, or of a few of both."""
        told = asdict(self)
        del told["sizes"]
        told["memory"] = [
            {"rows": count, "tokens": length, "bytes": self.memory(count, length)}
            for count in self.rows(rows)
            for length in self.lengths(tokens)
        ]
        return told


def _held(size: LayerFootprint, kept: int) -> int:
    return size.fixed + size.per_token * (kept if size.window is None else min(kept, size.window))


def inspect_model(
    model: str, *, dtype: str | None = None, trust_remote_code: bool = False
) -> Inspection:
    """ModelError if it cannot be opened."""
    opened = outline(model, dtype=dtype, trust_remote_code=trust_remote_code)
    try:
        return _inspected(opened, opened.host.config)
    finally:
        opened.close()


def _inspected(model: Model, config: dict[str, Any]) -> Inspection:
    host = model.host
    flat: Any = tree_flatten(model.network.parameters())
    leaves: list[mx.array] = [leaf for _, leaf in flat]
    packed, numbers = packed_weights(model.network), parameters(model.network)
    state, tokens = ([], 0) if model.encodes else _state_of(model)
    sizes = alike([size for layer in state for size in kind_of(layer).size(layer, tokens)])
    windows = [size.window for size in sizes if size.window is not None]
    growing = [size for size in sizes if size.window is None]
    shown, tools, thinking = _conversations(host)
    return Inspection(
        name=host.name,
        path=str(host.path),
        model_type=str(config.get("model_type", "")),
        task=host.task,
        sees=host.sees,
        no_pictures=text_alone_because(config) or "",
        parameters=numbers,
        quantization=in_words(packed),
        dtype=_dtype(leaves),
        disk=sum(file.stat().st_size for file in host.path.glob("*.safetensors")),
        weights=sum(leaf.nbytes for leaf in leaves),
        context=host.context,
        vocabulary=host.vocab,
        layers=_kinds(state),
        states=layer_reports(state),
        row_token=sum(size.count * size.per_token for size in growing),
        row_fixed=sum(
            size.count * (size.fixed + size.per_token * (size.window or 0)) for size in sizes
        ),
        window=max(windows) if windows else None,
        batching=_batching(model),
        prefixes=_prefixes(model, state),
        tools=tools,
        thinking=thinking,
        template=shown,
        sampling={
            name: value for name, value in vars(host.defaults).items() if value not in (None, ())
        },
        sizes=sizes,
    )


def _state_of(model: Model) -> tuple[State, int]:
    """After a few tokens, of which only shapes are known, and how many. Some networks look at
    numbers on the way, and shall not find those of the checkpoint, which would be read.
    """
    model.network.update(tree_map(_blank, model.network.parameters()))
    state = model.make_state()
    tokens = max(kind_of(layer).sized_after for layer in state)
    model.forward(mx.zeros((1, tokens), mx.int32), [0], state)
    return state, tokens


def _kinds(state: State) -> dict[str, int]:
    parts = (part for layer in state for part in kind_of(layer).parts(layer))
    return dict(Counter(kind_word(kind.name) for kind, _ in parts))


def _blank(weight: Any) -> Any:
    """Of the same shape, and one number large. Whole numbers may divide others on the way."""
    number = mx.ones if mx.issubdtype(weight.dtype, mx.integer) else mx.zeros
    return mx.broadcast_to(number((), weight.dtype), weight.shape)


def _batching(model: Model) -> str:
    if model.encodes:
        return "texts of like lengths share a pass"
    why = single_because(model.network) or unbatchable(model.make_state())
    if why is not None:
        return f"one row at a time: {why}"
    if batches_exactly(model.network):
        return "rows share a batch"
    return "tried at load: the family is not known (bushel check tries it now)"


def _prefixes(model: Model, state: State) -> str:
    if model.encodes:
        return "no: an encoder reads a text as a whole"
    why = cuts_matter(model.network) or cannot_restore(state)
    return f"no: {why}" if why else "yes"


def _conversations(host: Preparer) -> tuple[dict[str, Any], str, str]:
    """What the template takes, and the formats of calls and thoughts in replies."""
    if host.task != "generate" or not host.tokenizer.template:
        return {}, "", ""
    try:
        can, format = host.profile.abilities, reply_format_of(host, ChatOptions())
    except BushelError as error:
        return {"error": str(error)}, "", ""
    shown: dict[str, Any] = {
        "system": can.system,
        "images": sorted(can.images),
        "tools": bool(can.tools),
        "parallel_calls": can.parallel,
        "thinking": can.switch.name if can.switch else "",
        "effort": sorted(can.effort.values) if can.effort else [],
        "options": sorted(host.tokenizer.options),
    }
    return shown, format.tools, format.thinking


def _dtype(leaves: list[mx.array]) -> str:
    sizes: Counter[str] = Counter()
    for leaf in leaves:
        sizes[str(leaf.dtype).removeprefix("mlx.core.")] += leaf.nbytes
    return sizes.most_common(1)[0][0] if sizes else ""
