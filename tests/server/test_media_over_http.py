"""Pictures and videos in requests over HTTP: many at once, and those that cannot be taken."""

from __future__ import annotations

import base64
import io
import struct
import threading
import zlib
from typing import Any

import numpy as np
import openai
import pytest
from PIL import Image

from bushel import SamplingParams
from tests.depth import one_in
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


@pytest.mark.long
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


@pytest.mark.parametrize("way", one_in(2, ["sync", "sync streamed"]))
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


def clip(form: str) -> dict[str, Any]:
    """The same frames, a tenth of a second each, as clients of several servers send them."""
    if form == "a file":
        return video(gif())
    frames = [raw(as_file(SHAPES[name].resize((96, 96)), "PNG")) for name in ("square", "circle")]
    if form == "in one URL":
        return {**video(f"data:video/png;base64,{','.join(frames * 2)}"), "fps": 10}
    urls = [f"data:image/png;base64,{frame}" for frame in frames * 2]
    return {"type": "video", "video": urls, "fps": 10}


@pytest.mark.parametrize("form", one_in(3, ["a file", "in one URL", "in a list"]))
def test_a_video_and_an_image_in_one_conversation(
    caller: Caller, reference: Reference, form: str
) -> None:
    """In whatever form it comes, beside others. B7a, B6."""
    asked = [
        *shown("star"),
        {"role": "assistant", "content": "A star."},
        *user(clip(form), text(QUESTION)),
    ]
    fields = {**SURE, "max_tokens": 12}
    got, words = caller.together(
        caller.chat_later(asked, "async streamed", **fields),
        caller.chat_later(user("What is 3 + 4?"), "async", **fields),
    )
    assert_same(got, reference.chat(asked, **fields))
    assert_same(words, reference.chat(user("What is 3 + 4?"), **fields))
    without = [*asked[:-1], *user(text(QUESTION))]
    assert got.usage[0] > reference.chat(without, **fields).usage[0] + 8


@pytest.mark.parametrize("form", one_in(2, ["input_video", "input_file"]))
def test_responses_take_a_video(tiny: Server, caller: Caller, form: str) -> None:
    """As a part of its own, or as a file, which is the place that OpenAI's API has for one. B7a."""
    part: dict[str, Any] = {"type": form, "video_url": gif()}
    if form == "input_file":
        data = gif().replace("image/gif", "video/gif")
        part = {"type": form, "filename": "a.gif", "file_data": data}
    said: Any = [{"role": "user", "content": [part, {"type": "input_text", "text": QUESTION}]}]
    client = openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="any", timeout=PATIENCE)
    reply = client.responses.create(
        model=MODEL, input=said, temperature=0, max_output_tokens=12, store=False
    )
    chat = caller.chat(user(video(gif()), text(QUESTION)), temperature=0, max_tokens=12)
    assert reply.output_text == chat.text
    assert reply.usage is not None
    assert reply.usage.input_tokens == chat.usage[0]


def test_messages_have_no_place_for_a_video(tiny: Server) -> None:
    """Nor has Anthropic's API: it is refused by name."""
    source = {"type": "base64", "media_type": "video/mp4", "data": "AAAA"}
    asked = user({"type": "video", "source": source}, text(QUESTION))
    reply = tiny.http.post(
        "/v1/messages", json={"model": MODEL, "max_tokens": 2, "messages": asked}
    )
    assert reply.status_code == 400
    assert "video" in reply.json()["error"]["message"]


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


