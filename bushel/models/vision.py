"""Models that see, as mlx-vlm runs them.

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
from bushel.models import cross
from bushel.models.adapter import Features, Model, Prompt, State
from bushel.models.checkpoint import Checkpoint
from bushel.models.lanes import single_because
from bushel.models.pictures import Span, encode_each, layers_of, spans_of
from bushel.models.positions import Positions
from bushel.models.preparer import SeeingPreparer
from bushel.models.tokenizer import Tokenizer

_DEEPSTACK = "deepstack_visual_embeds"
# Extras with one entry per prompt token, cut by column.
_BY_COLUMN = (
    "visual_pos_masks",
    "per_layer_inputs",
    "mm_token_type_ids",
    "token_type_ids",
    _DEEPSTACK,  # where it is an array; a list has entries for images alone
)
_UNSERVED = ("decoder_inputs_embeds", "pos_hw")


class VisionModel(Model):
    def __init__(self, checkpoint: Checkpoint, network: Any, processor: Any, tokenizer: Tokenizer):
        self.heads, self.head_dim = checkpoint.heads, checkpoint.head_dim
        self.network = network
        self.single = single_because(network)
        self._positions = Positions(network.language_model)
        self.host = SeeingPreparer(
            checkpoint, tokenizer, self._probe_vocab(), processor, network.config
        )

    def make_state(self) -> State:
        from mlx_vlm.models.cache import make_prompt_cache

        language = self.network.language_model
        state: State = list(make_prompt_cache(language))
        config = getattr(language, "config", None)
        for layer in getattr(config, "cross_attention_layers", ()):
            state[layer] = cross.CrossMemory()
        return self._encoded(state)

    def embed(self, prepared: Prepared, start: int = 0, features: Features | None = None) -> Prompt:
        tensors = {key: _to_device(value) for key, value in prepared.tensors.items()}
        ids = mx.array([prepared.ids])
        self._positions.forget()
        found = self._look(ids, tensors)
        positions, delta = self._positions.capture(ids, found, tensors)
        if any(key in found for key in _UNSERVED) or found["inputs_embeds"].shape[1] != ids.size:
            raise RequestError(f"Images are not served yet for {self.name}.", code="unsupported")
        extras = {key: found.get(key, tensors.get(key)) for key in _BY_COLUMN}
        extras = {key: value for key, value in extras.items() if isinstance(value, mx.array)}
        if _DEEPSTACK not in extras and (deepstack := layers_of(found.get(_DEEPSTACK))):
            extras["deepstack"] = deepstack
            visible = np.asarray(extras["visual_pos_masks"]).reshape(ids.size, -1)[:, 0]
            extras["visible_before"] = np.concatenate([[0], np.cumsum(visible)]).tolist()
        extras["cross"] = cross.arrays_among(found)
        spans = spans_of(self.network.config, prepared)
        whole = ((0, first),) if (first := self._positions.whole(positions)) else ()
        return Prompt(
            ids=prepared.ids,
            embeds=found["inputs_embeds"],
            positions=positions,
            delta=delta,
            extras=extras,
            spans=spans,
            uncut=self._uncut(len(prepared.ids), spans, extras) or whole,
        )

    def _look(self, ids: mx.array, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """What the library finds out about a prompt, every image encoded by itself if it may be."""
        if each := encode_each(self.network, ids, tensors):
            self._positions.forget()
            return each
        rest = {key: value for key, value in tensors.items() if key != "pixel_values"}
        features = self.network.get_input_embeddings(
            ids, tensors.get("pixel_values"), mask=mx.ones_like(ids), **rest
        )
        return {key: value for key, value in features.to_dict().items() if value is not None}

    def prefill(self, prompt: Prompt, start: int, end: int, state: State) -> mx.array:
        assert prompt.embeds is not None
        cut: dict[str, Any] = {
            key: value[:, start:end] for key, value in prompt.extras.items() if key in _BY_COLUMN
        }
        if "deepstack" in prompt.extras:
            first, last = (prompt.extras["visible_before"][at] for at in (start, end))
            if first == last:
                del cut["visual_pos_masks"]
            else:
                features = [layer[first:last] for layer in prompt.extras["deepstack"]]
                cut[_DEEPSTACK] = features
        if prompt.positions is not None:
            cut.update(self._positions.said(prompt.positions[:, :, start:end]))
        cross.hold(state, prompt.extras["cross"])
        cut.update(cross.said(state, start, end))
        self._positions.forget()
        # A slice, never the stored array: gemma3 scales its argument in place.
        return self.network.language_model(
            mx.array([prompt.ids[start:end]]),
            inputs_embeds=prompt.embeds[:, start:end],
            cache=state,
            **cut,
        ).logits

    def forward(self, tokens: mx.array, positions: Sequence[int], state: State) -> mx.array:
        count = tokens.shape[1]
        said = self._positions.of_text(positions, count)
        said.update(cross.said(state, positions[0], positions[0] + count))
        self._positions.forget()
        return self.network.language_model(tokens, cache=state, **said).logits

    def close(self) -> None:
        self.network = None
        self._positions = Positions(None)

    def _uncut(
        self, length: int, spans: tuple[Span, ...], extras: Mapping[str, Any]
    ) -> tuple[Span, ...]:
        """Where the library itself prefills in one piece, all up to the last image stays whole.

        Its masks for two-way attention inside images are built for an empty state only.
        """
        for owner in (self.network.language_model, self.network):
            policy = getattr(owner, "chunked_prefill_policy", None)
            if policy is not None:
                whole = not policy(prefill_kwargs=dict(extras))
            else:
                whole = bool(getattr(owner, "no_chunked_prefill", False))
            if whole:
                return ((0, spans[-1][1] if spans else length),)
        return ()


def _to_device(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_device(item) for item in value]
    return mx.array(value) if isinstance(value, np.ndarray) else value
