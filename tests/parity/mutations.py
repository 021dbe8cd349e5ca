"""Production code made wrong on purpose: one small mistake each, which must be noticed.

A mistake changes values and raises nothing: the engine serves what raises row by row, and
would give the right answer.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import pytest

from bushel.cache.batch_state import BatchState
from bushel.cache.composite import Composite
from bushel.cache.compressed import Compressed
from bushel.cache.fixed import Fixed
from bushel.cache.indexed_kv import IndexedKV
from bushel.cache.kv_cache import KV
from bushel.cache.layer_kind import LayerKind, LayerSnapshot
from bushel.cache.pooled_kv import PooledKV, PoolingBatch
from bushel.cache.recurrent import Recurrent
from bushel.cache.window import Window
from bushel.engine.decode_batch import DecodeBatch
from bushel.models import library_fixes, preparer, text_model
from bushel.models.row_positions import minimax_m3, qwen4_exp
from bushel.models.vision import cross_attention, given_embeddings, prefix_lm, vision_model
from bushel.models.vision.image_fixes import anyres, granite4_vision
from bushel.models.vision.image_spans import VISIBLE
from bushel.models.vision.vision_model import VisionModel

Patch = pytest.MonkeyPatch
Kind = type[LayerKind]


@dataclass(frozen=True)
class Mutation:
    name: str
    families: tuple[str, ...]
    scenario: str  # where it has to be noticed
    apply: Callable[[Patch], None]
    at_load: bool = False


# -- layers: what a batch is made of, and what becomes of its rows --------------------------


def after(patch: Patch, kind: Kind, name: str, spoil: Callable[[Any], None]) -> None:
    """Spoil the batch that `merge` returns or that `join` has extended."""
    original = getattr(kind, name)

    def mutated(self: LayerKind, first: Any, *rest: Any) -> Any:
        result = original(self, first, *rest)
        spoil(first if result is None else result)
        return result

    patch.setattr(kind, name, mutated)


def position_off_by_one(kind: Kind) -> Callable[[Patch], None]:
    """The newest row's next token is rotated as if it came one later."""

    def spoil(batch: Any) -> None:
        newest = mx.arange(batch.offset.size) == batch.offset.size - 1
        batch.offset = batch.offset + newest

    return lambda patch: after(patch, kind, "join", spoil)


def padding_forgotten(kind: Kind, where: str) -> Callable[[Patch], None]:
    """Padding is attended to."""

    def spoil(batch: Any) -> None:
        batch.left_padding = mx.zeros_like(batch.left_padding)

    return lambda patch: after(patch, kind, where, spoil)


def padding_too_long(kind: Kind) -> Callable[[Patch], None]:
    """Every row's first visible token is masked."""

    def spoil(batch: Any) -> None:
        batch.left_padding = batch.left_padding + 1

    return lambda patch: after(patch, kind, "join", spoil)


def rows_swapped(kind: Kind) -> Callable[[Patch], None]:
    """Two rows become a batch in the wrong order."""
    original = kind.merge

    def merge(self: LayerKind, singles: Sequence[Any]) -> Any:
        return original(self, list(reversed(singles)))

    return lambda patch: patch.setattr(kind, "merge", merge)


def another_rows_state(kind: Kind) -> Callable[[Patch], None]:
    """A joining row finds the state of the row before it."""

    def repeated(array: mx.array) -> mx.array:
        return mx.concatenate([array[:-1], array[-2:-1]])

    def spoil(batch: Any) -> None:
        if kind is Recurrent:
            batch.cache = [repeated(array) for array in batch.cache]
        else:
            batch.keys, batch.values = repeated(batch.keys), repeated(batch.values)

    return lambda patch: after(patch, kind, "join", spoil)


def newest_row_zeroed(batch: Any) -> None:
    batch.cache = [mx.concatenate([array[:-1], 0 * array[-1:]]) for array in batch.cache]


def state_forgotten(patch: Patch) -> None:
    """A row joins without its recurrent state."""
    after(patch, Recurrent, "join", newest_row_zeroed)


def wrong_rows_kept(kind: Kind) -> Callable[[Patch], None]:
    """When rows leave, the kept ones are handed to each other in reverse."""
    original = kind.leave

    def leave(self: LayerKind, batch: Any, keep: Sequence[int], positions: Sequence[int]) -> None:
        original(self, batch, list(reversed(keep)), positions)

    return lambda patch: patch.setattr(kind, "leave", leave)


