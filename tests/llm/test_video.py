"""Videos on families whose processor takes them (B7a), against the library's own loop."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_vlm
import numpy as np
import pytest
from mlx_vlm.models import qwen3_5
from PIL import Image

from bushel import LLM, Output
from bushel.chat.media.decode import OWN
from bushel.chat.media.video import open_video
from bushel.core.video import FrameSampling, Video
from bushel.models.vision import vision_model
from tests.chat.media_files import film, moving
from tests.depth import often
from tests.families.family import EVERY
from tests.families.images import LARGE, MEDIUM, picture
from tests.families.library_vision_loop import Solo, prepare, solo_vision
from tests.llm.request_builders import BOUND, assert_same, base64_url, greedy, image, solo, text
from tests.models.altered_checkpoints import copied, set_json, set_template

PLACE = "<|vision_start|><|video_pad|><|vision_end|>"
FAMILIES = ("qwen3_vl", "qwen3_5_vl", "qwen2_5_vl")
QUESTION = "What happens?"
SAYS = 10


def with_videos(name: str, folder: Path, place: str = PLACE, **vision: Any) -> Path:
    """A checkpoint whose template has a place for videos, as the families' own templates do."""
    folder = copied(name, folder)
    if vision:
        config = json.loads((folder / "config.json").read_text())
        set_json(folder / "config.json", vision_config={**config["vision_config"], **vision})
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    images = "{%- elif 'image' in part['type'] -%}"
    assert images in template
    videos = "{%- elif 'video' in part['type'] -%}{{- '" + place + "' -}}"
    set_template(folder, template.replace(images, videos + images))
    return folder


@pytest.fixture(scope="module", params=often(FAMILIES, "qwen2_5_vl"))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one that counts positions by the second, one is a frame's, as the library has it."""
    return with_videos(request.param, tmp_path_factory.mktemp("video"), tokens_per_second=1)


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(str(path), prefill_chunk=8) as llm:
        yield llm


@cache
def library(path: Path) -> tuple[Any, Any]:
    model, processor = mlx_vlm.load(str(path))
    return model, processor


def clip(source: Any, **more: Any) -> dict[str, Any]:
    """A part with a video."""
    if isinstance(source, list):
        return {"type": "video", "video": source, **more}
    return {"type": "video_url", "video_url": {"url": str(source)}, **more}


