"""Pictures and videos in requests over HTTP: many at once, and those that cannot be taken."""

from __future__ import annotations

import base64
import io
import struct
import threading
import zlib
from typing import Any

import openai
import pytest
from PIL import Image

from bushel import SamplingParams
from tests.drawings import see
from tests.llm.request_builders import base64_url, image, png, text, video
from tests.server.compare_with_llm import MODEL, Caller, Reference, assert_same, streaming, user
from tests.server.server_process import PATIENCE, Server

SURE: dict[str, Any] = {"temperature": 0, "logprobs": True, "top_logprobs": 1}
SHAPES = {
    "square": see("square", "red"),
    "circle": see("circle", "blue", size=(150, 90)),
    "star": see("star", "green", size=(96, 200)),
    "digit": see("4", size=(180, 180)),
}
QUESTION = "What is it?"


def shown(name: str, asked: str = QUESTION) -> list[dict[str, Any]]:
    return user(image(SHAPES[name]), text(asked))


# -- many at once ---------------------------------------------------------------------------------


def mixed() -> list[tuple[list[dict[str, Any]], dict[str, Any], str]]:
    """Eight requests: messages, fields, and how they are asked."""
    whole, streamed = "async", "async streamed"
    hot = {**SURE, "temperature": 3, "seed": 5}
    return [
        (user("What is 3 + 4?"), {**SURE, "max_tokens": 8}, whole),
        (user("Tell me a story."), {**SURE, "max_tokens": 30, "ignore_eos": True}, streamed),
        (user("A red circle. " * 60 + QUESTION), {**SURE, "max_tokens": 12}, whole),
        (user("Speak. " * 30), {**hot, "max_tokens": 20, "ignore_eos": True}, streamed),
        (shown("square"), {**SURE, "max_tokens": 16}, streamed),
        (shown("circle", "What colour is it?"), {**SURE, "max_tokens": 16}, whole),
        (
            user(image(SHAPES["star"]), text("and"), image(SHAPES["digit"]), text(QUESTION)),
            {**hot, "max_tokens": 24, "ignore_eos": True},
            streamed,
        ),
        (shown("digit", "Which digit is shown here?"), {**hot, "n": 2, "max_tokens": 12}, whole),
    ]


def test_eight_mixed_requests_at_once_are_each_as_if_alone(
    tiny: Server, caller: Caller, reference: Reference
) -> None:
    """Texts and images, short and long, streamed and not, in one batch. B6."""
    asked = mixed()
    together = caller.together(
        *(caller.chat_later(messages, way, **fields) for messages, fields, way in asked)
    )
    for got, (messages, fields, _) in zip(together, asked, strict=True):
        assert_same(got, reference.chat(messages, **fields))
    assert len({got.text for got in together}) == len(asked)
    assert tiny.status()["engine"]["max_decode_batch"] > 3  # or they were served in turn


def test_a_title_and_an_answer_at_the_same_time(caller: Caller, reference: Reference) -> None:
    """A client asks for the conversation's title while its answer still streams. B10."""
    main = [{"role": "system", "content": "Be helpful."}, *shown("square", "Describe it.")]
    title = [{"role": "system", "content": "Write a title."}, *shown("square", "Describe it.")]
    long = {**SURE, "max_tokens": 40, "ignore_eos": True}
    with caller.create(messages=main, **streaming(**long)) as chunks:
        first = next(chunks)
        named = caller.chat(title, **SURE, max_tokens=10)
        rest = [first, *chunks]
    assert_same(named, reference.chat(title, **SURE, max_tokens=10))
    answer = "".join(it.choices[0].delta.content or "" for it in rest if it.choices)
    assert answer == reference.chat(main, **long).text


# -- video ----------------------------------------------------------------------------------------


def gif() -> str:
    frames = [SHAPES["square"].resize((96, 96)), SHAPES["circle"].resize((96, 96))] * 2
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=100)
    return f"data:image/gif;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@pytest.mark.parametrize("way", ["sync", "sync streamed"])
