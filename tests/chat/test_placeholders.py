"""Images in a prompt: where they are, and what they are known by (B44)."""

import base64
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bushel.chat.prompt import prepare
from bushel.core import Media, Prepared, RequestError
from bushel.core.video import Video
from bushel.models.load import open_host
from bushel.models.preparer import VisionPreparer
from bushel.models.vision.image_spans import spans_of
from bushel.models.vision.placeholders import digest_of, place, settings_of
from tests.chat.media_files import moving
from tests.depth import one_in
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.vision import VISION
from tests.llm.request_builders import chat, image, text
from tests.models.altered_checkpoints import copied, set_template
from tests.parity.scenarios import tried

NAMES = sorted(VISION if EVERY else {*VISION} & {*tried()})
# Of those that take two images, every one has them told apart.
SEVERAL = [name for name in NAMES if VISION[name].most_images > 1]


@cache
def seeing(name: str) -> VisionPreparer:
    host = open_host(str(checkpoint_dir(name)))
    assert isinstance(host, VisionPreparer)
    return host


def places(host: VisionPreparer, prompt: Prepared) -> list[int]:
    runs = spans_of(host._config, prompt)
    return [at for low, high in runs for at in range(low, high)]


@pytest.mark.parametrize("name", one_in(2, SEVERAL))
@pytest.mark.parametrize("between", ["", " and then "], ids=["adjacent", "apart"])
def test_two_images_have_places_of_their_own(name: str, between: str) -> None:
    host = seeing(name)
    one, two = picture(SMALL), picture(LARGE, 1)
    words = [text(between)] if between else []
    found = prepare(host, chat(text("See"), image(one), *words, image(two), text("Well?")))
    first, second = found.media
    taken = places(host, found)
    assert (first.start, second.end) == (taken[0], taken[-1] + 1)
    assert first.end <= second.start
    assert {first.end - 1, second.start} <= set(taken)
    assert not any(first.end <= at < second.start for at in taken)
    # As many as each has when it is alone, if that is in the same place where it matters.
    for media, shown in ((first, one), (second, two))[: 1 if VISION[name].placed else 2]:
        alone = prepare(host, chat(text("See"), image(shown)))
        count = sum(media.start <= at < media.end for at in taken)
        assert count == len(places(host, alone))
        assert alone.media[0].digest == media.digest
        assert alone.media[0].end - alone.media[0].start == media.end - media.start


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_one_changed_pixel_is_another_image(name: str) -> None:
    """Two pictures that differ by one bit have different names. B44."""
    host = seeing(name)
    shown = picture(MEDIUM)
    pixels = np.array(shown)
    pixels[7, 5, 1] ^= 1
    [found] = prepare(host, chat(image(shown), text("?"))).media
    [again] = prepare(host, chat(text("Once more, here: "), image(shown.copy()))).media
    [other] = prepare(host, chat(image(Image.fromarray(pixels)), text("?"))).media
    assert found.digest == again.digest or VISION[name].placed
    assert found.start != again.start or not VISION[name].placeholder  # it always comes first
    assert found.digest != other.digest
    assert (found.start, found.end) == (other.start, other.end)


def test_the_same_bytes_in_another_shape_are_another_image() -> None:
    """CVE-2025-46722."""
    data = bytes(range(256)) * 24
    wide, tall = (Image.frombytes("RGB", size, data) for size in ((64, 32), (32, 64)))
    grey = Image.frombytes("L", (64, 96), data)
    videos = [
        Video(frames, tuple(range(len(frames))), total, fps)
        for frames, total, fps in (
            ((wide,), 1, 2.0),
            ((wide, wide), 2, 2.0),
            ((wide, wide), 4, 2.0),
            ((wide, wide), 2, 1.0),
        )
    ]
    found = {digest_of(it, "", 1) for it in (wide, tall, grey, *videos)}
    assert len(found) == 7
    assert digest_of(wide, "a", 1) != digest_of(wide, "b", 1)
    assert digest_of(wide, "a", 1) != digest_of(wide, "a", 2)


def test_settings_of_the_processor_count(tmp_path: Path) -> None:
    folder = copied("qwen3_5_vl", tmp_path)
    file = folder / "preprocessor_config.json"
    file.write_text(file.read_text().replace("0.5", "0.4"))
    other = open_host(str(folder))
    assert isinstance(other, VisionPreparer)
    host = seeing("qwen3_5_vl")
    assert settings_of(host.processor) != settings_of(other.processor)
    request = chat(image(picture()))
    assert prepare(host, request).media != prepare(other, request).media


