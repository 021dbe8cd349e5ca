"""A family's prompts, and what the library's own loop makes of each of them alone."""

import base64
import io
from dataclasses import dataclass
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import mlx_vlm
import numpy as np
from PIL import Image

from ..families import checkpoint_dir
from ..families.checkpoint import CORPUS, FIRST_SPECIAL, VOCAB
from ..families.images import LARGE, MEDIUM, SMALL, picture
from ..families.solo import solo_text
from ..families.solo_vision import solo_vision
from ..families.text import TEXT
from ..families.vision import VISION

NAMES = (*TEXT, *VISION)
# Enough for a prompt of one token to fill the fixtures' window of 16 and wrap it in decode.
TOKENS = 32
# Below, at and above the window, in no order; one prompt leaves nothing to prefill.
LENGTHS = (17, 1, 70, 9, 16, 40, 2, 15)
ONE_TOKEN, LONGEST = LENGTHS.index(1), LENGTHS.index(70)
ROWS = len(LENGTHS)

# What the user says, with an image wherever there is a size. A list of one is plain text.
Said = tuple[str | tuple[int, int], ...]
CONVERSATIONS: tuple[Said, ...] = (
    (MEDIUM, "What is in the picture?"),
    ("A",),
    (SMALL, "A bushel of apples, or", LARGE, "a bushel of grain?"),
    (CORPUS[:30],),
    (LARGE, "Please write a short story about it."),
    (CORPUS[100:260],),
    ("You are a helpful assistant. What is this?", SMALL, "And what is it for?"),
    (CORPUS[300:345],),
)


@dataclass(frozen=True)
class Row:
    """One prompt, as a request to Bushel and as the solo loop's result."""

    request: dict[str, Any]
    tokens: list[int]
    logprobs: np.ndarray  # [TOKENS, VOCAB]
    images: int = 0


@dataclass(frozen=True)
class Subject:
    name: str
    kinds: tuple[str, ...]
    path: str
    rows: tuple[Row, ...]
    sees: bool
    cuts_images: bool = True
    double: bool = False  # runs in float64


@cache
def subject(name: str) -> Subject:
    """Loads the model by the library's own means, which Bushel has no part in."""
    path = str(checkpoint_dir(name))
    if name in TEXT:
        rows = _text_rows(mlx_lm.load(path)[0])
        return Subject(name, TEXT[name].kinds, path, rows, sees=False)
    cuts = VISION[name].cuts != "refused"
    rows = _vision_rows(path, VISION[name].placeholder)
    return Subject(name, VISION[name].kinds, path, rows, sees=True, cuts_images=cuts)


@cache
def doubled(name: str) -> Subject:
    """A text family in float64, on both sides: what rounding there is does not count."""
    path = str(checkpoint_dir(name))
    model = mlx_lm.load(path)[0]
    model.set_dtype(mx.float64)
    return Subject(name, TEXT[name].kinds, path, _text_rows(model), sees=False, double=True)


def _text_rows(model: nn.Module) -> tuple[Row, ...]:
    rng = np.random.default_rng(7)
    rows = []
    for length in LENGTHS:
        ids = rng.integers(FIRST_SPECIAL, VOCAB, length).tolist()
        solo = solo_text(model, ids, TOKENS)
        rows.append(Row({"prompt_token_ids": ids}, solo.tokens, solo.logprobs))
    return tuple(rows)


def _vision_rows(path: str, placeholder: str) -> tuple[Row, ...]:
    loaded = mlx_vlm.load(path)
    rows = []
    for seed, said in enumerate(CONVERSATIONS):
        images = [picture(part, seed + part[0]) for part in said if not isinstance(part, str)]
        text = "".join(part if isinstance(part, str) else placeholder for part in said)
        if images:
            text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        # Always in one piece: for glm4v the loop's own chunks are wrong.
        solo = solo_vision(*loaded, text, images, TOKENS)
        request = _chat(said, images) if images else {"prompt": text}
        rows.append(Row(request, solo.tokens, solo.logprobs, len(images)))
    return tuple(rows)


def _chat(said: Said, images: list[Image.Image]) -> dict[str, Any]:
    left = iter(images)
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": _data_url(next(left))}}
        for part in said
    ]
    return {"messages": [{"role": "user", "content": content}]}


def _data_url(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