def test_a_video_is_seen_or_refused_by_name(caller: Caller, reference: Reference, way: str) -> None:
    """As the model's own family has it; it is never dropped unseen. B7a."""
    asked = user(video(gif()), text(QUESTION))
    fields = {**SURE, "max_tokens": 12}
    [output] = reference.llm.generate(
        [{"messages": asked}], SamplingParams(temperature=0, max_tokens=12, logprobs=1)
    )
    if output.error is None:
        got = caller.chat(asked, way, **fields)
        assert_same(got, reference.heard(output))
        assert got.usage[0] > reference.chat(user(text(QUESTION)), **fields).usage[0] + 8
    else:
        with pytest.raises(openai.BadRequestError, match="video"):
            caller.chat(asked, way, **fields)


# -- what cannot be taken -------------------------------------------------------------------------


def claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header speaks of so many pixels."""

    def part(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = part(b"IHDR", header) + part(b"IDAT", zlib.compress(b"\0" * 64)) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>'
SMALL = image(Image.new("RGB", (8, 8), "red"))
BAD: dict[str, tuple[list[dict[str, Any]], str]] = {
    "truncated": ([image(base64_url(png(SHAPES["square"])[:200]))], "cannot be decoded"),
    "one pixel": ([image(Image.new("RGB", (1, 1), "red"))], "too small"),
    "wrong base64": ([image("data:image/png;base64,@@@@")], "base64"),
    "not a picture": ([image(base64_url(b"hello"))], "cannot be decoded"),
    "nothing": ([image("data:image/png;base64,")], "cannot be decoded"),
    "a drawing": ([image(base64_url(SVG))], "cannot be decoded"),
    "a bomb": ([image(base64_url(claiming(60_000, 60_000)))], "too large"),
    "http": ([image("http://127.0.0.1:9/a.png")], "not fetched"),
    "https": ([image("https://example.org/a.png")], "not fetched"),
    "a path": ([image("/etc/hostname")], "not opened"),
    "a file URL": ([image("file:///etc/hostname")], "not opened"),
    "too many": ([SMALL] * 65, "64 images"),
    "broken video": ([video(base64_url(b"hello"))], "cannot be decoded"),
}


def assert_refused(caller: Caller, case: str, *, stream: bool) -> None:
    """The part is named by its place; a text stands before it."""
    parts, message = BAD[case]
    with pytest.raises(openai.BadRequestError) as raised:
        caller.create(model=MODEL, messages=user(text(QUESTION), *parts), stream=stream)
    error = raised.value
    assert (error.code, error.param) == ("invalid_media", "messages")
    assert f"messages[0].content[{len(parts)}]: " in error.message
    assert message in error.message
    assert "/etc" not in error.message


class Beside:
    """A stream that is read in a thread of its own."""

    def __init__(self, caller: Caller, messages: list[dict[str, Any]], **fields: Any):
        self.begun = threading.Event()
        self._text: list[str] = []
        self._chunks = caller.create(messages=messages, **streaming(**fields))
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        assert self.begun.wait(PATIENCE)

    def _read(self) -> None:
        with self._chunks as chunks:
            for chunk in chunks:
                self._text += [choice.delta.content or "" for choice in chunk.choices]
                self.begun.set()

    def text(self) -> str:
        self._thread.join(PATIENCE)
        return "".join(self._text)


def test_a_bad_picture_is_refused_and_nobody_else_notices(
    tiny: Server, caller: Caller, reference: Reference
) -> None:
    """One 400 each, streamed or not, while a reply about a good picture goes on. B48."""
    fields = {"temperature": 3, "seed": 2, "max_tokens": 160, "ignore_eos": True}
    beside = Beside(caller, shown("square"), **fields)
    assert tiny.status()["running"] == 1
    for at, case in enumerate(BAD):
        assert_refused(caller, case, stream=bool(at % 2))
    assert beside.text() == reference.chat(shown("square"), **fields).text


def test_a_picture_is_taken_in_any_common_form(caller: Caller, reference: Reference) -> None:
    """Control: what is refused above is refused for what is wrong with it."""
    fields = {**SURE, "max_tokens": 8}
    for kind in ("PNG", "WEBP", "BMP", "GIF", "TIFF"):
        buffer = io.BytesIO()
        options = {"lossless": True} if kind == "WEBP" else {}
        SHAPES["square"].save(buffer, kind, **options)
        url = f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
        got = caller.chat(user(image(url), text(QUESTION)), **fields)
        assert_same(got, reference.chat(shown("square"), **fields))
    assert_same(
        caller.chat(user(*[SMALL] * 3, text(QUESTION)), **fields),
        reference.chat(user(*[SMALL] * 3, text(QUESTION)), **fields),
    )
