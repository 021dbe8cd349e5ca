"""Images in prompts that are sent again: what is seen once is not computed twice (B44)."""

from typing import Any

import pytest
from PIL import Image

from bushel.cache.prefix import key_of
from bushel.chat.prompt import prepare
from bushel.core import Media, Prepared
from bushel.models.vision.vision_model import VisionModel
from tests.depth import often, one_in
from tests.families.checkpoint import CORPUS
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.vision import EXEMPLARS, VISION
from tests.models.vision_prompts import watched

from .caching_llm import EVERY, Serving, families

NAMES = [name for name in families(VISION.values(), EXEMPLARS) if VISION[name].most_images > 1]
# Their two-way attention lets nothing before the last image be restored alone.
# With recurrent layers, windows, and pictures in pieces: these stand for the others.
TRIED = NAMES if EVERY else often(NAMES, "qwen3_5_vl", "gemma4_bidir", "smolvlm", "pixtral")
WHOLE = {name for name in NAMES if VISION[name].cuts in ("refused", "whole")}


def changed(image: Image.Image) -> Image.Image:
    """The same but for one pixel, by a little."""
    other = image.copy()
    red, green, blue = other.getpixel((3, 3))  # type: ignore[misc]
    other.putpixel((3, 3), (red ^ 1, green, blue))
    return other


def model_of(serving: Serving) -> VisionModel:
    engine = serving.llm._engine
    assert engine is not None
    assert isinstance(engine.model, VisionModel)
    return engine.model


def turn(*parts: str | Image.Image) -> dict[str, Any]:
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": part}}
        for part in parts
    ]
    return {"role": "user", "content": content}


def asked(serving: Serving, *turns: Any) -> Prepared:
    return prepare(model_of(serving).host, {"messages": list(turns)})


def answered(said: str) -> dict[str, Any]:
    return {"role": "assistant", "content": said}


@pytest.mark.parametrize("name", one_in(2, TRIED))
def test_an_image_is_looked_at_once(name: str) -> None:
    """The vision tower does not run for a picture it has seen in any prompt. B44."""
    image, question = picture(MEDIUM, 3), "What is it?"
    with Serving(name, prefill_chunk=512) as serving:
        first = asked(serving, turn(image, question))
        serving.ask(first)  # the family shows that its images can be recalled
        with watched(model_of(serving)) as calls:
            assert serving.ask(first).cached == len(first.ids) - 1
            # In another conversation its tokens are others, and what was seen is the same.
            other = asked(serving, turn(CORPUS[:60], image, "And this?"))
            start = other.media[0].start
            assert serving.ask(other).cached <= start
            assert calls == []
            assert serving.llm.cache_stats()["features"] > 0


@pytest.mark.parametrize("name", one_in(2, TRIED))
def test_a_second_image_reuses_all_before_it(name: str) -> None:
    """A chat that goes on with another picture computes that one alone. B44."""
    image, more = picture(MEDIUM, 3), picture(SMALL, 4)
    with Serving(name, prefill_chunk=512) as serving:
        first = asked(serving, turn(image, "What is it?"))
        serving.ask(first)
        turns = turn(image, "What is it?"), answered("A plough."), turn(more, "And that?")
        second = asked(serving, *turns)
        cached = serving.ask(second).cached
        if name in WHOLE:
            assert cached == 0
        else:
            assert second.ids[: len(first.ids)] == first.ids
            assert cached >= len(first.ids) - 1
        assert serving.ask(second).cached == len(second.ids) - 1


@pytest.mark.parametrize("name", one_in(2, TRIED))
def test_one_pixel_makes_another_image(name: str) -> None:
    """Nothing behind the changed picture is reused. B44."""
    image = picture(LARGE, 3)
    with Serving(name, prefill_chunk=512) as serving:
        first = asked(serving, turn("Look:", image, "What is it?"))
        serving.ask(first)
        other = asked(serving, turn("Look:", changed(image), "What is it?"))
        assert first.ids == other.ids
        assert serving.ask(other).cached <= other.media[0].start
        assert serving.ask(first).cached == len(first.ids) - 1


@pytest.mark.parametrize("name", ["qwen3_5_vl", "pixtral"])
def test_features_outlive_the_state_of_their_prompt(name: str) -> None:
    image = picture(MEDIUM, 3)
    with Serving(name) as serving:
        engine = serving.llm._engine
        assert engine is not None
        assert engine.prefixes is not None
        prompt = asked(serving, turn(image, "What is it?"))
        serving.ask(prompt)
        engine.prefixes._tree.clear()
        with watched(model_of(serving)) as calls:
            assert serving.ask(prompt).cached == 0
            assert calls == []
        serving.llm.clear_cache()
        with watched(model_of(serving)) as calls:
            serving.ask(prompt)
            assert calls != []


def test_an_image_whose_place_is_unknown_does_not_hide_the_text() -> None:
    """It is said to be everywhere; the tokens count all the same."""
    prompts = [Prepared((3, token, 5, 6), media=(Media(0, 4, "ab" * 32),)) for token in (4, 9)]
    one, other = map(key_of, prompts)
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert (one < 0).all()


def test_images_are_not_shared_between_salts() -> None:
    """Nobody learns from how long it takes whether another one has sent the same picture."""
    with Serving("qwen3_5_vl") as serving:
        prompt = asked(serving, turn(picture(MEDIUM, 3), "What is it?"))
        serving.ask(prompt, salt="one")
        with watched(model_of(serving)) as calls:
            serving.ask(prompt, salt="two")
            assert calls != []
