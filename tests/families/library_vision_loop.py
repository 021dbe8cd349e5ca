"""mlx-vlm's own single-request loop: the reference for prompts with images."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_vlm
import numpy as np
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.utils import prepare_inputs, should_add_special_tokens
from PIL import Image

from bushel.models.vision import given_embeddings, prefix_lm

POSITION_STATE = ("_position_ids", "_rope_deltas")


@dataclass(frozen=True)
class Solo:
    """Greedy tokens, the log-probabilities [n, vocab] each was chosen from, and the prompt."""

    tokens: list[int]
    logprobs: np.ndarray
    prompt_ids: list[int]


def prepare(
    model: nn.Module, processor: Any, text: str, images: Sequence[Image.Image] = ()
) -> dict[str, Any]:
    """The tensors of one prompt, by the call `mlx_vlm.generate` makes."""
    return prepare_inputs(
        processor,
        images=list(images) or None,
        prompts=text,
        image_token_index=getattr(model.config, "image_token_index", None),
        add_special_tokens=should_add_special_tokens(model.config.model_type, processor),
    )


def forget_positions(model: nn.Module) -> None:
    """Drop what an earlier prompt left on the model; the loop itself never does."""
    for name in POSITION_STATE:
        if hasattr(model.language_model, name):
            setattr(model.language_model, name, None)


def load_library(path: str) -> tuple[nn.Module, Any]:
    """A checkpoint as mlx-vlm loads it, where its own loop can run it and see what it is shown."""
    model, processor = mlx_vlm.load(path)
    family = type(model).__module__.rpartition(".")[2]
    if family == "mistral_large3":
        given_embeddings.install(model)
    elif family == "paligemma":
        prefix_lm.place_features(model)
    _name_inputs(model.language_model)
    return model, processor


def _name_inputs(language: nn.Module) -> None:
    """zaya1_vl's has another name for `inputs`: the loop fails on two tokens or more."""
    library = type(language)
    if "inputs" in inspect.signature(library.__call__).parameters:
        return

    class Named(library):
        def __call__(self, inputs: mx.array, **kwargs: Any) -> Any:
            return super().__call__(inputs, **kwargs)

    language.__class__ = Named


def solo_vision(
    model: nn.Module,
    processor: Any,
    text: str,
    images: Sequence[Image.Image] = (),
    max_tokens: int = 8,
    prefill_step_size: int = 2048,
    cuts: Sequence[int] = (),
) -> Solo:
    """`cuts` are places where the prompt is cut besides those that the step size makes."""
    forget_positions(model)
    inputs = prepare(model, processor, text, images)
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
