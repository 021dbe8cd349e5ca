"""Whether prompts can be spliced, and images encoded apart, is proven and not assumed (B44)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Media, Prepared
from bushel.core.video import Video
from bushel.models.vision.feature_records import difference
from bushel.models.vision.split_images import tensors_of_each
from bushel.models.vision.vision_model import VisionModel
from tests.depth import one_in
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.vision import VISION

from .vision_prompts import Shelf, loaded, prompt, splices, watched

A, B, C, M = picture(SMALL, 1), picture(LARGE, 2), picture(LARGE, 3), picture(MEDIUM, 4)
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
# Not packed, packed, and with features for layers as well.
NAMES = ("gemma3_vl", "qwen2_5_vl", "qwen3_vl")

Look = Callable[..., Any]


def alter(
    patch: pytest.MonkeyPatch, model: VisionModel, change: Callable[[Any, Any, Any], None]
) -> None:
    """What the library finds out about a prompt with pixels is changed before anyone sees it."""
    kind = type(model.network)
    original: Look = kind.get_input_embeddings

    def altered(network: Any, ids: Any, pixels: Any = None, **given: Any) -> Any:
        found = original(network, ids, pixels, **given)
        if pixels is not None:
            change(found, ids, pixels)
        return found

    patch.setattr(kind, "get_input_embeddings", altered)


def mean(pixels: Any) -> mx.array:
    return mx.abs(pixels).mean()


def embed(model: VisionModel, prepared: Prepared, shelf: Shelf, start: int = 0) -> int:
    """How often the tower is called, for a prompt that is as it is without reuse."""
    with watched(model) as calls:
        found = model.embed(prepared, start, shelf)
    if not start:
        assert difference(model.embed(prepared), found) == ""
    return len(calls)


@pytest.mark.parametrize("name", NAMES)
def test_text_that_sees_the_images_is_never_spliced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everywhere(found: Any, ids: Any, pixels: Any) -> None:
        found.inputs_embeds = found.inputs_embeds + 1e-3 * mean(pixels)

    model, shelf = loaded(name), Shelf()
    alter(monkeypatch, model, everywhere)
    asked = prompt(model, "Hello ", A, " What is it?")
    for start in (0, 0, asked.media[0].end + 1):
        assert embed(model, asked, shelf, start) == 1
        assert splices(model) is False
    assert "embeds" in model.recall.reason
    assert not shelf


def test_a_library_that_wants_pixels_is_never_spliced(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shelf = loaded("gemma3_vl"), Shelf()
    original: Look = type(model.network).get_input_embeddings

    def strict(network: Any, ids: Any, pixels: Any = None, **given: Any) -> Any:
        if pixels is None:
            raise TypeError("no pixels")
        return original(network, ids, pixels, **given)

    monkeypatch.setattr(type(model.network), "get_input_embeddings", strict)
    asked = prompt(model, "Hello ", A, " What is it?")
    assert [embed(model, asked, shelf) for _ in range(2)] == [1, 1]
    assert splices(model) is False
    assert "no pixels" in model.recall.reason


def test_a_prompt_that_cannot_be_spliced_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, shelf = loaded("qwen3_vl"), Shelf()
    asked = prompt(model, "Hello ", A, " What is it?")
    embed(model, asked, shelf)

    def broken(*_: Any) -> Any:
        raise RuntimeError("no embedding")

    monkeypatch.setattr(model, "embed_text_only", broken)
    assert embed(model, asked, shelf) == 1
    assert "no embedding" in caplog.text
    monkeypatch.undo()
    assert embed(model, asked, shelf) == 0


def test_images_that_see_one_another_are_known_together_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mixed(found: Any, ids: Any, pixels: Any) -> None:
        images = mx.array(np.isin(np.asarray(ids), [image]))[..., None]
        found.inputs_embeds = found.inputs_embeds + images * mean(pixels)

    model, shelf = loaded("gemma3_vl"), Shelf()
    image = model.network.config.image_token_index
    alter(monkeypatch, model, mixed)
    pair = prompt(model, "Is ", A, " more than ", B, "?")
    assert embed(model, pair, shelf) == 1 + 1  # the first image alone tells
    assert splices(model) is True
    assert embed(model, prompt(model, "Say: is ", A, " like ", B, "?"), shelf) == 0
    for other in ((A, C), (B, A), (A, B, C)):
        said = [part for it in other for part in (it, " or ")]
        assert embed(model, prompt(model, *said), shelf) == 1
    assert embed(model, prompt(model, "Only ", A), shelf) == 1


def test_a_record_holds_no_text() -> None:
    """Images that cannot be told apart are one medium, with whatever is said between them."""
    model, shelf, seen = loaded("qwen3_vl"), Shelf(), list[Prepared]()
    for word in ("apples", "grains"):
        pair = prompt(model, "Is ", A, f" of {word} or ", B, "?")
        whole = Media(pair.media[0].start, pair.media[1].end, "both")
        seen.append(replace(pair, media=(whole,)))
    assert len({len(it.ids) for it in seen}) == 1
    assert [embed(model, it, shelf) for it in seen] == [2, 0]


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5_vl", "qwen2_5_vl"])
def test_a_video_is_like_an_image(name: str) -> None:
    model, shelf = loaded(name), Shelf()
    embed(model, prompt(model, A, "?"), shelf)  # of another kind, which proves nothing
    video = clip(4)

    def ask(*said: str) -> Prepared:
        return model.host.prepare(VIDEO.join(said), [video])

    assert embed(model, ask("See ", " What happens?"), shelf) == 1
    assert embed(model, ask("Now look at ", " and tell what happens."), shelf) == 0
    assert splices(model) is True
    again = ask("Once more ", " What happens in it, and why?")
    assert embed(model, again, Shelf(), again.media[0].end) == 0


@pytest.mark.parametrize("name", one_in(2, ["qwen3_vl", "qwen3_5_vl", "qwen2_5_vl"]))
def test_images_and_videos_are_known_apart(name: str) -> None:
    """Each is seen once, in whatever company; the tower takes one after the other."""
    model, shelf = loaded(name), Shelf()
    place = VISION[name].placeholder
    video, other = clip(4), clip(6, 30)

    def ask(*said: Any) -> Prepared:
        told = [part if isinstance(part, str) else _place(part, place) for part in said]
        return model.host.prepare("".join(told), [it for it in said if not isinstance(it, str)])

    both = ask("See ", A, " and ", video, " and ", B, ". What is it?")
    assert len({it.digest for it in both.media}) == 3
    assert embed(model, both, shelf) == 3
    assert splices(model) is True
    assert embed(model, ask("Look: ", video, A, B, " What is it?"), shelf) == 0
    assert embed(model, ask("Look: ", B, other, " What is it?"), shelf) == 1
    assert embed(model, ask("Once more: ", other, " What is it?", A), shelf) == 0
    again = ask("See ", A, " and ", video, " and ", B, ". Why?")
    assert embed(model, again, Shelf(), again.media[1].end) == 1  # the last one alone


def _place(part: Any, image: str) -> str:
    return VIDEO if isinstance(part, Video) else image


def clip(count: int, seed: int = 0) -> Video:
    frames = tuple(picture(MEDIUM, seed + at) for at in range(count))
    return Video(frames, tuple(range(count)), count, 2.0)


def test_tensors_are_cut_by_what_they_count() -> None:
    tensors = {
        "images": np.arange(2),
        "runs": np.arange(3)[None],
        "patches": np.arange(24).reshape(24, 1),
        "sizes": [[(1, 1), (2, 2)]],
        "token_type_ids": np.arange(20)[None],
        "odd": np.arange(7),
        "setting": "x",
    }
    media = (Media(2, 4, "a"), Media(6, 13, "b"))
    prepared = Prepared(tuple(range(20)), tensors, media)
    (first, second), cut = tensors_of_each(prepared, [(2, 4), (6, 8), (9, 13)])
    assert cut == {"images", "runs", "patches", "sizes", "token_type_ids"}
    assert first["images"].tolist() == [0]
    assert second["runs"].tolist() == [[1, 2]]
    assert [len(part["patches"]) for part in (first, second)] == [6, 18]
    assert second["sizes"] == [[(2, 2)]]
    assert first["setting"] == "x"
    assert first["token_type_ids"].tolist() == [[2, 3]]


def test_tensors_that_two_counts_fit_are_not_cut() -> None:
    """One run and two, or twice four tokens and once."""
    media = (Media(0, 8, "a"), Media(8, 13, "b"))
    prepared = Prepared(tuple(range(13)), {"tiles": np.arange(3)}, media)
    assert not tensors_of_each(prepared, [(0, 8), (8, 10), (11, 13)])[1]
    assert tensors_of_each(prepared, [(0, 8), (8, 10), (11, 12)])[1]
