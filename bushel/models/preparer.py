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
from bushel.core.text_alone import text_alone_because
from bushel.core.video import FrameSampling, Video
from bushel.models.processor_fixes import mend_processor
from bushel.models.vision.image_fixes.expansion import make_room
from bushel.models.vision.image_spans import packed_media, placeholders, spans_of, to_host
from bushel.models.vision.one_placeholder import (
    BOUNDS,
    Form,
    form_of,
    spread,
    takes_one_image,
)
from bushel.models.vision.placeholders import Shape, place, settings_of
from bushel.models.vision.video_time import seconds_of
from bushel.text.profile import TokenizerProfile
from bushel.text.tokenizer import BREAK, Tokenizer

# Families whose network looks at images and at videos; where both are packed patches, it is asked
# for each by itself (`image_spans.encode_each`).
_SEE_BOTH = ("gemma4",)
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
        self.context_borders = checkpoint.context_borders
        self.vocab = vocab
        self.profile = TokenizerProfile(tokenizer, vocab)

    @cached_property
    def sampling(self) -> FrameSampling:
        """Which frames of a video it looks at, if a request does not say."""
        return FrameSampling()

    def prepare(self, text: str, media: Sequence[Any], mark: str = "") -> Prepared:
        """Rendered text and decoded images, to ids and host tensors.

        Control strings with `mark` inside are a client's text (`chat.control_tokens`).
        """
        if media:
            why = text_alone_because(self.config) or "it is a text model"
            raise RequestError(
                f"{self.name} takes no images or videos: {why}.",
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

        images = [item for item in media if not isinstance(item, Video)]
        videos = [item for item in media if isinstance(item, Video)]
        try:
            inputs = prepare_inputs(
                self.processor,
                images=images or None,
                videos=[_pixels(video) for video in videos] or None,
                video_metadata=[_metadata(video) for video in videos] or None,
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
            raise self._takes_no("image")
        if images and not videos and (form := form_of(self._config)) is not None:
            return self._spread(form, row, tensors, len(images))
        self._require_places(row, images, videos)
        self._require_seen(row, images, videos, tensors)
        prompt = Prepared(tuple(row), tensors | seconds_of(self._config, videos))
        # Few tokenizers use all the rows that a vocabulary has.
        return make_room(self._config, prompt, self.vocab - 1)

    def _spread(self, form: Form, ids: list[int], tensors: dict[str, Any], images: int) -> Prepared:
        prompt, bounds = spread(form, self._config, ids, tensors)
        if not len(bounds):
            raise self._takes_no("image")
        if len(bounds) != images:
            raise RequestError(
                f"The prompt of {self.name} has {len(bounds)} places for {images} images.",
                code="unsupported_media",
                param="messages",
            )
        return Prepared(tuple(prompt), {**tensors, BOUNDS: [bounds]})

    @cached_property
    def sampling(self) -> FrameSampling:
        """As its processor asks for, or as mlx-vlm does for one that asks for nothing."""
        from mlx_vlm.utils import resolve_video_sampling

        wish = resolve_video_sampling(self.processor, {})
        return FrameSampling(wish.fps, wish.min_frames, wish.max_frames, wish.frame_factor)

    @cached_property
    def _settings(self) -> str:
        return settings_of(self.processor)

    def _count_tokens(self, shape: Shape) -> int:
        """Placeholders of an image or video when it is alone; 0 if it cannot be."""
        kind, size, frames = shape
        blank: Any = Image.new("RGB", size)
        if kind == "video":
            blank = Video((blank,) * frames, tuple(range(frames)), frames, 1.0)
        turn = {"role": "user", "content": [{"type": kind}]}
        try:
            alone = self._process(self.tokenizer.render([turn]), [blank])
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
                raise self._takes_no(kind)

    def _require_seen(
        self, ids: list[int], images: list[Any], videos: list[Any], tensors: dict[str, Any]
    ) -> None:
        if videos and not any("video" in key for key in tensors):
            # Processors of some families skip what they have no part for, places and all.
            raise self._takes_no("video", "its processor leaves it out")
        if not (images and videos) or self._config.model_type in _SEE_BOTH:
            return
        if not packed_media(self._config, np.array(ids), tensors):
            # The network would look at one kind and take the other's places for it.
            raise RequestError(
                f"{self.name} takes images or videos, not both in one request.",
                code="unsupported_media",
                param="messages",
            )

    def _takes_no(self, kind: str, why: str = "its prompt has no place for one") -> RequestError:
        return RequestError(
            f"{self.name} takes no {kind}: {why}.", code="unsupported_media", param="messages"
        )


def _pixels(video: Video) -> np.ndarray:
    """[frames, channels, height, width], as mlx-vlm reads a file."""
    return np.stack([np.asarray(frame) for frame in video.frames]).transpose(0, 3, 1, 2)


def _metadata(video: Video) -> dict[str, Any]:
    """By the names of mlx-vlm's `VideoMetadata`: families write times into the prompt by it."""
    return {
        "total_num_frames": video.total,
        "fps": video.fps,
        "frames_indices": list(video.indices),
    }