def wrong_row_alone(kind: Kind) -> Callable[[Patch], None]:
    """The row that is left alone goes on with the state of one that has left."""
    original = kind.single

    def single(self: LayerKind, batch: Any, row: int, position: int, fresh: Any) -> Any:
        # After a pass that prompts shared rows have no position yet: that is another mistake.
        return original(self, batch, 1 - row if position else row, position, fresh)

    return lambda patch: patch.setattr(kind, "single", single)


def first_token_trimmed(patch: Patch) -> None:
    """When rows leave, the longest that stays loses its first token with the padding."""
    original = KV.leave

    def leave(self: KV, batch: Any, keep: Sequence[int], positions: Sequence[int]) -> None:
        original(self, batch, keep, [position - 1 for position in positions])

    patch.setattr(KV, "leave", leave)


def padding_kept_alone(patch: Patch) -> None:
    """The row that is left alone takes its newest padding for a token."""
    original = KV.single

    def single(self: KV, batch: Any, row: int, position: int, fresh: Any) -> Any:
        return original(self, batch, row, min(position + 1, batch._idx), fresh)

    patch.setattr(KV, "single", single)


def restored_wrong(kind: Kind, change: Callable[[Any], None]) -> Callable[[Patch], None]:
    original = kind.restore

    def restore(self: LayerKind, snapshot: LayerSnapshot, fresh: Any) -> Any:
        layer = original(self, snapshot, fresh)
        # A prompt of one token has nothing to restore.
        if not layer.empty():
            change(layer)
        return layer

    return lambda patch: patch.setattr(kind, "restore", restore)


def one_token_short(layer: Any) -> None:
    layer.offset -= 1


def one_position_late(layer: Any) -> None:
    layer.offset += 1


def ring_turned(layer: Any) -> None:
    """The ring's oldest token is not where the next one is written."""
    layer.keys, layer.values = (mx.roll(it, 1, axis=2) for it in (layer.keys, layer.values))


def arrays_dropped(layer: Any) -> None:
    layer.cache = [mx.zeros_like(array) for array in layer.cache]


def one_array_dropped(layer: Any) -> None:
    layer.cache = [*layer.cache[:-1], mx.zeros_like(layer.cache[-1])]


def group_forgotten(layer: Any) -> None:
    """The group that is still open begins anew."""
    layer.pending_kv = layer.pending_gate = None


restored_empty = restored_wrong(Recurrent, arrays_dropped)
restored_in_part = restored_wrong(Recurrent, one_array_dropped)


def part_forgotten(patch: Patch) -> None:
    """A row joins with one of a composite layer's states, and without the other."""
    after(patch, Composite, "join", lambda batch: newest_row_zeroed(batch.caches[0]))


# -- sparse attention ------------------------------------------------------------------------


def librarys_own_mask(patch: Patch) -> None:
    """Rows of different lengths look at everything, whatever they have chosen."""
    patch.setattr(qwen4_exp, "install", lambda network: None)


def another_rows_index(batch: Any) -> None:
    batch.index_keys = mx.concatenate([batch.index_keys[:-1], batch.index_keys[-2:-1]])


def index_one_position_late(batch: Any) -> None:
    rows = batch.index_position_ids.shape[1]
    batch.index_position_ids = batch.index_position_ids + (mx.arange(rows) == rows - 1)[:, None]


def index_at_join(spoil: Callable[[Any], None]) -> Callable[[Patch], None]:
    return lambda patch: after(patch, IndexedKV, "join", spoil)


def index_turned(layer: Any) -> None:
    """Every token's place in the index is the next one's."""
    layer.index_keys = mx.roll(layer.index_keys, 1, axis=1)


def last_tokens_forgotten(layer: Any) -> None:
    """A layer with n-grams goes on as if nothing had been said."""
    if len(layer.cache) == 4:
        layer.cache = [*layer.cache[:3], mx.zeros_like(layer.cache[3])]


def entries_of_the_row_before(batch: Any) -> None:
    if batch.pooled is not None:
        batch.pooled = mx.concatenate([batch.pooled[:-1], batch.pooled[-2:-1]])


