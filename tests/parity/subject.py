"""A family's prompts, and what the library's own loop makes of each of them alone."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from PIL import Image

from ..families import checkpoint_dir
from ..families.checkpoint import CORPUS, FIRST_SPECIAL, VOCAB
from ..families.images import LARGE, MEDIUM, SMALL, picture
from ..families.library_loop import Solo, solo_text
from ..families.library_vision_loop import Solo as VisionSolo
from ..families.library_vision_loop import solo_vision, solo_whole
from ..families.reference import load_reference
from ..families.text import TEXT, load_network
from ..families.vision import VISION
from ..families.vision_family import VisionFamily
from .double_precision import float64

NAMES = (*TEXT, *VISION)
# Enough for a prompt of one token to fill the fixtures' window of 16 and wrap it in decode; and
# fewer, for families tried in short, with and without one.
TOKENS, WRAPPING_TOKENS, FEW_TOKENS = 24, 20, 10
# Below, at and above the window, in no order; one prompt leaves nothing to prefill.
LENGTHS = (17, 1, 70, 9, 16, 40, 2, 15)
ONE_TOKEN, LONGEST = LENGTHS.index(1), LENGTHS.index(70)
ROWS = len(LENGTHS)
FEW_ROWS = 5  # the shortest and the longest among them, and the largest image twice

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

# Where a layer has pools of 128 tokens: a prompt that ends a few tokens before, and one behind it.
LONG_TEXTS: dict[int, Said] = {3: (CORPUS[:300],), 5: (CORPUS[100:500],)}


# Takes the places where the prompt is cut, as `cuts`.
Alone = Callable[..., Solo | VisionSolo]


@dataclass(frozen=True)
class Row:
    """One prompt, as a request to Bushel and as the solo loop's result."""

    request: dict[str, Any]
    ids: tuple[int, ...]
    tokens: list[int]
    logprobs: np.ndarray  # [tokens, VOCAB]
    images: int = 0
    cut_at: Alone | None = None  # the solo result with other cuts, where it depends on them


@dataclass(frozen=True)
class Subject:
    name: str
    kinds: tuple[str, ...]
    path: str
    rows: tuple[Row, ...]
    sees: bool
    cuts_images: bool = True
    tokens: int = TOKENS
    single: bool = False  # is served one row at a time
    double: bool = False  # runs in float64
    ahead: int = 0  # tokens of a prompt that are run with the others before they come by themselves


@cache
def subject(name: str, tokens: int = TOKENS, rows: int = ROWS) -> Subject:
    """Loads the model by the library's own means, which Bushel has no part in."""
    path = str(checkpoint_dir(name))
    if name in TEXT:
        own = TEXT[name]
        model = load_network(name, Path(path))
        said = _text_rows(model, tokens, LENGTHS[:rows], cuts_matter=bool(own.equal_chunks))
        return Subject(name, own.kinds, path, said, sees=False, tokens=tokens, single=own.single)
    family = VISION[name]
    whole = family.cuts in ("refused", "always refused", "whole")
    cuts = not whole and family.room * max(family.image_tokens) > 1
    conversations = [
        LONG_TEXTS.get(at, said) if family.pool else said for at, said in enumerate(CONVERSATIONS)
    ]
    said = _vision_rows(family, tokens, conversations[:rows], load_reference(name))
    ahead = int(family.cuts == "always refused")
    seen = {"sees": True, "cuts_images": cuts, "ahead": ahead}
    return Subject(name, family.kinds, path, said, tokens=tokens, single=family.single, **seen)


@cache
def doubled(name: str, moved: float = 0.0) -> Subject:
    """A family in float64, on both sides: what rounding there is does not count.

    moved: every weight of the solo loop is off by so much of itself.
    """
    path = str(checkpoint_dir(name))
    with float64():
        if name in TEXT:
            model = load_network(name, Path(path))
            _widen(model, moved)
            rows = _text_rows(model, TOKENS, LENGTHS)
            return Subject(name, TEXT[name].kinds, path, rows, sees=False, double=True)
        family = VISION[name]
        loaded = load_reference(name)
        _widen(loaded[0], moved)
        rows = _vision_rows(family, TOKENS, CONVERSATIONS, loaded)
    return Subject(name, family.kinds, path, rows, sees=True, double=True)


def _widen(network: nn.Module, moved: float) -> None:
    network.set_dtype(mx.float64)
    network.apply(lambda it: it * (1 + moved) if it.dtype == mx.float64 else it)


def _text_rows(
    model: nn.Module, tokens: int, lengths: tuple[int, ...], *, cuts_matter: bool = False
) -> tuple[Row, ...]:
    rng = np.random.default_rng(7)
    rows = []
    for length in lengths:
        ids = rng.integers(FIRST_SPECIAL, VOCAB, length).tolist()
        alone = partial(solo_text, model, ids, tokens)
        solo, cut_at = alone(), alone if cuts_matter else None
        request = {"prompt_token_ids": ids}
        rows.append(Row(request, tuple(ids), solo.tokens, solo.logprobs, cut_at=cut_at))
    return tuple(rows)


def _vision_rows(
    family: VisionFamily, tokens: int, conversations: Sequence[Said], loaded: tuple[Any, Any]
) -> tuple[Row, ...]:
    rows = []
    for seed, said in enumerate(conversations):
        said = _taken(said, family.most_images)
        images = [picture(part, seed + part[0]) for part in said if not isinstance(part, str)]
        text = "".join(part if isinstance(part, str) else family.placeholder for part in said)
        if images:
            text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        # Always in one piece: for glm4v the loop's own chunks are wrong.
        loop = solo_whole if family.whole_passes else solo_vision
        alone = partial(loop, *loaded, text, images, tokens)
        solo, cut_at = alone(), alone if family.equal_chunks else None
        request = _chat(said, images) if images else {"prompt": text}
        named = (family.image_token_id if it == family.mark else it for it in solo.prompt_ids)
        ids = tuple(family.with_room(list(named)))
        rows.append(Row(request, ids, solo.tokens, solo.logprobs, len(images), cut_at))
    return tuple(rows)


def _taken(said: Said, most: int) -> Said:
    """What is said, without the images that come after so many others."""
    sizes = [at for at, part in enumerate(said) if not isinstance(part, str)]
    return tuple(part for at, part in enumerate(said) if at not in sizes[most:])


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
