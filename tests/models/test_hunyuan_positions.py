"""hunyuan_vl, which takes positions for its first tokens alone, and keeps them on the model.

The network is made from its config, and the prompt by hand, so that positions can be left there.
"""

import numpy as np
import pytest
from mlx_vlm.models import hunyuan_vl
from mlx_vlm.models.hunyuan_vl.processing_hunyuan_vl import HunYuanVLImageProcessor

from bushel.core import Prepared
from bushel.models.vision.mrope import MRopePositions
from bushel.models.vision.vision_model import VisionModel
from tests.families.images import MEDIUM, SMALL, picture
from tests.families.text import BASE
from tests.families.vision_family import TOWER

from .batched_rows import BOUND, model_of, words, worst
from .vision_prompts import loaded
from .vision_prompts import prompt as shown

IMAGE, PIECE, TOKENS = 5, 8, 7


@pytest.fixture(scope="module")
def model() -> VisionModel:
    return made()


def made() -> VisionModel:
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
    return model_of(hunyuan_vl, config)


def prompt(seed: int, images: int = 1, text: int = 20) -> Prepared:
    if not images:
        return Prepared(words(seed, text))
    process = HunYuanVLImageProcessor(min_pixels=256, max_pixels=4096, patch_size=8)
    found = process([picture(MEDIUM, seed)])
    _, high, wide = found["image_grid_thw"][0] // 2
    ids = (*words(seed, text), *[IMAGE] * (high * (wide + 1) + 2), *words(seed + 1, text))
    pixels = found["pixel_values"].astype(np.float32)
    tensors = {"pixel_values": pixels, "image_grid_thw": found["image_grid_thw"]}
    return Prepared(tuple(map(int, ids)), tensors)


def difference(model: VisionModel) -> float:
    """Prompts with and without images, beside each other."""
    prompts = [prompt(1), prompt(2, images=0), prompt(3, text=33), prompt(4, images=0, text=3)]
    return worst(model, prompts, PIECE, TOKENS)


def test_rows_that_share_a_batch_are_as_they_are_alone(model: VisionModel) -> None:
    """With and without images, no row takes another's positions. B1, B4, B5."""
    assert model.single is None
    assert difference(model) < BOUND


def test_without_its_mend_rows_are_at_one_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the library takes one for everybody."""
    monkeypatch.setattr("bushel.models.vision.vision_model.mend", lambda *_: None)
    assert difference(made()) > 100 * BOUND


def test_images_cut_like_text_would_be_at_wrong_positions(
    model: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(MRopePositions, "whole", lambda *_: 0)
    assert difference(model) > 100 * BOUND


def test_positions_left_on_the_model_would_be_taken_for_the_next_prompt(
    model: VisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: they do not even fit its length."""
    monkeypatch.setattr(MRopePositions, "forget", lambda *_: None)
    with pytest.raises(ValueError, match="reshape"):
        difference(model)


def test_an_image_is_never_cut(model: VisionModel) -> None:
    found = model.embed(prompt(1))
    [(start, end)] = found.uncut
    assert start == 0
    assert end >= found.spans[-1][1]
    assert found.positions is not None
    assert not model.embed(prompt(2, images=0)).uncut


def test_two_images_are_seen_apart() -> None:
    """What is kept of the first is the same whatever comes after it. B44."""
    model = loaded("hunyuan_vl")
    first, second = picture(SMALL, 1), picture(MEDIUM, 2)
    pair = model.embed(shown(model, first, "And ", second, "?"))
    alone = model.embed(shown(model, first, "?"))
    (low, high), (later, _) = pair.spans
    assert (low, high) == alone.spans[0]
    assert pair.embeds is not None
    assert alone.embeds is not None
    apart = np.array(pair.embeds[:, low:high]) - np.array(alone.embeds[:, low:high])
    assert np.abs(apart).max() < BOUND
    assert pair.positions is not None
    assert np.array(pair.positions)[0, 1, later + 1 : later + 4].tolist() == [0, 1, 2]