def ask(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


def gif(count: int, seed: int = 0, duration: int = 500) -> bytes:
    return moving("GIF", count, duration=duration, seed=seed)


def seen(data: bytes) -> Video:
    return open_video(data, OWN, FrameSampling(2.0, 4, 768, 2))


def rendered(path: Path, messages: Any) -> str:
    """By the template itself, with parts of the types that it knows."""
    turns = [
        {
            "role": turn["role"],
            "content": turn["content"]
            if isinstance(turn["content"], str)
            else [
                part if part["type"] == "text" else {"type": part["type"].removesuffix("_url")}
                for part in turn["content"]
            ],
        }
        for turn in messages
    ]
    tokenizer = library(path)[1].tokenizer
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def alone(path: Path, request: Mapping[str, Any], **media: Any) -> Solo:
    model, processor = library(path)
    said = rendered(path, request["messages"])
    return solo_vision(model, processor, said, max_tokens=SAYS, **media)


def assert_as_alone(output: Output, reference: Solo) -> None:
    assert output.error is None, output.error
    assert output.token_ids == reference.tokens
    assert output.usage.prompt_tokens == len(reference.prompt_ids)
    for own, row in zip(output.logprobs or (), reference.logprobs, strict=True):
        values = [own.logprob, *(value for _, value in own.top)]
        best = np.sort(row)[::-1][: len(own.top)]
        assert np.abs(np.array(values) - [row[own.token_id], *best]).max() < BOUND


# -- a video ----------------------------------------------------------------------------------


def test_a_film_beside_texts_is_what_the_library_makes_of_the_file(
    llm: LLM, path: Path, tmp_path: Path
) -> None:
    """Frames, times and positions; in a batch of rows of text and another film. B7a, B6."""
    files = [tmp_path / "one.mp4", tmp_path / "two.avi"]
    film(files[0], 40)
    film(files[1], 24, MEDIUM, "MJPG", seed=50)
    films = [ask(clip(file), text(QUESTION)) for file in files]
    first, words, second, more = llm.generate(
        [films[0], {"prompt": "hello"}, films[1], {"prompt": "A bushel is"}], greedy(SAYS)
    )
    assert_as_alone(first, alone(path, films[0], videos=[files[0]]))
    assert_as_alone(second, alone(path, films[1], videos=[files[1]]))
    assert_same(words, solo(llm, {"prompt": "hello"}, greedy(SAYS)))
    assert_same(more, solo(llm, {"prompt": "A bushel is"}, greedy(SAYS)))


def test_frames_in_a_list_are_seen_at_the_rate_that_is_told(llm: LLM, path: Path) -> None:
    """Which some families are told in words, and others by positions. B7a."""
    frames = [picture(MEDIUM, at) for at in range(6)]
    urls = [image(frame)["image_url"]["url"] for frame in frames]
    asked = [ask(clip(urls, fps=rate), text(QUESTION)) for rate in (2, 0.25)]
    outputs = llm.generate(asked, greedy(SAYS))
    for output, request, rate in zip(outputs, asked, (2.0, 0.25), strict=True):
        video = listed(frames, rate)
        if "qwen2_5" in str(path) and rate != 2:  # see below
            assert output.error is None
        else:
            assert_as_alone(output, alone(path, request, videos=[video]))
    assert outputs[0].logprobs != outputs[1].logprobs


def test_what_is_no_video_is_refused(llm: LLM) -> None:
    [output] = llm.generate([ask(clip(base64_url(b"no video at all")), text(QUESTION))])
    assert output.finish_reason == "error"
    assert "cannot be decoded" in (output.error or "")


# -- beside images ----------------------------------------------------------------------------


def conversation(*order: str) -> dict[str, Any]:
    """A question about each of `order`, images and videos, with an answer to all but the last."""
    turns: list[dict[str, Any]] = []
    for at, kind in enumerate(order):
        shown = clip(base64_url(gif(4, 7))) if kind == "video" else image(picture(LARGE, at))
        turns.append({"role": "user", "content": [text("Look:"), shown, text("And now?")]})
        turns.append({"role": "assistant", "content": "It is a field."})
    return {"messages": turns[:-1]}


def both_kinds(path: Path, request: Mapping[str, Any], order: tuple[str, ...]) -> Solo:
    """By the library's own loop. Qwen3-VL's network takes both kinds; the others take what the
    tower made of each, if it is put in the places of both, as qwen3_5's network does."""
    images = [picture(LARGE, at) for at, kind in enumerate(order) if kind == "image"]
    videos = [seen(gif(4, 7)) for kind in order if kind == "video"]
    model, processor = library(path)
    if "qwen3_vl" in str(path):
        return alone(path, request, images=images, videos=videos)
    inputs = prepare(model, processor, rendered(path, request["messages"]), images, videos)
    rows = {
        "image": tower(model, inputs["pixel_values"], inputs["image_grid_thw"]),
        "video": tower(model, inputs["pixel_values_videos"], inputs["video_grid_thw"]),
    }
    counts = {
        kind: iter((np.asarray(inputs[f"{kind}_grid_thw"]).prod(-1) // 4).tolist()) for kind in rows
    }
    features = []
    for kind in order:
        count = next(counts[kind])
        features.append(rows[kind][:count])
        rows[kind] = rows[kind][count:]

    def merged(image: int, video: int, found: Any, embeds: Any, ids: Any) -> Any:
        merge = qwen3_5.Model.merge_input_ids_with_image_features
        return merge(found, embeds, ids, image, video)[0]

    with pytest.MonkeyPatch.context() as patch:
        if "qwen2_5" in str(path):
            patch.setattr(model, "merge_input_ids_with_image_features", merged)
        known = mx.concatenate(features)
        return alone(path, request, images=images, videos=videos, cached_image_features=known)


def tower(model: Any, pixels: mx.array, grids: mx.array) -> mx.array:
    found = model.vision_tower(pixels, grids)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("image", "video"), marks=pytest.mark.long),
        ("video", "image", "image", "video"),
    ],
)
def test_images_and_videos_in_one_conversation_are_seen_as_the_library_sees_them(
    llm: LLM, path: Path, order: tuple[str, ...]
) -> None:
    """Beside a row of text, and again from what is kept of it. B7a, B44."""
    request = conversation(*order)
    reference = both_kinds(path, request, order)
    together, _ = llm.generate([request, {"prompt": "A bushel is"}], greedy(SAYS))
    assert_as_alone(together, reference)
    again = solo(llm, request, greedy(SAYS))
    assert again.usage.cached_tokens > 0.8 * again.usage.prompt_tokens
    assert_as_alone(again, reference)


