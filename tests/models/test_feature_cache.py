"""An image that was seen before is not encoded again, and nothing else changes (B5, B7, B44).

BUSHEL_TEST_FAMILIES=all tries every family that sees.
"""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Prepared
from bushel.models import Prompt
from bushel.models.vision import vision_model
from bushel.models.vision.feature_cache import FeatureCache
from bushel.models.vision.feature_records import difference, distance
from bushel.models.vision.vision_model import VisionModel
from tests.depth import often, one_in
from tests.families.family import EVERY
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.library_vision_loop import POSITION_STATE
from tests.families.vision import COMMON, EXEMPLARS, VISION

from .vision_prompts import Shelf, loaded, prompt, splices, watched

BOUND, FAR = 1e-4, 1e-2
# Of an image that is encoded alone instead of with others: up to 1.3e-6 of the largest number, and
# by `recall` no more than 1e-5 of the norm. Another image is further than 0.1 from it.
ROUNDING = 1e-5
# What every family does, as it was measured; a change of the library shows here.
UNSPLICED = {"mllama": "cross"}  # it has no places for images in its prompt
# What an image is begins with the padding of its place; of several, each is told where it is in the
# whole prompt.
PLACED = {name for name, family in VISION.items() if family.placed}
ONE_IMAGE = {name for name, family in VISION.items() if family.most_images < 2}
# Their processors pad images to the largest of a prompt, so a larger one beside it makes it new.
PADDED = {
    *("pixtral", "mistral3", "mistral3_ministral3", "mistral3_mistral4", "mistral_large3"),
    "idefics2",
    *("llava_onevision", "llava_next", "granite_vision"),
}
# It counts images by marks around their places, so that it cannot be given one of several.
COUNTED = {"molmo2"}
# Nothing tells which of its tiles are of which image: one that is new makes the others new.
TOGETHER = {"deepseek_vl_v2"}
ENCODED_AGAIN = {*UNSPLICED, *PLACED, *COUNTED, *TOGETHER}

# Every way to place an image, one whose images stand beside the prompt, and two that are odd.
SOME = sorted({*EXEMPLARS, *COMMON, "mllama", "minicpmv4_7", "idefics2"})

A, C, M = picture(SMALL, 1), picture(SMALL, 3), picture(MEDIUM, 4)
B, B2 = picture(LARGE, 2), picture(LARGE, 5)


@pytest.fixture(
    scope="module", params=VISION if EVERY else often(SOME, *sorted(EXEMPLARS)[::2], "minicpmv4_7")
)
def family(request: pytest.FixtureRequest) -> Iterator[VisionModel]:
    model = loaded(request.param)
    yield model
    model.close()


@pytest.fixture
def model(family: VisionModel) -> VisionModel:
    """As it is after loading: nothing is proven."""
    family.recall = FeatureCache(family)
    return family


def plant(model: VisionModel) -> None:
    for name, shape in zip(POSITION_STATE, ((3, 1, 400), (1, 1)), strict=True):
        if hasattr(model.network.language_model, name):
            setattr(model.network.language_model, name, mx.full(shape, 77))


def embed(model: VisionModel, prepared: Prepared, *said: Any) -> tuple[Prompt, list[int]]:
    """The prompt and the calls of the tower; whatever was on the model is gone then."""
    plant(model)
    with watched(model) as calls:
        found = model.embed(prepared, *said)
    language = model.network.language_model
    assert all(getattr(language, name, None) is None for name in POSITION_STATE)
    return found, calls


def check_equal(model: VisionModel, prepared: Prepared, found: Prompt) -> None:
    assert difference(model.embed(prepared), found, ROUNDING) == ""


def tail(model: VisionModel, run: Prompt, start: int, cold: Prompt) -> np.ndarray:
    """Logits of all from `start` on, after a start that was embedded without reuse."""
    state = model.make_state()
    if start:
        mx.eval(model.prefill(cold, 0, start, state))
    return np.array(model.prefill(run, start, len(run.ids), state)[0].astype(mx.float32))