def as_file(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def grey16() -> Image.Image:
    """Grey of 16 bits, of the same brightness as `GREY` has in eight."""
    return Image.fromarray((np.asarray(GREY).astype(np.uint16) << 8) | 0x7F)


def turned() -> bytes:
    """A photo that lies on its side, and says so."""
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    lying = SHAPES["star"].transpose(Image.Transpose.ROTATE_90)
    return as_file(lying, "PNG", exif=exif)


def raw(data: bytes) -> str:
    return base64.b64encode(data).decode()


SQUARE = SHAPES["square"].resize((96, 96))
GREY = SHAPES["digit"].convert("L")
PALETTE = SQUARE.quantize(8)
CMYK = Image.new("CMYK", (64, 64), (255, 0, 255, 0))
MOVING = {"save_all": True, "append_images": [SHAPES["circle"].resize((96, 96))], "duration": 100}
# What is sent, and the picture that is meant.
ODD: dict[str, tuple[str, Image.Image]] = {
    "one pixel": (
        base64_url(as_file(Image.new("RGB", (1, 1), "red"), "PNG")),
        Image.new("RGB", (4, 4), "red"),
    ),
    "a line": (
        base64_url(as_file(Image.new("RGB", (2, 9), "blue"), "PNG")),
        Image.new("RGB", (4, 18), "blue"),
    ),
    "without padding": (base64_url(as_file(SQUARE, "BMP")).rstrip("="), SQUARE),
    "without a data: URL": (raw(as_file(SQUARE, "PNG")), SQUARE),
    "without both": (raw(as_file(SQUARE, "PNG")).rstrip("="), SQUARE),
    "a photo without a data: URL": (
        raw(as_file(SQUARE, "JPEG", quality=95)),
        Image.open(io.BytesIO(as_file(SQUARE, "JPEG", quality=95))),
    ),
    "URL-safe": (
        base64.urlsafe_b64encode(as_file(SQUARE, "PNG")).decode().rstrip("="),
        SQUARE,
    ),
    "an animated PNG": (base64_url(as_file(SQUARE, "PNG", **MOVING)), SQUARE),
    "an animated WebP": (base64_url(as_file(SQUARE, "WEBP", lossless=True, **MOVING)), SQUARE),
    "an animated GIF": (
        base64_url(as_file(PALETTE, "GIF", **MOVING)),
        Image.open(io.BytesIO(as_file(PALETTE, "GIF", **MOVING))).convert("RGB"),
    ),
    "CMYK": (base64_url(as_file(CMYK, "TIFF")), CMYK.convert("RGB")),
    "a CMYK photo": (
        base64_url(as_file(CMYK, "JPEG", quality=100)),
        Image.open(io.BytesIO(as_file(CMYK, "JPEG", quality=100))).convert("RGB"),
    ),
    "a palette": (base64_url(as_file(PALETTE, "PNG")), PALETTE.convert("RGB")),
    "one bit": (base64_url(as_file(GREY.convert("1"), "PNG")), GREY.convert("1").convert("RGB")),
    "16 bits": (base64_url(as_file(grey16(), "PNG")), GREY.convert("RGB")),
    "16 bits of TIFF": (base64_url(as_file(grey16(), "TIFF")), GREY.convert("RGB")),
    "turned": (base64_url(turned()), SHAPES["star"]),
}


@pytest.mark.parametrize("case", one_in(2, ODD))
def test_an_odd_picture_is_seen_as_it_is_meant(
    caller: Caller, reference: Reference, case: str
) -> None:
    """As the same pixels in a plain file are. B7a."""
    sent, meant = ODD[case]
    fields = {**SURE, "max_tokens": 6}
    got = caller.chat(user(image(sent), text(QUESTION)), **fields)
    assert_same(got, reference.chat(user(image(meant.convert("RGB")), text(QUESTION)), **fields))


def test_control_the_pictures_are_told_apart(reference: Reference) -> None:
    fields = {**SURE, "max_tokens": 6}
    meant = [ODD[case][1].convert("RGB") for case in ("turned", "16 bits", "CMYK", "one pixel")]
    other = [meant[0].rotate(90, expand=True), Image.new("RGB", GREY.size, "white")]
    seen = [
        reference.chat(user(image(picture), text(QUESTION)), **fields)
        for picture in (*meant, *other)
    ]
    assert len({str(output) for output in seen}) == len(seen)


def test_other_apis_take_them_too(tiny: Server) -> None:
    """The first pixel of a GIF, as Anthropic's and OpenAI's newer API send it."""
    data = raw(as_file(Image.new("P", (1, 1)), "GIF")).rstrip("=")
    source = {"type": "base64", "media_type": "image/gif", "data": data}
    ask: dict[str, Any] = {"model": MODEL, "max_tokens": 2}
    block = {"type": "image", "source": source}
    reply = tiny.http.post("/v1/messages", json={**ask, "messages": user(block, text(QUESTION))})
    assert reply.status_code == 200, reply.text
    part = {"type": "input_image", "image_url": data}
    said = [{"role": "user", "content": [part, {"type": "input_text", "text": QUESTION}]}]
    reply = tiny.http.post("/v1/responses", json={"model": MODEL, "input": said})
    assert reply.status_code == 200, reply.text


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
