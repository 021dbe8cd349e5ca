"""mlx-vlm's own single-request loop: the reference for prompts with images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.utils import VideoMetadata, prepare_inputs, should_add_special_tokens
from PIL import Image

from bushel.core.video import Video

POSITION_STATE = ("_position_ids", "_rope_deltas")


@dataclass(frozen=True)
class Solo:
    """Greedy tokens, the log-probabilities [n, vocab] each was chosen from, and the prompt."""

    tokens: list[int]
    logprobs: np.ndarray
    prompt_ids: list[int]


def prepare(
    model: nn.Module,
    processor: Any,
    text: str,
    images: Sequence[Image.Image] = (),
    videos: Sequence[Any] = (),
) -> dict[str, Any]:
    """The tensors of one prompt, by the call `mlx_vlm.generate` makes. Videos are files, which it
    reads itself, or `Video`s."""
    known = [video for video in videos if isinstance(video, Video)]
    return prepare_inputs(
        processor,
        images=list(images) or None,
        videos=[_pixels(video) for video in videos] or None,
        video_metadata=[
            VideoMetadata(video.total, video.fps, list(video.indices)) for video in known
        ]
        or None,
        prompts=text,
        image_token_index=getattr(model.config, "image_token_index", None),
        add_special_tokens=should_add_special_tokens(model.config.model_type, processor),
    )


def solo_whole(
    model: nn.Module,
    processor: Any,
    text: str,
    images: Sequence[Image.Image] = (),
    max_tokens: int = 8,
) -> Solo:
    """Greedy too, but every token out of one pass over the prompt and all tokens before it.

    As if it were trained: mlx-vlm runs a pass of up to eight tokens as so many passes otherwise.
    """
    inputs = prepare(model, processor, text, images)
    ids = inputs.pop("input_ids")
    pixels, mask = inputs.pop("pixel_values", None), inputs.pop("attention_mask", None)
    embeds = model.get_input_embeddings(ids, pixels, mask=mask, **inputs).inputs_embeds
    prompt, language, rows = ids[0].tolist(), model.language_model, []
    model.train()
    for _ in range(max_tokens):
        caches = make_prompt_cache(language)
        last = language(ids, inputs_embeds=embeds, cache=caches).logits[:, -1]
        rows.append(np.array((last - mx.logsumexp(last, axis=-1, keepdims=True))[0]))
        new = mx.argmax(last, axis=-1, keepdims=True)
        ids = mx.concatenate([ids, new.astype(ids.dtype)], axis=1)
        embeds = mx.concatenate([embeds, model.get_input_embeddings(new).inputs_embeds], axis=1)
    model.eval()
    return Solo(ids[0, len(prompt) :].tolist(), np.stack(rows), prompt)


def _pixels(video: Any) -> Any:
    if not isinstance(video, Video):
        return str(video)
    return np.stack([np.asarray(frame) for frame in video.frames]).transpose(0, 3, 1, 2)


def forget_positions(model: nn.Module) -> None:
    """Drop what an earlier prompt left on the model; the loop itself never does."""
    for name in POSITION_STATE:
        if hasattr(model.language_model, name):
            setattr(model.language_model, name, None)


def solo_vision(
    model: nn.Module,
    processor: Any,
    text: str,
    images: Sequence[Image.Image] = (),
    max_tokens: int = 8,
    prefill_step_size: int = 2048,
    cuts: Sequence[int] = (),
    videos: Sequence[Any] = (),
    **more: Any,
) -> Solo:
    """`cuts` are places where the prompt is cut besides those that the step size makes; `more` is
    for the model."""
    inputs = {**prepare(model, processor, text, images, videos), **more}
    return solo_tensors(model, inputs, max_tokens, prefill_step_size, cuts)


def solo_tensors(
    model: nn.Module,
    inputs: dict[str, Any],
    max_tokens: int,
    prefill_step_size: int = 2048,
    cuts: Sequence[int] = (),
) -> Solo:
    """Of a prompt that is prepared, as `solo_vision`."""
    forget_positions(model)
    input_ids = inputs.pop("input_ids")
    steps = generate_step(
        input_ids,
        model,
        inputs.pop("pixel_values", None),
        inputs.pop("attention_mask", None),
        max_tokens=max_tokens,
        temperature=0.0,
        prefill_step_size=prefill_step_size,
        prompt_cache_checkpoint=lambda *_: None,
        prompt_cache_checkpoint_lengths=list(cuts),
        **inputs,
    )
    tokens, logprobs = zip(
        *((int(token), np.array(row.astype(mx.float32))) for token, row in steps), strict=True
    )
    return Solo(list(tokens), np.stack(logprobs), input_ids[0].tolist())