def test_the_first_prompt_is_as_without_features(model: VisionModel) -> None:
    assert splices(model) is None
    first, shelf = prompt(model, "Hello ", A, " What is it?"), Shelf()
    found, calls = embed(model, first, 0, shelf)
    check_equal(model, first, found)
    assert calls
    assert splices(model) is (model.name not in UNSPLICED)
    assert UNSPLICED.get(model.name, "") in model.recall.reason
    assert len(shelf) == (model.name not in UNSPLICED)


def test_an_image_in_another_conversation_is_not_encoded_again(model: VisionModel) -> None:
    shelf = Shelf()
    embed(model, prompt(model, "Hello ", A, " What is it?"), 0, shelf)
    other = prompt(model, "A bushel of apples. Now tell me about ", A, " in one word.")
    found, calls = embed(model, other, 0, shelf)
    check_equal(model, other, found)
    assert bool(calls) is (model.name in ENCODED_AGAIN)


def test_another_image_of_the_same_size_is_encoded(model: VisionModel) -> None:
    shelf = Shelf()
    embed(model, prompt(model, "Hello ", A, " What is it?"), 0, shelf)
    other = prompt(model, "Hello ", C, " What is it?")
    found, calls = embed(model, other, 0, shelf)
    check_equal(model, other, found)
    assert calls


@pytest.mark.parametrize("features", one_in(2, [True, False]))
def test_images_before_the_start_are_not_looked_at(
    model: VisionModel, monkeypatch: pytest.MonkeyPatch, features: bool
) -> None:
    embed(model, prompt(model, A, " What is it?"), 0, Shelf())
    whole = prompt(model, "Hello ", M, " What is in the picture, and what is it for?")
    start = whole.media[-1].end + 5
    sent: list[Any] = []
    original = vision_model._to_device

    def spy(value: Any) -> Any:
        sent.append(value)
        return original(value)

    monkeypatch.setattr(vision_model, "_to_device", spy)
    found, calls = embed(model, whole, start, Shelf() if features else None)
    monkeypatch.undo()
    if model.name not in UNSPLICED:
        assert not calls
        assert not any(value is whole.tensors["pixel_values"] for value in sent)
    cold = model.embed(whole)
    assert (found.uncut, found.spans, found.delta) == (cold.uncut, cold.spans, cold.delta)
    expected = tail(model, cold, start, cold)
    assert np.abs(tail(model, found, start, cold) - expected).max() < BOUND


def test_a_start_inside_an_image_needs_that_image(model: VisionModel) -> None:
    shelf = Shelf()
    embed(model, prompt(model, M, " What is it?"), 0, shelf)
    whole = prompt(model, "Hello ", M, " What is in the picture?")
    start = whole.media[0].start + (whole.media[0].end - whole.media[0].start) // 2
    found, calls = embed(model, whole, start, shelf)
    check_equal(model, whole, found)
    assert bool(calls) is (model.name in UNSPLICED)


def test_of_two_images_only_the_unknown_one_is_encoded(model: VisionModel) -> None:
    if model.name in ONE_IMAGE:
        pytest.skip("takes one image")
    shelf = Shelf()
    embed(model, prompt(model, "Is ", A, " more than ", B, "?"), 0, shelf)
    pair = prompt(model, "Here is ", A, " and there is ", B2, ". Compare them.")
    found, calls = embed(model, pair, 0, shelf)
    check_equal(model, pair, found)
    _, alone = embed(model, prompt(model, B2, "?"))
    if model.name not in ENCODED_AGAIN:
        assert calls == alone
    for order in ((B2, A), (B2, A, B2)):
        again = prompt(model, "Again ", *(part for it in order for part in (it, " or ")))
        found, calls = embed(model, again, 0, shelf)
        check_equal(model, again, found)
        assert bool(calls) is (model.name in ENCODED_AGAIN)