def test_digests_are_the_same_in_every_process() -> None:
    """The disk outlives them."""
    names = ("qwen3_5_vl", "smolvlm", "minicpmv4_6")
    code = (
        "import sys; from bushel.models.load import open_host\n"
        "from bushel.models.vision.placeholders import settings_of\n"
        "for path in sys.argv[1:]: print(settings_of(open_host(path).processor))"
    )
    paths = [str(checkpoint_dir(name)) for name in names]
    said = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, check=True)
    assert said.stdout.decode().splitlines() == [
        settings_of(seeing(name).processor) for name in names
    ]


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
def test_videos_have_places_too(name: str, tmp_path: Path) -> None:
    """Some have a run of placeholders for every frame."""
    folder = copied(name, tmp_path)
    template = str(seeing(name).tokenizer.hf.chat_template)
    set_template(
        folder, template.replace("<|image_pad|>", "<|video_pad|>").replace("image", "video")
    )
    host = open_host(str(folder))
    assert isinstance(host, VisionPreparer)
    first, second = (
        {"type": "video_url", "video_url": {"url": gif_url(count)}} for count in (4, 6)
    )
    found = prepare(host, chat(text("See"), first, second, text("Well?")))
    one, two = found.media
    taken = places(host, found)
    assert (one.start, two.end) == (taken[0], taken[-1] + 1)
    [alone] = prepare(host, chat(text("See"), first)).media
    assert alone == one
    assert one.digest != two.digest


@pytest.mark.parametrize("name", ["glm4v", "ernie4_5_moe_vl"])
def test_a_video_that_a_processor_leaves_out_is_refused_by_name(name: str) -> None:
    """Its place may be there all the same: the model would speak of what nobody saw. B7a."""
    host = seeing(name)
    frames = tuple(picture(MEDIUM, at) for at in range(4))
    video, image = Video(frames, (0, 1, 2, 3), 4, 2.0), VISION[name].placeholder
    place = "<|begin_of_video|><|video|><|end_of_video|>" if name == "glm4v" else image
    with pytest.raises(RequestError, match=f"{name} takes no video") as caught:
        host.prepare(f"See {place} and {image}.", [video, picture(MEDIUM)])
    assert caught.value.code == "unsupported_media"


def gif_url(count: int) -> str:
    return f"data:image/gif;base64,{base64.b64encode(moving('GIF', count)).decode()}"


# -- what cannot be told apart ----------------------------------------------------------------


def placed(
    ids: int, runs: list[tuple[int, int]], blank: Any = lambda shape: 0
) -> tuple[Media, ...]:
    prompt = Prepared(tuple(range(ids)), {"pixel_values": 1})
    return place(prompt, runs, [picture(SMALL), picture(LARGE)], "", blank)


def test_images_that_cannot_be_told_apart_are_one() -> None:
    [one] = placed(50, [(3, 9), (12, 14), (20, 30)])
    assert (one.start, one.end) == (3, 30)
    [other] = placed(50, [(3, 9), (12, 14), (20, 30)], lambda shape: 10)  # 20 of 18
    assert other == one


def test_places_that_nobody_knows_are_everywhere() -> None:
    [one] = placed(50, [])
    assert (one.start, one.end) == (0, 50)


def test_tokens_are_dealt_out_by_what_images_of_that_size_take() -> None:
    def blank(shape: Any) -> int:
        assert shape[0] == "image"
        return {SMALL: 7, LARGE: 11}[shape[1]]

    first, second = placed(50, [(3, 9), (12, 14), (20, 30)], blank)
    assert (first.start, first.end) == (3, 13)
    assert (second.start, second.end) == (13, 30)


def test_blank_images_are_processed_once_per_size(monkeypatch: pytest.MonkeyPatch) -> None:
    host = open_host(str(checkpoint_dir("smolvlm")))
    assert isinstance(host, VisionPreparer)
    runs: list[int] = []
    process = host._process

    def counted(text: str, media: Any) -> Prepared:
        runs.append(len(media))
        return process(text, media)

    monkeypatch.setattr(host, "_process", counted)
    for seed in range(3):
        prepare(host, chat(image(picture(SMALL, seed)), image(picture(LARGE, seed + 9))))
    assert runs == [2, 1, 1, 2, 2]
