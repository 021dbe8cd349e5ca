"""hunyuan_vl, which takes positions for its first tokens alone, and keeps them on the model.

Its processor names token ids beyond any small vocabulary, so there is no checkpoint of it here:
the network is made from its config, and the prompt by hand.
"""

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models import hunyuan_vl
from mlx_vlm.models.hunyuan_vl.processing_hunyuan_vl import HunYuanVLImageProcessor

from bushel.core import Prepared
from bushel.models.vision.mrope import MRopePositions
from bushel.models.vision.vision_model import VisionModel
from tests.families.checkpoint import VOCAB, randomise
from tests.families.images import MEDIUM, picture
from tests.families.library_vision_loop import forget_positions
from tests.families.text import BASE
from tests.families.vision_family import TOWER

IMAGE, TOKENS, BOUND = 5, 6, 1e-4


@pytest.fixture(scope="module")
def model() -> VisionModel:
    rope = {"type": "xdrope", "alpha": 1000.0, "xdrope_section": [2, 2, 2, 2]}
    config = {
        **BASE,
        "model_type": "hunyuan_vl",
        "image_token_id": IMAGE,
        "text_config": {
            **BASE,
            "model_type": "hunyuan_vl",
            "num_hidden_layers": 3,
            "rope_scaling": rope,
        },
        "vision_config": {
            **TOWER,
            "model_type": "hunyuan_vl",
            "out_hidden_size": BASE["hidden_size"],
            "max_image_size": 64,
        },
    }
    network = hunyuan_vl.Model(hunyuan_vl.ModelConfig.from_dict(config))
    randomise(network, 1)
    path, unknown = (
        SimpleNamespace(name="hunyuan"),
        dict.fromkeys(("context", "head_dim", "pooling", "sparse_beyond")),
    )
    checkpoint = SimpleNamespace(path=path, config=config, generation={}, heads=1, **unknown)
    return VisionModel(checkpoint, network, None, None)  # type: ignore[arg-type]


def prompt(seed: int, images: int = 1, text: int = 20) -> Prepared:
    words = np.random.default_rng(seed).integers(100, VOCAB, (2, text)).tolist()
    if not images:
        return Prepared(tuple(words[0]))
    process = HunYuanVLImageProcessor(min_pixels=256, max_pixels=4096, patch_size=8)
    found = process([picture(MEDIUM, seed)])
    _, high, wide = found["image_grid_thw"][0] // 2
    ids = (*words[0], *[IMAGE] * (high * (wide + 1) + 2), *words[1])
    pixels = found["pixel_values"].astype(np.float32)
    tensors = {"pixel_values": pixels, "image_grid_thw": found["image_grid_thw"]}
    return Prepared(tuple(map(int, ids)), tensors)


def solo(network: Any, prepared: Prepared) -> tuple[list[int], np.ndarray]:
    forget_positions(network)
    ids = mx.array([prepared.ids])
    tensors = {key: mx.array(value) for key, value in prepared.tensors.items()}
    pixels = tensors.pop("pixel_values", None)
    steps = generate_step(
        ids, network, pixels, mx.ones_like(ids), max_tokens=TOKENS, temperature=0.0, **tensors
    )
    tokens, logprobs = zip(*((int(token), np.array(row)) for token, row in steps), strict=True)
    return list(tokens), np.stack(logprobs)


class Row:
    """One prompt alone, in pieces of eight tokens."""

    def __init__(self, model: VisionModel, prepared: Prepared):
        self.model, self.prompt = model, model.embed(prepared)
        self.state, self.done = model.make_state(), 0

    def step(self) -> None:
        last = len(self.prompt.ids) - 1
        if self.done < last:
            end = self.prompt.cut(self.done, self.done + 8, last)
            mx.eval(self.model.prefill(self.prompt, self.done, end, self.state))
            self.done = end

    def follow(self, tokens: list[int]) -> np.ndarray:
        rows = []
        for at, token in enumerate([self.prompt.ids[-1], *tokens[:-1]]):
            logits = self.model.forward(mx.array([[token]]), [self.done + at], self.state)[0, -1]
            rows.append(np.array(logits - mx.logsumexp(logits)))
        return np.stack(rows)


def worst(model: VisionModel) -> float:
    """Prompts with and without images, all embedded before any runs, and prefilled in turn."""
    prepared = [prompt(1), prompt(2, images=0), prompt(3, text=33), prompt(4, images=0, text=1)]
    expected = [solo(model.network, it) for it in prepared]
    rows = [Row(model, it) for it in prepared]
    for _ in range(12):
        for row in rows:
            row.step()
    pairs = zip(rows, expected, strict=True)
    return max(np.abs(row.follow(tokens) - found).max() for row, (tokens, found) in pairs)


def test_prompts_prefilled_in_turn_are_as_they_are_alone(model: VisionModel) -> None:
    """With and without images, no prompt takes another's positions. B5."""
    assert worst(model) < BOUND


def test_images_cut_like_text_would_be_at_wrong_positions(
    model: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(MRopePositions, "whole", lambda *_: 0)
    assert worst(model) > 100 * BOUND


def test_positions_left_on_the_model_would_be_taken_for_the_next_prompt(
    model: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: they do not even fit its length."""
    monkeypatch.setattr(MRopePositions, "forget", lambda *_: None)
    with pytest.raises(ValueError, match="reshape"):
        worst(model)


def test_rows_share_no_batch(model: VisionModel) -> None:
    """Its rotary positions are one number for all rows."""
    assert model.single is not None


def test_an_image_is_never_cut(model: VisionModel) -> None:
    found = model.embed(prompt(1))
    [(start, end)] = found.uncut
    assert start == 0
    assert end >= found.spans[-1][1] - 1  # the end mark is where counting puts it
    assert found.positions is not None
    assert not model.embed(prompt(2, images=0)).uncut