def test_images_side_by_side_are_told_apart(model: VisionModel) -> None:
    """Their placeholders may be one run."""
    if model.name in ONE_IMAGE:
        pytest.skip("takes one image")
    shelf = Shelf()
    for known, pair in enumerate([prompt(model, A, B, "?"), prompt(model, "So ", A, B, " what?")]):
        found, calls = embed(model, pair, 0, shelf)
        check_equal(model, pair, found)
        assert bool(calls) is (not known or model.name in ENCODED_AGAIN)


def test_a_second_image_after_the_start_is_the_only_one_encoded(model: VisionModel) -> None:
    if model.name in ONE_IMAGE:
        pytest.skip("takes one image")
    shelf = Shelf()
    embed(model, prompt(model, M, " or ", C, "?"), 0, shelf)
    pair = prompt(model, "Here is ", A, " and there is ", B, ". Compare them.")
    start = pair.media[0].end
    found, calls = embed(model, pair, start, None)
    _, alone = embed(model, prompt(model, B, "?"))
    if model.name not in ENCODED_AGAIN:
        assert calls == alone
    cold = model.embed(pair)
    if not any(low < start < high for low, high in cold.uncut):
        difference = tail(model, found, start, cold) - tail(model, cold, start, cold)
        assert np.abs(difference).max() < BOUND


def test_what_an_image_is_beside_a_larger_one(model: VisionModel) -> None:
    """What it was alone, but for processors that pad it then."""
    if model.name in ONE_IMAGE | UNSPLICED.keys():
        pytest.skip("takes one image, or keeps none")
    shelf = Shelf()
    embed(model, prompt(model, M, " or ", C, "?"), 0, shelf)
    embed(model, prompt(model, A, "?"), 0, shelf)
    pair = prompt(model, "Here is ", A, " and there is ", B, ". Compare them.")
    found, calls = embed(model, pair, 0, shelf)
    check_equal(model, pair, found)
    _, alone = embed(model, prompt(model, B, "?"))
    assert (calls != alone) == (model.name in PADDED | PLACED | COUNTED)


def test_features_of_another_image_would_be_noticed(model: VisionModel) -> None:
    """The control: what is put in the places of an image is what is seen there."""
    if model.name in UNSPLICED:
        pytest.skip("keeps none")
    shelf, asked = Shelf(), prompt(model, "Hello ", A, " What is it?")
    embed(model, asked, 0, shelf)
    [(key, own)] = shelf.items()
    embed(model, prompt(model, "Hello ", C, " What is it?"), 0, shelf)
    [(_, wrong)] = [item for item in shelf.items() if item[0] != key]
    assert distance(own, wrong) > 0.1  # far from any rounding
    shelf[key] = wrong
    found, calls = embed(model, asked, 0, shelf)
    cold = model.embed(asked)
    assert not calls
    assert np.abs(tail(model, found, 0, cold) - tail(model, cold, 0, cold)).max() > FAR


@pytest.fixture
def no_leftovers() -> Iterator[None]:
    """Memory in exactly the sizes asked for: a buffer that is used again may be a larger one."""
    limit = mx.set_cache_limit(0)
    yield
    mx.set_cache_limit(limit)


@pytest.mark.usefixtures("no_leftovers")
def test_records_are_their_own(model: VisionModel) -> None:
    """They keep no more than their rows alive."""
    if model.name in UNSPLICED:
        pytest.skip("keeps none")
    shelf = Shelf()
    asked = prompt(model, "Hello. " * 400, A, " What is it?")
    embed(model, asked, 0, shelf)
    embed(model, asked, 0, shelf)
    full = mx.get_active_memory()
    size = sum(array.nbytes for record in shelf.values() for array in record.values())
    shelf.clear()
    freed = full - mx.get_active_memory()
    assert 0 < size <= freed <= size + 4096
