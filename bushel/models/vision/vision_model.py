"""Models that see, as mlx-vlm runs them; and those that take text alone, which mlx-lm has not.

prompt    <|im_start|> user  [img][img][img][img]  What is this ? <|im_end|> …
spans                        ^------------------^
positions 0            1     2 2 2 2  (rows and columns)  4   5   …      delta < 0
chunk     |---- [s, e) ----|          extras are cut by column, deepstack by image tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Prepared, RequestError
from bushel.core.checkpoint import Checkpoint
from bushel.models.known_families import single_because
from bushel.models.library_fixes import batchable, mend
from bushel.models.model import Features, Model, Prompt, State
from bushel.models.pooling import pooling_of
from bushel.models.preparer import Preparer, VisionPreparer
from bushel.models.vision import cross_attention
from bushel.models.vision.feature_cache import FeatureCache
from bushel.models.vision.image_spans import BY_COLUMN as _BY_COLUMN
from bushel.models.vision.image_spans import (
    DEEPSTACK,
    EMBEDS,
    VISIBLE,
    Embedded,
    Span,
    encode_each,
    layers_of,
    packed_media,
    placeholders,
    runs_of,
    spans_of,
    visible_before,
)
from bushel.models.vision.mrope import MRopePositions
from bushel.models.vision.one_placeholder import BOUNDS, form_of, gathered
from bushel.models.vision.prefix_lm import looks_ahead
from bushel.models.vision.video_time import SECONDS, in_time
from bushel.text.tokenizer import Tokenizer

_UNSERVED = ("decoder_inputs_embeds", "pos_hw")
_POSITIONS = ("position_ids", "rope_deltas")


class VisionModel(Model):
    def __init__(self, checkpoint: Checkpoint, network: Any, processor: Any, tokenizer: Tokenizer):
        """processor: None of a model that takes text alone."""
        self.heads, self.head_dim = checkpoint.heads, checkpoint.head_dim
        mend(network, checkpoint.config)
        self.network = network
        self.single = single_because(network)
        self.pooling = pooling_of(checkpoint.pooling)
        self._positions = MRopePositions(network.language_model)
        self._looks_ahead = looks_ahead(network)
        self.recall = FeatureCache(self)
        own = checkpoint, tokenizer, self._probe_vocab()
        self.host = (
            Preparer(*own) if processor is None else VisionPreparer(*own, processor, network.config)
        )

    def make_state(self) -> State:
        from mlx_vlm.models.cache import make_prompt_cache

        language = self.network.language_model
        state: State = list(make_prompt_cache(language))
        config = getattr(language, "config", None)
        for layer in getattr(config, "cross_attention_layers", ()):
            state[layer] = cross_attention.CrossMemory()
        return self._encoded(batchable(self.network, state))

    def distrust(self) -> None:
        self.forget()
        self.recall = FeatureCache(self)

    def embed(self, prepared: Prepared, start: int = 0, features: Features | None = None) -> Prompt:
        if prepared.media and (start or features is not None):
            return self.recall.embed(prepared, start, features)
        return self.assemble(prepared, self.encode_images(prepared.ids, prepared.tensors))

    def encode_images(self, ids: Sequence[int], tensors: Mapping[str, Any]) -> Embedded:
        """What the library finds out about a prompt, every image encoded by itself if it may be.

        Positions may be left on the model: `assemble` or `forget` comes next.
        """
        form = form_of(self.network.config) if BOUNDS in tensors else None
        if form is not None:
            ids = gathered(form, ids, tensors[BOUNDS][0])
            tensors = {key: tensor for key, tensor in tensors.items() if key != BOUNDS}
        row, given = mx.array([list(ids)]), _to_device(tensors)
        self.forget()
        if each := encode_each(self.network, row, given):
            self.forget()
            return each
        return self._ask(row, given.pop("pixel_values", None), given)

    def embed_text_only(self, prepared: Prepared) -> Embedded:
        """A look without pixels: nothing for the images, all else as it is."""
        ids = mx.array([prepared.ids])
        self.forget()
        try:
            embedded = self._ask(ids, None, {})
        except ValueError:  # minicpmv4_7 wants something in the places of its images
            embedded = self._ask(ids, None, self._blank(prepared))
        if any(key.endswith("_grid_thw") for key in prepared.tensors):
            self.forget()  # positions as if of text; the grids tell them
            embedded = {key: value for key, value in embedded.items() if key not in _POSITIONS}
        return embedded

    def _blank(self, prepared: Prepared) -> dict[str, Any]:
        kept = {
            key: tensor for key, tensor in prepared.tensors.items() if not key.startswith("pixel")
        }
        row = self._ask(mx.array([prepared.ids[:1]]), None, {})[EMBEDS]
        count = sum(high - low for low, high in self.spans(prepared))
        nothing = mx.zeros((1, count, row.shape[-1]), row.dtype)
        return {**_to_device(kept), "cached_image_features": nothing}

    def _ask(self, ids: mx.array, pixels: Any, given: Mapping[str, Any]) -> Embedded:
        features = self.network.get_input_embeddings(ids, pixels, mask=mx.ones_like(ids), **given)
        return {key: value for key, value in features.to_dict().items() if value is not None}

    def assemble(self, prepared: Prepared, embedded: Embedded) -> Prompt:
        """The prompt just looked at; nothing of it stays on the model."""
        ids = mx.array([prepared.ids])
        tensors = {
            key: _to_device(tensor) for key, tensor in prepared.tensors.items() if _stays(key)
        }
        positions, delta = self._positions.capture(ids, embedded, tensors, prepared.has_media)
        if positions is not None and SECONDS in tensors:
            videos = runs_of(self.network.config, prepared.ids, "video")
            positions, delta = in_time(
                self.network.config, videos, tensors[SECONDS], positions, delta
            )
        if any(key in embedded for key in _UNSERVED) or embedded[EMBEDS].shape[1] != ids.size:
            raise RequestError(f"Images are not served yet for {self.name}.", code="unsupported")
        columns = {key: embedded.get(key, tensors.get(key)) for key in _BY_COLUMN}
        extras: dict[str, Any] = {
            key: value for key, value in columns.items() if isinstance(value, mx.array)
        }
        if deepstack := layers_of(embedded.get(DEEPSTACK)):
            extras["deepstack"] = deepstack
            extras["visible_before"] = visible_before(extras[VISIBLE])
        extras["cross"] = cross_attention.arrays_among(embedded)
        spans = self.spans(prepared)
        first = self._positions.whole(positions)
        whole = ((0, max(first, *(end for _, end in spans))),) if first and spans else ()
        return Prompt(
            ids=prepared.ids,
            embeds=embedded[EMBEDS],
            positions=positions,
            delta=delta,
            extras=extras,
            spans=spans,
            uncut=self._uncut(ids, spans, extras) or whole,
        )

    def spans(self, prepared: Prepared) -> tuple[Span, ...]:
        return spans_of(self.network.config, prepared)

    def packs(self, prepared: Prepared) -> frozenset[str]:
        packs = packed_media(self.network.config, prepared.ids, prepared.tensors)
        return frozenset(name for pack in packs for name in pack.names)

    def kinds(self, prepared: Prepared) -> list[str]:
        videos = placeholders(self.network.config, "video")
        starts = (prepared.ids[media.start] for media in prepared.media)
        return ["video" if token in videos else "image" for token in starts]

    def forget(self) -> None:
        self._positions.forget()

    def prefill(self, prompt: Prompt, start: int, end: int, state: State) -> mx.array:
        if not self._looks_ahead or end != len(prompt.ids) - 1:
            return self._prefill(prompt, start, end, state)
        # The last token is seen by the others, and then comes again by itself.
        logits = self._prefill(prompt, start, end + 1, state)
        for layer in state:
            layer.trim(1)
        return logits[:, :-1]

    def _prefill(self, prompt: Prompt, start: int, end: int, state: State) -> mx.array:
        assert prompt.embeds is not None
        cut: dict[str, Any] = {
            key: value[:, start:end] for key, value in prompt.extras.items() if key in _BY_COLUMN
        }
        if "deepstack" in prompt.extras:
            first, last = (prompt.extras["visible_before"][at] for at in (start, end))
            if first == last:
                del cut[VISIBLE]
            else:
                features = [layer[first:last] for layer in prompt.extras["deepstack"]]
                cut[DEEPSTACK] = features
        cut.update(self.prompt_positions(prompt, start, end))
        cross_attention.hold(state, prompt.extras["cross"])
        cut.update(cross_attention.as_kwargs(state, start, end))
        self.forget()
        # A slice, never the stored array: gemma3 scales its argument in place.
        return self.network.language_model(
            mx.array([prompt.ids[start:end]]),
            inputs_embeds=prompt.embeds[:, start:end],
            cache=state,
            **cut,
        ).logits

    def forward(self, tokens: mx.array, positions: Sequence[int], state: State) -> mx.array:
        count = tokens.shape[1]
        kwargs = self._positions.of_text(positions, count)
        cross_attention.place(state, positions)
        kwargs.update(cross_attention.as_kwargs(state, positions[0], positions[0] + count))
        self.forget()
        return self.network.language_model(tokens, cache=state, **kwargs).logits

    def text_positions(self, positions: Sequence[int], count: int) -> dict[str, mx.array]:
        return self._positions.of_text(positions, count)

    def prompt_positions(self, prompt: Prompt, start: int, end: int) -> dict[str, mx.array]:
        if prompt.positions is None:
            return {}
        return self._positions.as_kwargs(prompt.positions[:, :, start:end])

    def close(self) -> None:
        self.network = None
        self._positions = MRopePositions(None)

    def _uncut(
        self, ids: mx.array, spans: tuple[Span, ...], extras: Mapping[str, Any]
    ) -> tuple[Span, ...]:
        """Where the library itself prefills in one piece, all up to the last image stays whole.

        Its masks for two-way attention inside images are built for an empty state only.
        """
        for owner in (self.network.language_model, self.network):
            policy = getattr(owner, "chunked_prefill_policy", None)
            if policy is not None:
                whole = not policy(input_ids=ids, prefill_kwargs=dict(extras))
            else:
                whole = bool(getattr(owner, "no_chunked_prefill", False))
            if whole:
                return ((0, spans[-1][1] if spans and not self._looks_ahead else ids.size),)
        return ()


def _stays(key: str) -> bool:
    """Of a processor's tensors, those that say something of tokens or places, not of pixels."""
    return key in (*_BY_COLUMN, "position_ids", SECONDS) or key.endswith("_grid_thw")


def _to_device(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_device(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_device(item) for item in value]
    return mx.array(value) if isinstance(value, np.ndarray) else value