def test_control_a_tower_that_takes_one_kind_for_the_other_is_noticed(
    llm: LLM, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found of each, in the places of others: a mistake that changes no shape."""
    order = ("image", "video")
    request = conversation(*order)
    right = solo(llm, request, greedy(SAYS))
    encode = vision_model.encode_each

    def mixed(*given: Any) -> Any:
        embedded = encode(*given)
        if embedded:
            embedded["inputs_embeds"] = embedded["inputs_embeds"][:, ::-1]
        return embedded

    monkeypatch.setattr(vision_model, "encode_each", mixed)
    with LLM(str(path), prefill_chunk=8, prefix_cache=False) as other:
        wrong = solo(other, request, greedy(SAYS))
    with pytest.raises(AssertionError):
        assert_same(right, wrong)


# Both kinds where the library runs both; few in `make test`.
OTHERS = {
    "gemma4_vl": ("<|video|>", True),
    "gemma4_bidir": ("<|video|>", True),
    "qwen3_omni_moe": (PLACE, True),
    "qwen2_vl": (PLACE, False),
    "qwen3_vl_moe": (PLACE, False),
    "minicpmv4_7": (PLACE, False),
}


@pytest.mark.parametrize("name", OTHERS if EVERY else ["gemma4_vl"])
def test_other_families_see_videos_as_the_library_does(name: str, tmp_path: Path) -> None:
    """In a batch, and again from what is kept of it; beside an image if they can. B7a."""
    place, both = OTHERS[name]
    path = with_videos(name, tmp_path, place)
    if name.startswith("gemma4"):
        wanted = {"patch_size": 8, "max_soft_tokens": 70, "pooling_kernel_size": 2}
        set_json(path / "processor_config.json", video_processor=wanted)
    frames = [picture(MEDIUM, at) for at in range(4)]
    urls = [image(frame)["image_url"]["url"] for frame in frames]
    content, media = [clip(urls), text(QUESTION)], {"videos": [listed(frames)]}
    if both:
        content.insert(0, image(picture(LARGE, 3)))
        media["images"] = [picture(LARGE, 3)]
    reference = alone(path, ask(*content), **media)
    with LLM(str(path), prefill_chunk=8) as llm:
        output, _ = llm.generate([ask(*content), {"prompt": "hello"}], greedy(SAYS))
        assert_as_alone(output, reference)
        assert_as_alone(solo(llm, ask(*content), greedy(SAYS)), reference)


def listed(frames: list[Image.Image], fps: float = 2.0) -> Video:
    return Video(tuple(frames), tuple(range(len(frames))), len(frames), fps)


# -- what is kept -----------------------------------------------------------------------------


def test_a_video_is_known_again_and_another_is_not_taken_for_it(llm: LLM, path: Path) -> None:
    """By its frames, and by when they are. B44."""
    data = gif(6, 20)
    params = greedy(SAYS)
    request = ask(clip(base64_url(data)), text(QUESTION))
    reference = alone(path, request, videos=[seen(data)])
    before = reference.prompt_ids.index(library(path)[0].config.video_token_id)
    assert_as_alone(solo(llm, request, params), reference)
    again = solo(llm, request, params)
    assert again.usage.cached_tokens > before + 12
    assert_as_alone(again, reference)
    for other in (gif(6, 40), gif(6, 20, duration=400), gif(5, 20)):
        request = ask(clip(base64_url(other)), text(QUESTION))
        found = solo(llm, request, params)
        assert found.usage.cached_tokens <= before
        if "qwen2_5" not in str(path):  # whose positions the library has without the rate
            assert_as_alone(found, alone(path, request, videos=[seen(other)]))


# -- time -------------------------------------------------------------------------------------


def timed(positions: np.ndarray, ids: list[int], token: int, step: float) -> np.ndarray:
    """Positions anew, one token after the other: the family's own rule, spelt out.

    `positions` tell rows and columns; a frame of a video is `step` after the one before it, and
    text goes on after the largest position that there was.
    """
    found, largest, at = np.zeros_like(positions), -1, 0
    while at < len(ids):
        if ids[at] != token:
            same = positions[:, 0, at] - positions[0, 0, at]
            found[:, 0, at] = largest + 1 + same
            largest = max(largest, int(found[:, 0, at].max()))
            at += 1
            continue
        start, begin = largest + 1, at
        while at < len(ids) and ids[at] == token:
            frame, row, column = positions[:, 0, at] - positions[0, 0, begin]
            found[:, 0, at] = start + int(frame * step), start + row, start + column
            largest = max(largest, int(found[:, 0, at].max()))
            at += 1
    return found


@pytest.mark.parametrize("duration", [250, 1300])
def test_positions_of_qwen2_5_vl_are_counted_by_the_second(
    tmp_path_factory: pytest.TempPathFactory, duration: int
) -> None:
    """As it was taught, two a second here; mlx-vlm counts frames, whatever their rate. B7a."""
    path = with_videos("qwen2_5_vl", tmp_path_factory.mktemp("time"), tokens_per_second=2)
    video = replace(seen(gif(8, 3)), fps=1000 / duration)
    request = ask(clip(base64_url(gif(8, 3, duration)), nframes=8), text(QUESTION))
    model, _ = library(path)
    language, step = model.language_model, 2 * 2 * duration / 1000
    index = type(language).get_rope_index

    def by_the_second(self: Any, ids: mx.array, *grids: Any, **more: Any) -> Any:
        positions, delta = index(self, ids, *grids, **more)
        if positions.ndim != 3:
            return positions, delta
        token = model.config.video_token_id
        found = timed(np.array(positions), ids[0].tolist(), token, step)
        return mx.array(found), mx.array([[int(found.max()) + 1 - ids.shape[1]]])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(language), "get_rope_index", by_the_second)
        reference = alone(path, request, videos=[video])
    plain = alone(path, request, videos=[video])
    with LLM(str(path), prefill_chunk=8) as llm:
        output = solo(llm, request, greedy(SAYS))
        again = solo(llm, request, greedy(SAYS))
    assert_as_alone(output, reference)
    assert_as_alone(again, reference)
    differs = np.abs(plain.logprobs[0] - reference.logprobs[0]).max() > BOUND
    assert differs == (step != 1)