def entries_of_others(patch: Patch) -> None:
    """A joining row finds the pools of the row before it."""
    after(patch, PooledKV, "join", entries_of_the_row_before)


def entries_unmasked(patch: Patch) -> None:
    """Every row sees as many entries as the longest has."""

    def offset(self: PoolingBatch) -> mx.array:
        return mx.full(len(self.positions), max(self.lengths))

    patch.setattr(PoolingBatch, "make_mask", lambda *_: None)
    patch.setattr(PoolingBatch, "offset", property(offset))


def pool_of_other_tokens(patch: Patch) -> None:
    """All rows wait in the slot of the first, whatever they have run."""
    original = PoolingBatch.accumulate_windows

    def accumulate(self: PoolingBatch, kv: mx.array, gate: mx.array, offset: Any) -> Any:
        said = self.positions
        first = said[0] % self.ratio
        self.positions = [at - at % self.ratio + first for at in said]
        found = original(self, kv, gate, offset)
        self.positions = [at + 1 for at in said]
        return found

    patch.setattr(PoolingBatch, "accumulate_windows", accumulate)


def overlap_forgotten(patch: Patch) -> None:
    """Entries look at the pool that was before the row joined, however long that is ago."""
    patch.setattr(PoolingBatch, "keep_overlap", lambda *_: None)


def large_pools_unread(patch: Patch) -> None:
    """An entry of 128 tokens is made, and nothing of them is left in it."""
    original = PoolingBatch.update_and_fetch

    def update(self: PoolingBatch, entries: mx.array) -> Any:
        return original(self, mx.zeros_like(entries) if self.ratio == 128 else entries)

    patch.setattr(PoolingBatch, "update_and_fetch", update)


def waiting_spoiled(layer: Any) -> None:
    """By far: an index takes as good as the same pools whatever one token adds to one of them."""
    layer.buf_kv = -9 * layer.buf_kv


def entries_dropped(layer: Any) -> None:
    if layer.pooled is not None:
        layer.pooled = mx.zeros_like(layer.pooled)


def blocks_from_the_padding(patch: Patch) -> None:
    """Sparse attention counts blocks from the batch's first column."""

    def unpadded(own: Callable[..., mx.array]) -> Callable[..., mx.array]:
        return lambda first, padding, *rest: own(first, mx.zeros_like(padding), *rest)

    for name in ("in_blocks", "as_columns"):
        patch.setattr(minimax_m3, name, unpadded(getattr(minimax_m3, name)))


def index_of_another_row(patch: Patch) -> None:
    """A joining row chooses by the index keys of the row before it."""

    def spoil(batch: Any) -> None:
        if len(batch.caches) > 1:
            index = batch.caches[1]
            index.keys = mx.concatenate([index.keys[:-1], index.keys[-2:-1]])

    after(patch, Composite, "join", spoil)


def index_not_restored(patch: Patch) -> None:
    """Of what was kept of a prefix, the index keys are lost."""
    original = KV.assemble

    def assemble(self: KV, arrays: Sequence[mx.array], position: int, fresh: Any) -> None:
        if arrays and not arrays[1].shape[-1]:
            arrays = mx.zeros_like(arrays[0]), arrays[1]
        original(self, arrays, position, fresh)

    patch.setattr(KV, "assemble", assemble)


def chosen_as_at_the_first_length(patch: Patch) -> None:
    """hy_v4 as its library has it."""
    patch.setattr(library_fixes, "_choose_at_any_length", lambda network: None)


# -- the decode batch ------------------------------------------------------------------------


def tokens_of_other_rows(patch: Patch) -> None:
    """After a leave, rows run each other's next token."""
    original = DecodeBatch.leave

    def leave(self: DecodeBatch, gone: Any) -> None:
        before = len(self)
        original(self, gone)
        if len(self) < before and self._next is not None:
            self._next = mx.roll(self._next, 1)

    patch.setattr(DecodeBatch, "leave", leave)


def first_rows_kept(patch: Patch) -> None:
    """However many rows stay, they find the state of the first ones."""
    original = BatchState.leave

    def leave(self: BatchState, keep: Sequence[int]) -> None:
        positions = [self.positions[row] for row in keep]
        original(self, range(len(keep)))
        self.positions = positions

    patch.setattr(BatchState, "leave", leave)


