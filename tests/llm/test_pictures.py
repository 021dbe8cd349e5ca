"""Pictures that a script has in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bushel import LLM, Output
from tests.families.images import MEDIUM, picture

from .request_builders import assert_same, chat, data_url, difference, greedy, png, solo, text

SHOWN = picture(MEDIUM, seed=1)
READ = greedy(6, prompt_logprobs=0)


def seen(llm: LLM, source: Any, kind: str = "image") -> Output:
    return solo(llm, chat(text("What is"), {"type": kind, kind: source}), READ)


def forms(folder: Path) -> dict[str, Any]:
    """The same picture in all ways that a script may have it."""
    file = folder / "picture.png"
    file.write_bytes(png(SHOWN))
    return {
        "PIL": SHOWN,
        "array": np.asarray(SHOWN),
        "array with alpha": np.asarray(SHOWN.convert("RGBA")),
        "array of rows in reverse": np.asarray(SHOWN)[::-1][::-1],
        "bytes": png(SHOWN),
        "bytearray": bytearray(png(SHOWN)),
        "path": file,
        "path as text": str(file),
        "data url": data_url(SHOWN),
    }


def test_a_picture_is_the_same_however_a_script_has_it(seeing: LLM, tmp_path: Path) -> None:
    """In memory, as a file's bytes, as a path or a URL: the reply is that to the URL. B7."""
    expected = seen(seeing, {"url": data_url(SHOWN)}, "image_url")
    for source in forms(tmp_path).values():
        assert_same(seen(seeing, source), expected)
        assert_same(seen(seeing, {"url": source}, "image_url"), expected)


def test_control_another_picture_gives_another_reply(seeing: LLM) -> None:
    other = np.asarray(picture(MEDIUM, seed=2))
    assert difference(seen(seeing, other).logprobs, seen(seeing, SHOWN).logprobs) > 1e-3


def test_a_grey_array_is_a_grey_picture(seeing: LLM) -> None:
    grey = SHOWN.convert("L")
    assert_same(seen(seeing, np.asarray(grey)), seen(seeing, grey))


def test_chat_takes_pictures(seeing: LLM) -> None:
    turn = {"role": "user", "content": [text("What is"), {"type": "image", "image": SHOWN}]}
    [output] = seeing.chat([turn], READ)
    assert_same(output, seen(seeing, SHOWN))


REFUSED: dict[str, tuple[Any, str]] = {
    "floats": (np.zeros((32, 32, 3)), "must be of uint8"),
    "channels first": (np.zeros((3, 32, 32), np.uint8), "(3, 32, 32)"),
    "a batch": (np.zeros((1, 32, 32, 3), np.uint8), "(1, 32, 32, 3)"),
    "without pixels": (np.zeros((0, 2, 3), np.uint8), "shows nothing"),
    "bytes of no picture": (b"not a picture", "cannot be decoded"),
    "no bytes": (b"", "cannot be decoded"),
    "a number": (5, "image needs a path, a url, bytes, a PIL image or an array"),
    "nothing": (None, "a PIL image or an array"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_picture_is_refused_by_its_place(seeing: LLM, case: str) -> None:
    """The message says which part, and what is wrong with it. B17."""
    source, message = REFUSED[case]
    asked = chat(text("What is"), {"type": "image", "image": source})
    [output] = seeing.generate(asked, READ)
    assert output.error is not None
    assert "messages[0].content[1]" in output.error
    assert message in output.error


def test_one_picture_is_no_video(seeing: LLM) -> None:
    asked = chat(text("What is"), {"type": "video", "video": Image.new("RGB", (32, 32))})
    [output] = seeing.generate(asked, READ)
    assert "needs a file" in (output.error or "")
