"""The host's side of a checkpoint: text and pictures to ids and tensors, without any weight.

What prepares requests may live in another process than what runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from PIL import Image

from bushel.core import GenerationDefaults, Prepared, RequestError, public_message
from bushel.core.checkpoint import Checkpoint
from bushel.core.options import Task
from bushel.models.processor_fixes import mend_processor
from bushel.models.vision.image_fixes.expansion import make_room
from bushel.models.vision.image_spans import placeholders, spans_of, to_host
from bushel.models.vision.one_placeholder import (
    BOUNDS,
    Form,
    form_of,
    spread,
    takes_one_image,
)
from bushel.models.vision.placeholders import Shape, place, settings_of
from bushel.text.profile import TokenizerProfile
from bushel.text.tokenizer import BREAK, Tokenizer

_SHAPES = 256  # of images and videos, whose number of tokens is remembered


class Preparer:
    """Of a text model."""

    sees = False  # images and videos
    task: Task = "generate"

    def __init__(self, checkpoint: Checkpoint, tokenizer: Tokenizer, vocab: int):
        self.name = checkpoint.path.name
        self.path = checkpoint.path
        self.tokenizer = tokenizer
        self.config = checkpoint.config
        self.defaults = GenerationDefaults.from_config(checkpoint.generation)
        self.context = checkpoint.context  # longest prompt + reply, if the config tells
        self.sparse_beyond = checkpoint.sparse_beyond
        self.vocab = vocab
        self.profile = TokenizerProfile(tokenizer, vocab)

    def prepare(self, text: str, media: Sequence[Any], mark: str = "") -> Prepared:
        """Rendered text and decoded images, to ids and host tensors.

        Control strings with `mark` inside are a client's text (`chat.control_tokens`).
        """
        if media:
            raise RequestError(
                f"{self.name} is a text model: it takes no images or videos.",
                code="unsupported_media",
                param="messages",
            )
        return Prepared(tuple(self.encode(text, mark)))

    def use_template(self, template: str) -> None:
        """Instead of the checkpoint's own; ModelError if it is none."""
        self.tokenizer = self.tokenizer.with_template(template)
        self.profile = TokenizerProfile(self.tokenizer, self.vocab)

    def encode(self, text: str, mark: str = "") -> list[int]:
        """Rendered text without media."""
        return self.tokenizer.encode_marked(text, mark, add_special_tokens=False)


class EncoderPreparer(Preparer):
    """Of an encoder. context: the longest text."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        vocab: int,
        task: Task,
        context: int | None,
    ):
        super().__init__(checkpoint, tokenizer, vocab)
        self.task, self.context = task, context


class VisionPreparer(Preparer):
    """Of a model of mlx-vlm, through the checkpoint's own processor."""

    sees = True

    def __init__(
        self, checkpoint: Checkpoint, tokenizer: Tokenizer, vocab: int, processor: Any, config: Any
    ):
        super().__init__(checkpoint, tokenizer, vocab)
        mend_processor(processor)
        self.processor = processor
        self._config = config  # as mlx-vlm reads it
        self._tokens_of = lru_cache(_SHAPES)(self._count_tokens)

    def prepare(self, text: str, media: Sequence[Any], mark: str = "") -> Prepared:
        if not media:
            return Prepared(tuple(self.encode(text, mark)))
        if mark:  # the processor looks for its placeholders in the text, whoever wrote them
            text = text.replace(mark, BREAK)
        prompt = self._process(text, media)
        runs = spans_of(self._config, prompt)
        placed = place(prompt, runs, media, self._settings, self._tokens_of)
        return replace(prompt, media=placed)

    def encode(self, text: str, mark: str = "") -> list[int]:
        special = not self.tokenizer.starts_with_bos(text)
        return self.tokenizer.encode_marked(text, mark, add_special_tokens=special)

    def _process(self, text: str, media: Sequence[Any]) -> Prepared:
        from mlx_vlm.utils import prepare_inputs

        images = [item for item in media if not isinstance(item, list)]
        videos = [item for item in media if isinstance(item, list)]
        if images and videos:  # the networks look at one kind and take the other's places for it
            raise RequestError(
                f"{self.name} takes images or videos, not both in one request.",
                code="unsupported_media",
                param="messages",
            )
        try:
            inputs = prepare_inputs(
                self.processor,
                images=images or None,
                videos=[np.stack([np.asarray(f) for f in v]) for v in videos] or None,
                prompts=text,
                image_token_index=getattr(self._config, "image_token_index", None),
                add_special_tokens=not self.tokenizer.starts_with_bos(text),
            )
        except Exception as error:  # processors raise whatever an odd image provokes
            raise RequestError(
                f"The model's processor refused the media: {public_message(error)}",
                code="invalid_media",
            ) from error
        ids = np.asarray(inputs.pop("input_ids"))
        prompts = len(ids) if ids.ndim > 1 else 1  # molmo's writes one for each image
        if prompts > 1 or (len(images) > 1 and takes_one_image(self._config)):
            raise RequestError(
                f"{self.name} takes one image in a request.",
                code="unsupported_media",
                param="messages",
            )
        row: list[int] = ids.reshape(-1).tolist()
        inputs.pop("attention_mask", None)
        tensors = {key: to_host(value) for key, value in inputs.items() if value is not None}
        if images and not tensors:  # the processor is a bare tokenizer
            raise self._takes_none("image")
        if images and (form := form_of(self._config)) is not None:
            return self._spread(form, row, tensors, len(images))
        self._require_places(row, images, videos)
        # Few tokenizers use all the rows that a vocabulary has.
        return make_room(self._config, Prepared(tuple(row), tensors), self.vocab - 1)

    def _spread(self, form: Form, ids: list[int], tensors: dict[str, Any], images: int) -> Prepared:
        prompt, bounds = spread(form, self._config, ids, tensors)
        if not len(bounds):
            raise self._takes_none("image")
        if len(bounds) != images:
            raise RequestError(
                f"The prompt of {self.name} has {len(bounds)} places for {images} images.",
                code="unsupported_media",
                param="messages",
            )
        return Prepared(tuple(prompt), {**tensors, BOUNDS: [bounds]})

    @cached_property
    def _settings(self) -> str:
        return settings_of(self.processor)

    def _count_tokens(self, shape: Shape) -> int:
        """Placeholders of an image or video when it is alone; 0 if it cannot be."""
        kind, size, frames = shape
        blank = Image.new("RGB", size)
        turn = {"role": "user", "content": [{"type": kind}]}
        try:
            alone = self._process(
                self.tokenizer.render([turn]), [[blank] * frames if kind == "video" else blank]
            )
        except RequestError:
            return 0
        return sum(high - low for low, high in spans_of(self._config, alone))

    def _require_places(self, ids: list[int], images: list[Any], videos: list[Any]) -> None:
        """Media that the template or the processor left out would be lost unseen (B7a)."""
        present = set(ids)
        for kind, sent in (("image", images), ("video", videos)):
            tokens = placeholders(self._config, kind)
            # A config may name its image token in a way of its own; one for video is named so.
            if sent and not present & set(tokens) and (tokens or kind == "video"):
                raise self._takes_none(kind)

    def _takes_none(self, kind: str) -> RequestError:
        return RequestError(
            f"{self.name} takes no {kind}: its prompt has no place for one.",
            code="unsupported_media",
            param="messages",
        )
