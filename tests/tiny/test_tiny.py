"""The model in the package sees, remembers, calls and thinks; few cases, no accuracy."""

import json
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

import bushel
from bushel import LLM, Output, SamplingParams
from tests.depth import one_in
from tests.drawings import pair, see
from tools.tiny.ask import WEATHER
from tools.tiny.chat import TEMPLATE

TINY = Path(str(bushel.__file__)).parent / "tiny"


@pytest.fixture(scope="module")
def llm():
    with LLM("bushel:tiny") as loaded:
        yield loaded


def ask(llm: LLM, text: str, *pictures: Image.Image, **request) -> str:
    output = reply(llm, text, *pictures, **request)
    assert output.finish_reason == "stop"
    return output.text


def reply(llm: LLM, text: str, *pictures: Image.Image, system: str = "", **request) -> Output:
    parts = [{"type": "image_url", "image_url": {"url": picture}} for picture in pictures]
    content = [*parts, {"type": "text", "text": text}] if parts else text
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    params = SamplingParams(temperature=0.0, max_tokens=80)
    output = llm.generate({"messages": messages, **request}, params)[0]
    assert output.error is None
    return output


def number(digit: str) -> Image.Image:
    image = Image.new("RGB", (128, 128), "white")
    font = ImageFont.load_default(90)
    ImageDraw.Draw(image).text((64, 64), digit, fill="black", font=font, anchor="mm")
    return image


@pytest.mark.parametrize(
    ("colour", "shape"), one_in(3, [("red", "circle"), ("blue", "square"), ("green", "triangle")])
)
def test_it_names_colour_and_shape(llm: LLM, colour: str, shape: str) -> None:
    picture = see(shape, colour)
    assert colour in ask(llm, "What colour is it?", picture)
    assert shape in ask(llm, "Which shape is this?", picture)


def test_it_names_the_colour_of_one_thing_among_several(llm: LLM) -> None:
    picture = pair(("blue", "red"))
    assert ask(llm, "What colour is the circle?", picture).endswith("circle is red.")
    assert ask(llm, "What colour is the square?", picture).endswith("square is blue.")


@pytest.mark.parametrize("digit", one_in(2, list("2457")))
def test_it_reads_a_digit(llm: LLM, digit: str) -> None:
    assert digit in ask(llm, "Which digit is shown here?", number(digit))


def test_it_tells_two_pictures_apart(llm: LLM) -> None:
    pictures = [see("circle", "red"), see("square", "blue")]
    assert ask(llm, "Do the two pictures show the same shape?", *pictures).endswith("so no.")
    assert "second" in ask(llm, "Which picture shows the square?", *pictures)


def test_it_recalls_the_system_prompt(llm: LLM) -> None:
    answer = ask(llm, "What is the codeword?", system="The codeword is marmalade.")
    assert "marmalade" in answer


def test_it_calls_a_tool(llm: LLM) -> None:
    output = reply(llm, "What is the weather in Paris?", tools=[WEATHER])
    assert output.finish_reason == "tool_calls"
    [call] = output.tool_calls
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})


def test_it_thinks_only_when_asked_to(llm: LLM) -> None:
    options = {"chat_template_kwargs": {"enable_thinking": True}}
    thought = reply(llm, "What is 3 + 4?", **options)
    assert (thought.reasoning, thought.text) == ("3 + 4 is 7.", "3 + 4 = 7")
    assert reply(llm, "What is 3 + 4?").reasoning == ""


def test_it_is_small_and_its_template_is_the_trained_one() -> None:
    assert sum(file.stat().st_size for file in TINY.glob("*.safetensors")) <= 16e6
    assert (TINY / "chat_template.jinja").read_text() == TEMPLATE.read_text()
    config = json.loads((TINY / "config.json").read_text())
    assert config["text_config"]["max_position_embeddings"] == 65536


def test_it_loads_without_its_eyes_in_mlx_lm() -> None:
    import mlx.core as mx
    from mlx_lm.utils import load_model

    network, _ = load_model(TINY)
    assert network(mx.array([[1, 2, 3]])).shape == (1, 3, config_vocab())


def config_vocab() -> int:
    return int(json.loads((TINY / "config.json").read_text())["vocab_size"])
