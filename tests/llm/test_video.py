"""Video parts on families whose processor takes video (B7a), against the library's own loop."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import mlx_vlm
import numpy as np
import pytest
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.utils import prepare_inputs
from PIL import Image

from bushel import LLM, SamplingParams
from bushel.chat.media.decode import OWN, open_video
from tests.families.images import MEDIUM, picture
from tests.models.altered_checkpoints import copied, set_template

PLACE = "<|vision_start|><|video_pad|><|vision_end|>"
QUESTION = "What happens?"


def gif(count: int, seed: int = 0) -> bytes:
    frames = [picture(MEDIUM, seed + at) for at in range(count)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=100)
    return buffer.getvalue()


def film(path: Path, count: int) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 8, MEDIUM)
    for at in range(count):
        writer.write(cv2.cvtColor(np.asarray(picture(MEDIUM, at)), cv2.COLOR_RGB2BGR))
    writer.release()
    return path


def request(url: str) -> dict[str, Any]:
    content = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": QUESTION}]
    return {"messages": [{"role": "user", "content": content}]}


def data_url(data: bytes) -> str:
    return f"data:image/gif;base64,{base64.b64encode(data).decode()}"


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen3_5_vl", "qwen2_5_vl"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose template has a place for videos, as the families' own templates do."""

    folder = copied(request.param, tmp_path_factory.mktemp("video"))
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    images = "{%- elif 'image' in part['type'] -%}"
    assert images in template
    videos = "{%- elif 'video' in part['type'] -%}{{- '" + PLACE + "' -}}"
    set_template(folder, template.replace(images, videos + images))
    return folder


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(str(path), prefill_chunk=8) as llm:
        yield llm


def solo(path: Path, frames: list[Image.Image]) -> list[int]:
    model, processor = mlx_vlm.load(str(path))
    content = [{"type": "video"}, {"type": "text", "text": QUESTION}]
    text = processor.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    video = np.stack([np.asarray(frame) for frame in frames])
    inputs = prepare_inputs(processor, videos=[video], prompts=text)
    ids, mask = inputs.pop("input_ids"), inputs.pop("attention_mask")
    steps = generate_step(ids, model, None, mask, max_tokens=12, temperature=0.0, **inputs)
    return [int(token) for token, _ in steps]


def test_a_video_beside_a_text_request_answers_as_it_would_alone(llm: LLM, path: Path) -> None:
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    movie, text, other = llm.generate(
        [request(data_url(gif(4))), {"prompt": "hello"}, request(data_url(gif(4, seed=9)))], params
    )
    assert (movie.error, text.error, other.error) == (None, None, None)
    assert movie.token_ids == solo(path, open_video(gif(4)))
    assert movie.token_ids != other.token_ids  # the frames are seen


def test_a_film_on_disk_is_sampled_under_the_cap(llm: LLM, tmp_path: Path) -> None:
    frames = open_video(film(tmp_path / "long.mp4", OWN.most_frames + 40).read_bytes())
    assert len(frames) == OWN.most_frames
    assert frames[0].size == MEDIUM
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
    [output] = llm.generate([request(str(film(tmp_path / "short.mp4", 4)))], params)
    assert output.error is None


def test_what_is_no_video_is_refused(llm: LLM) -> None:
    [output] = llm.generate([request(data_url(b"no video at all"))])
    assert output.finish_reason == "error"
    assert "cannot be decoded" in (output.error or "")
