"""Borders of prompts with images: behind those that come before, and never inside one (B44)."""

from pathlib import Path
from typing import Any

import pytest

from bushel.chat.reuse_borders import _outside
from bushel.core import Media
from bushel.models.load import open_host
from tests.chat.conversations import QUESTION, SYSTEM, bordered, common, shown
from tests.chat.templates import templated
from tests.families import checkpoint_dir
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.models.altered_checkpoints import copied, set_template

SEEING = ("qwen3_5_vl", "smolvlm", "pixtral", "gemma3_vl", "llava_onevision", "minicpmv4_6")


def see(size: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": picture(size, seed)}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize("name", SEEING)
def test_borders_of_prompts_with_images(name: str) -> None:
    """They are behind the images that come before, and never inside one."""
    host = open_host(str(checkpoint_dir(name)))
    asked = {"role": "user", "content": [text("Look <|im_end|>: "), see(MEDIUM), text(" Well?")]}
    again = {"role": "user", "content": [see(LARGE), text("And <|im_start|> this?")]}
    reply = {"role": "assistant", "content": "It is red."}
    found, borders = bordered(host, SYSTEM, asked, reply, again)
    other, _ = bordered(host, SYSTEM, {"role": "user", "content": [see(SMALL), text("?")]})
    assert 0 < borders.system <= common(found.ids, other.ids)
    assert borders.reply
    assert borders.history == 0
    more, _ = bordered(host, SYSTEM, asked, reply, again, reply, QUESTION)
    assert more.ids[: len(found.ids)] == found.ids
    assert not any(it.start < borders.system < it.end for it in found.media)


def test_history_with_images_ends_behind_them(tmp_path: Path) -> None:
    folder = copied("qwen3_5_vl", tmp_path)
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    template = templated("plain").tokenizer.hf.chat_template.replace('""', f"'{place}'")
    assert place in template
    end = "{{- '<|im_start|>assistant\\n' -}}"
    assert end in template
    set_template(folder, template.replace(end, end[:-3] + "+ '<think>\\n' -}}"))
    host = open_host(str(folder))
    asked = {"role": "user", "content": [see(MEDIUM), see(LARGE), text("Well?")]}
    found, borders = bordered(host, asked)
    assert shown(host, found, borders.history) == "<think>\n"
    assert borders.history > found.media[-1].end


def test_a_border_inside_an_image_is_moved_to_its_beginning() -> None:
    media = [Media(3, 9, ""), Media(12, 20, "")]
    found = [_outside(at, media) for at in (0, 3, 4, 8, 9, 12, 19, 20, 30)]
    assert found == [0, 3, 3, 3, 9, 12, 12, 20, 30]