def shifts_of_other_rows(patch: Patch) -> None:
    """The shift that images cause stays behind when its row moves up."""
    original = DecodeBatch.leave

    def leave(self: DecodeBatch, gone: Any) -> None:
        shifts = self._deltas
        original(self, gone)
        self._deltas = shifts[: len(self)]

    patch.setattr(DecodeBatch, "leave", leave)


# -- models that cannot share a batch as they are ----------------------------------------------


def mends_forgotten(patch: Patch) -> None:
    """Batches go through the library's own code."""
    for module in (text_model, vision_model):
        patch.setattr(module, "mend", lambda *_: None)


# -- models that see -------------------------------------------------------------------------


def decode_position_off_by_one(patch: Patch) -> None:
    original = VisionModel.forward

    def forward(self: VisionModel, tokens: mx.array, positions: Sequence[int], state: Any) -> Any:
        return original(self, tokens, [position + 1 for position in positions], state)

    patch.setattr(VisionModel, "forward", forward)


def embedded(change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """What embedding a prompt found out about it is wrong."""
    original = VisionModel.embed

    def embed(self: VisionModel, prepared: Any, *where: Any) -> Any:
        return change(original(self, prepared))

    return lambda patch: patch.setattr(VisionModel, "embed", embed)


def counted_positions(prompt: Any) -> Any:
    flat = mx.broadcast_to(mx.arange(len(prompt.ids)), prompt.positions.shape)
    return dataclasses.replace(prompt, positions=flat)


def unknown_positions(prompt: Any) -> Any:
    """Chunks say nothing of positions, so that the model reads its own."""
    return dataclasses.replace(prompt, positions=None)


def no_shift(prompt: Any) -> Any:
    return dataclasses.replace(prompt, delta=0)


def deepstack_miscounted(prompt: Any) -> Any:
    """Every chunk gets the features of the image tokens one further on."""
    if "deepstack" not in prompt.extras:
        return prompt
    turned = [mx.roll(layer, -1, axis=0) for layer in prompt.extras["deepstack"]]
    return dataclasses.replace(prompt, extras={**prompt.extras, "deepstack": turned})


def deepstack_from_the_start(patch: Patch) -> None:
    """Every chunk gets as many features as it needs, but the first ones."""
    original = VisionModel.prefill

    def prefill(self: VisionModel, prompt: Any, start: int, end: int, state: Any) -> Any:
        if "deepstack" in prompt.extras:
            first = prompt.extras["visible_before"][start]
            turned = [mx.roll(layer, first, axis=0) for layer in prompt.extras["deepstack"]]
            prompt = dataclasses.replace(prompt, extras={**prompt.extras, "deepstack": turned})
        return original(self, prompt, start, end, state)

    patch.setattr(VisionModel, "prefill", prefill)


def images_cut(patch: Patch) -> None:
    """Images are cut where a chunk ends, though their tokens look both ways."""
    patch.setattr(VisionModel, "_uncut", lambda *_: ())


def column_extras_from_the_start(patch: Patch) -> None:
    """Every chunk gets the first columns of what belongs to each token."""
    original = VisionModel.prefill

    def prefill(self: VisionModel, prompt: Any, start: int, end: int, state: Any) -> Any:
        extras = {
            key: mx.roll(value, start, axis=1) if key in vision_model._BY_COLUMN else value
            for key, value in prompt.extras.items()
        }
        return original(self, dataclasses.replace(prompt, extras=extras), start, end, state)

    patch.setattr(VisionModel, "prefill", prefill)


def positions_left_to_the_model(patch: Patch) -> None:
    """Decode steps say nothing of positions, so that the model reads its own."""
    original = VisionModel.forward

    def forward(self: VisionModel, tokens: mx.array, positions: Sequence[int], state: Any) -> Any:
        if tokens.shape[0] == 1 and not positions[0]:
            return original(self, tokens, positions, state)
        return self.network.language_model(tokens, cache=state).logits

    patch.setattr(VisionModel, "forward", forward)


def pictures_forgotten(patch: Patch) -> None:
    """Decode steps say nothing of the pictures that cross-attention looks at."""
    original = VisionModel.forward

    def forward(self: VisionModel, tokens: mx.array, positions: Sequence[int], state: Any) -> Any:
        cross_attention.hold(state, ())
        return original(self, tokens, positions, state)

    patch.setattr(VisionModel, "forward", forward)


def picture_masks_forgotten(patch: Patch) -> None:
    """Every prompt token sees every picture, whole."""
    original = cross_attention.as_kwargs

    def said(state: Any, start: int, end: int) -> dict[str, mx.array]:
        found = original(state, start, end)
        return {name: value for name, value in found.items() if "mask" not in name}

    patch.setattr(cross_attention, "as_kwargs", said)


def last_token_unseen(patch: Patch) -> None:
    """A prompt whose tokens all see one another is run without its last."""
    patch.setattr(VisionModel, "prefill", VisionModel._prefill)


def padding_seen(patch: Patch) -> None:
    """As the library has it: what follows such a prompt is not masked."""
    patch.setattr(prefix_lm, "install", lambda network: None)


def image_tokens_unmarked(patch: Patch) -> None:
    """Nobody says which tokens the weights for images are for, where there are several."""
    original = vision_model.encode_each

    def encoded(*args: Any) -> Any:
        return {key: value for key, value in original(*args).items() if key != VISIBLE}

    patch.setattr(vision_model, "encode_each", encoded)


def places_off_by_one(patch: Patch) -> None:
    """An image is put a token behind its place, and the token before it."""
    original = preparer.spread

    def spread(*args: Any) -> Any:
        ids, bounds = original(*args)
        return ids, bounds + 1

    patch.setattr(preparer, "spread", spread)


def pictures_as_tokens(patch: Patch) -> None:
    """As the library has it: ids are looked up, whatever embeddings come with them."""
    patch.setattr(given_embeddings, "install", lambda network: None)


def room_one_later(patch: Patch) -> None:
    """Features are put one token behind the places that were made for them."""
    original = preparer.make_room

    def moved(*said: Any) -> Any:
        prompt = original(*said)
        bounds = [it + 1 for it in prompt.tensors["image_bound"]]
        return dataclasses.replace(prompt, tensors={**prompt.tensors, "image_bound": bounds})

    patch.setattr(preparer, "make_room", moved)


def padding_shown(patch: Patch) -> None:
    """Of an image among padding, as many rows and columns as there are, but not its own."""
    original = anyres.unpadded

    def first(*said: Any) -> tuple[slice, ...]:
        return tuple(slice((it.stop or 0) - (it.start or 0)) for it in original(*said))

    patch.setattr(anyres, "unpadded", first)


def layers_of_other_tokens(patch: Patch) -> None:
    """A chunk's image tokens get what layers add to others."""
    original = granite4_vision._after
    patch.setattr(granite4_vision, "_after", lambda at, it: original(at, mx.roll(it, 1, axis=1)))


# Families whose attention has rotary positions; jamba, nemotron_h and kimi_linear have none.
ROPE = ("llama", "qwen3_next", "deepseek_v3", "falcon_h1", "gemma4_vl")
WITH_KV = (*ROPE, "nemotron_h")
TRIMMED = ("llama", "falcon_h1", "gemma4_vl")
WITH_WINDOW = ("llama_sliding", "gemma3_text", "recurrent_gemma", "gemma4_vl")
WITH_RECURRENT = ("qwen3_5", "mamba2", "rwkv7", "lfm2_vl", "qwen4_exp")
WITH_INDEX = ("qwen4_exp",)
COMPOSITE = ("falcon_h1",)
WITH_POOLS = ("glm5_next", "deepseek_v4")
BY_BLOCK = ("minimax_m3", "minimax_m3_vl-text", "minimax_m3_vl")
INDEXED = (*BY_BLOCK, "hy_v4")
MROPE = ("qwen3_vl", "qwen3_5_vl", "qwen2_5_vl", "glm4v", "ernie4_5_moe_vl")
CROSS = ("mllama",)
ONE_OF_EACH = ("llama", "gemma3_text", "mamba2", "falcon_h1", "qwen3_vl")

# Without an error: other families that cannot share a batch raise, and are found out.
MENDED = ("nemotron-nas-linear", "cohere_compass", "afm7")
COMPRESSED = ("deepseek_v41",)

MUTATIONS = (
    Mutation("kv position", ROPE, "staggered", position_off_by_one(KV)),
    Mutation("kv mask at merge", WITH_KV, "chunk 512", padding_forgotten(KV, "merge")),
    Mutation("kv mask at join", WITH_KV, "staggered", padding_forgotten(KV, "join")),
    Mutation("kv padding", WITH_KV, "staggered", padding_too_long(KV)),
    Mutation("kv merge", WITH_KV, "chunk 512", rows_swapped(KV)),
    Mutation("kv join", WITH_KV, "staggered", another_rows_state(KV)),
    Mutation("kv leave", WITH_KV, "leaves", wrong_rows_kept(KV)),
    Mutation("kv alone", WITH_KV, "leaves", wrong_row_alone(KV)),
    Mutation("kv trim at leave", TRIMMED, "leaves", first_token_trimmed),
    Mutation("kv trim alone", TRIMMED, "leaves", padding_kept_alone),
    Mutation("kv restore", WITH_KV, "fork", restored_wrong(KV, one_token_short)),
    Mutation("window position", WITH_WINDOW, "staggered", position_off_by_one(Window)),
    Mutation("window mask at merge", WITH_WINDOW, "chunk 512", padding_forgotten(Window, "merge")),
    Mutation("window mask at join", WITH_WINDOW, "staggered", padding_forgotten(Window, "join")),
    Mutation("window padding", WITH_WINDOW, "staggered", padding_too_long(Window)),
    Mutation("window merge", WITH_WINDOW, "chunk 512", rows_swapped(Window)),
    Mutation("window join", WITH_WINDOW, "staggered", another_rows_state(Window)),
    Mutation("window leave", WITH_WINDOW, "leaves", wrong_rows_kept(Window)),
    Mutation("window alone", WITH_WINDOW, "leaves", wrong_row_alone(Window)),
    Mutation("window restore", WITH_WINDOW, "fork", restored_wrong(Window, one_position_late)),
    Mutation("window ring", WITH_WINDOW, "fork", restored_wrong(Window, ring_turned)),
    Mutation("recurrent merge", WITH_RECURRENT, "chunk 512", rows_swapped(Recurrent)),
    Mutation("recurrent join", WITH_RECURRENT, "staggered", another_rows_state(Recurrent)),
    Mutation("recurrent zero join", WITH_RECURRENT, "staggered", state_forgotten),
    Mutation("recurrent leave", WITH_RECURRENT, "leaves", wrong_rows_kept(Recurrent)),
    Mutation("recurrent alone", WITH_RECURRENT, "leaves", wrong_row_alone(Recurrent)),
    Mutation("recurrent restore", WITH_RECURRENT, "fork", restored_empty),
    Mutation("recurrent last array", WITH_RECURRENT, "fork", restored_in_part),
    Mutation("n-grams", WITH_INDEX, "fork", restored_wrong(Recurrent, last_tokens_forgotten)),
    Mutation("index mask", WITH_INDEX, "staggered", librarys_own_mask, at_load=True),
    Mutation("index merge", WITH_INDEX, "chunk 512", rows_swapped(IndexedKV)),
    Mutation("index join", WITH_INDEX, "staggered", index_at_join(another_rows_index)),
    Mutation("index positions", WITH_INDEX, "staggered", index_at_join(index_one_position_late)),
    Mutation("index leave", WITH_INDEX, "leaves", wrong_rows_kept(IndexedKV)),
    Mutation("index alone", WITH_INDEX, "leaves", wrong_row_alone(IndexedKV)),
    Mutation("index restore", WITH_INDEX, "fork", restored_wrong(IndexedKV, index_turned)),
    Mutation("composite merge", COMPOSITE, "chunk 512", rows_swapped(Composite)),
    Mutation("composite join", COMPOSITE, "staggered", part_forgotten),
    Mutation("composite leave", COMPOSITE, "leaves", wrong_rows_kept(Composite)),
    Mutation("composite alone", COMPOSITE, "leaves", wrong_row_alone(Composite)),
    Mutation("composite restore", COMPOSITE, "fork", restored_empty),
    Mutation("composite restored keys", COMPOSITE, "fork", restored_wrong(KV, one_token_short)),
    Mutation("pooled merge", WITH_POOLS, "chunk 512", rows_swapped(PooledKV)),
    Mutation("pooled join", WITH_POOLS, "staggered", entries_of_others),
    Mutation("pooled leave", WITH_POOLS, "leaves", wrong_rows_kept(PooledKV)),
    Mutation("pooled alone", WITH_POOLS, "leaves", wrong_row_alone(PooledKV)),
    Mutation("pooled mask", WITH_POOLS, "chunk 512", entries_unmasked),
    Mutation("pooled slot", WITH_POOLS, "chunk 512", pool_of_other_tokens),
    Mutation("pooled overlap", ("deepseek_v4",), "chunk 512", overlap_forgotten),
    Mutation("pooled far", ("deepseek_v4",), "chunk 512", large_pools_unread),
    Mutation("pooled restore", WITH_POOLS, "fork", restored_wrong(PooledKV, entries_dropped)),
    Mutation("pooled waiting", WITH_POOLS, "again", restored_wrong(PooledKV, waiting_spoiled)),
    Mutation("sparse blocks", BY_BLOCK, "chunk 512", blocks_from_the_padding),
    Mutation("index join", INDEXED, "staggered", index_of_another_row),
    Mutation("index restore", INDEXED, "again", index_not_restored),
    Mutation("stale choice", ("hy_v4",), "chunk 8", chosen_as_at_the_first_length, at_load=True),
    Mutation("compressed merge", COMPRESSED, "chunk 512", rows_swapped(Compressed)),
    Mutation("compressed leave", COMPRESSED, "leaves", wrong_rows_kept(Compressed)),
    Mutation("compressed alone", COMPRESSED, "leaves", wrong_row_alone(Compressed)),
    Mutation("compressed restore", COMPRESSED, "fork", restored_wrong(Compressed, group_forgotten)),
    Mutation("mends", MENDED, "chunk 512", mends_forgotten, at_load=True),
    Mutation("rows leave", ONE_OF_EACH, "leaves", first_rows_kept),
    Mutation("next tokens", ONE_OF_EACH, "leaves", tokens_of_other_rows),
    Mutation("decode position", MROPE, "chunk 512", decode_position_off_by_one),
    Mutation("image positions", MROPE, "chunk 512", embedded(counted_positions)),
    Mutation("image shift", MROPE, "chunk 512", embedded(no_shift)),
    Mutation("image shift at leave", MROPE, "leaves", shifts_of_other_rows),
    Mutation("own positions", MROPE, "garbage", positions_left_to_the_model),
    Mutation("own positions in prefill", MROPE, "garbage", embedded(unknown_positions)),
    Mutation("deepstack count", ("qwen3_vl",), "chunk 8", embedded(deepstack_miscounted)),
    Mutation("deepstack start", ("qwen3_vl",), "chunk 8", deepstack_from_the_start),
    Mutation("pictures merge", CROSS, "chunk 512", rows_swapped(Fixed)),
    Mutation("pictures leave", CROSS, "churn", wrong_rows_kept(Fixed)),
    Mutation("pictures in decode", CROSS, "chunk 512", pictures_forgotten),
    Mutation("pictures of other tokens", CROSS, "chunk 512", picture_masks_forgotten),
    Mutation("two-way images", ("gemma4_bidir",), "chunk 8", images_cut),
    Mutation("last token of a prefix", ("paligemma",), "chunk 512", last_token_unseen),
    Mutation("mask behind a prefix", ("paligemma",), "chunk 512", padding_seen, at_load=True),
    Mutation("weights for images", ("zaya1_vl",), "chunk 512", image_tokens_unmarked),
    Mutation("place of a mark", ("phi4mm", "phi4_siglip"), "chunk 512", places_off_by_one),
    Mutation("embeddings", ("mistral_large3",), "chunk 512", pictures_as_tokens, at_load=True),
    Mutation("columns", ("gemma4_vl", "zaya1_vl"), "chunk 8", column_extras_from_the_start),
    Mutation("room", ("fastvlm",), "chunk 512", room_one_later),
    Mutation("padding", ("llava_next",), "chunk 512", padding_shown),
    Mutation("layers", ("granite4_vision",), "chunk 8", layers_of_other_tokens),
)
