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

from bushel.core import GenerationDefaults, Prepared, RequestError
from bushel.models.adapter import Model, Prompt, State
from bushel.models.checkpoint import Checkpoint
from bushel.models.tokenizer import Tokenizer

# Extras with one entry per prompt token, cut by column.
_BY_COLUMN = ("visual_pos_masks", "per_layer_inputs", "mm_token_type_ids", "token_type_ids")
_POSITION_ATTRIBUTES = ("_position_ids", "_rope_deltas")
_UNSERVED = ("cross_attention_states", "decoder_inputs_embeds", "pos_hw")


class VisionModel(Model):
    def __init__(self, checkpoint: Checkpoint, network: Any, processor: Any, tokenizer: Tokenizer):
        self.name = checkpoint.path.name
        self.tokenizer = tokenizer
        self.defaults = GenerationDefaults.from_config(checkpoint.generation)
        self.context = checkpoint.context
        self.network = network
        self.processor = processor
        # M-RoPE families take explicit positions; left to themselves they read the model's own.
        self.explicit_positions = hasattr(network.language_model, "get_rope_index")
        self.vocab = self._probe_vocab()

    def make_state(self) -> State:
        from mlx_vlm.models.cache import make_prompt_cache

        return list(make_prompt_cache(self.network.language_model))

    def prepare(self, text: str, media: Sequence[Any]) -> Prepared:
        from mlx_vlm.utils import prepare_inputs

        special = not self.tokenizer.starts_with_bos(text)
        if not media:
            return Prepared(tuple(self.tokenizer.encode(text, add_special_tokens=special)))
        images = [item for item in media if not isinstance(item, list)]
        videos = [item for item in media if isinstance(item, list)]
        try:
            inputs = prepare_inputs(
                self.processor,
                images=images or None,
                videos=[np.stack([np.asarray(f) for f in v]) for v in videos] or None,
                prompts=text,
                image_token_index=getattr(self.network.config, "image_token_index", None),
                add_special_tokens=special,
            )
        except Exception as error:  # processors raise whatever an odd image provokes
            raise RequestError(
                f"The model's processor refused the media: {error}", code="invalid_media"
            ) from error
        ids = inputs.pop("input_ids")
        self._require_places(ids, images, videos)
        inputs.pop("attention_mask", None)
        tensors = {key: _to_host(value) for key, value in inputs.items() if value is not None}
        return Prepared(tuple(np.asarray(ids).reshape(-1).tolist()), tensors)

    def _require_places(self, ids: Any, images: list[Any], videos: list[Any]) -> None:
        """Media that the template or the processor left out would be lost unseen (B7a)."""
        found = set(np.asarray(ids).reshape(-1).tolist())
        for kind, sent in (("image", images), ("video", videos)):
            tokens = _placeholders(self.network.config, kind)
            # A config may name its image token in a way of its own; one for video is named so.
            if sent and not found & set(tokens) and (tokens or kind == "video"):
                raise RequestError(
                    f"{self.name} takes no {kind}: its prompt has no place for one.",
                    code="unsupported_media",
                    param="messages",
                )

    def embed(self, prepared: Prepared) -> Prompt:
        language = self.network.language_model
        tensors = {key: _to_device(value) for key, value in prepared.tensors.items()}
        ids = mx.array([prepared.ids])
        self._forget_positions()
        features = self.network.get_input_embeddings(
            ids, tensors.pop("pixel_values", None), mask=mx.ones_like(ids), **tensors
        )
        found = {key: value for key, value in features.to_dict().items() if value is not None}
        positions = found.get("position_ids", getattr(language, "_position_ids", None))
        delta = found.get("rope_deltas", getattr(language, "_rope_deltas", None))
        self._forget_positions()
        if any(key in found for key in _UNSERVED):
            raise RequestError(f"Images are not served yet for {self.name}.", code="unsupported")
        extras = {key: found.get(key, tensors.get(key)) for key in _BY_COLUMN}
        extras = {key: value for key, value in extras.items() if value is not None}
        if "deepstack_visual_embeds" in found:
            extras["deepstack"] = found["deepstack_visual_embeds"]
            visible = np.asarray(extras["visual_pos_masks"]).reshape(len(prepared.ids), -1)[:, 0]
            extras["visible_before"] = np.concatenate([[0], np.cumsum(visible)]).tolist()
        spans = self._spans(prepared)
        return Prompt(
            ids=prepared.ids,
            embeds=found["inputs_embeds"],
            positions=self._axes(positions, len(prepared.ids)),
            delta=0
            if delta is None or not prepared.has_media
            else int(np.asarray(delta).reshape(-1)[0]),
            extras=extras,
            spans=spans,
            uncut=self._uncut(len(prepared.ids), spans, extras),
        )

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
                cut["deepstack_visual_embeds"] = features
        if prompt.positions is not None:
            cut["position_ids"] = prompt.positions[:, :, start:end]
        # A slice, never the stored array: gemma3 scales its argument in place.
        return self.network.language_model(
            mx.array([prompt.ids[start:end]]),
            inputs_embeds=prompt.embeds[:, start:end],
            cache=state,
            **cut,
        ).logits

    def forward(self, tokens: mx.array, positions: Sequence[int], state: State) -> mx.array:
        where = {}
        if self.explicit_positions:
            rows = mx.array(list(positions))[:, None] + mx.arange(tokens.shape[1])[None]
            where["position_ids"] = mx.broadcast_to(rows[None], (3, *rows.shape))
        return self.network.language_model(tokens, cache=state, **where).logits

    def close(self) -> None:
        self.network = self.processor = None

    def _forget_positions(self) -> None:
        for name in _POSITION_ATTRIBUTES:
            if hasattr(self.network.language_model, name):
                setattr(self.network.language_model, name, None)

    def _axes(self, positions: mx.array | None, length: int) -> mx.array | None:
        if not self.explicit_positions:
            return None
        if positions is None:
            positions = mx.arange(length)[None]
        if positions.ndim == 2:
            positions = mx.broadcast_to(positions[None], (3, *positions.shape))
        return positions[:, :, :length]

    def _spans(self, prepared: Prepared) -> tuple[tuple[int, int], ...]:
        if not prepared.has_media:
            return ()
        placeholders = _placeholders(self.network.config, "image", "video")
        inside = np.isin(np.asarray(prepared.ids), placeholders)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
        return tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))

    def _uncut(
        self, length: int, spans: tuple[tuple[int, int], ...], extras: Mapping[str, Any]
    ) -> tuple[tuple[int, int], ...]:
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


def _placeholders(config: Any, *kinds: str) -> list[int]:
    names = (f"{kind}_token_{end}" for kind in kinds for end in ("id", "index"))
    found = (getattr(config, name, None) for name in names)
    return [token for token in found if isinstance(token, int)]


def _to_host(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_host(item) for item in value]
    return np.asarray(value) if isinstance(value, mx.array) else value


def _to_device(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_device(item) for item in value]
    return mx.array(value) if isinstance(value, np.ndarray) else value
