"""What a caller may send, what the model then reads, and what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from bushel import LLM, BushelError, SamplingParams
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.families.images import LARGE, MEDIUM, picture
from tests.families.vision import VISION
from tests.models.altered_checkpoints import copied, set_json, set_template

from .request_builders import (
    assert_same,
    base64_url,
    chat,
    data_url,
    difference,
    greedy,
    ids,
    image,
    png,
    prompt,
    prompt_ids,
    solo,
    text,
    video,
)

READ = greedy(6, prompt_logprobs=0)
TURNS = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Good morning, Ada."},
    {"role": "user", "content": "What is my name?"},
]
RENDERED = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\nMy name is Ada.<|im_end|>\n"
    "<|im_start|>assistant\nGood morning, Ada.<|im_end|>\n"
    "<|im_start|>user\nWhat is my name?<|im_end|>\n"
    "<|im_start|>assistant\n"
)
# Writes what it was given, and refuses tool messages as real templates do.
TELLING = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'tool' -%}{{- raise_exception('no tools in this house') -}}"
    "{%- endif -%}"
    "{{- message['role'] + ': ' + message['content'] + '\\n' -}}"
    "{%- endfor -%}"
    "{%- for tool in tools or [] -%}"
    "{{- 'tool ' + tool['function']['name'] + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if mood is defined -%}{{- 'mood ' + mood + '\\n' -}}{%- endif -%}"
    "{%- if add_generation_prompt -%}{{- 'assistant:' -}}{%- endif -%}"
)
ENDS_IN_IMAGE = (
    "{%- for part in messages[0]['content'] -%}"
    "{%- if part['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|>' -}}"
    "{%- else -%}{{- part['text'] -}}{%- endif -%}{%- endfor -%}"
)
CONTEXT = 64
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}


def encoded(name: str, said: str, *, special: bool = False) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_dir(name))
    return list(tokenizer.encode(said, add_special_tokens=special))


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """A short context, and a template that shows its arguments."""
    path = copied("llama", tmp_path_factory.mktemp("telling"))
    set_template(path, TELLING)
    set_json(path / "config.json", max_position_embeddings=CONTEXT)
    with LLM(str(path)) as llm:
        yield llm


@pytest.fixture(scope="module")
def ending_in_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = copied("qwen3_5_vl", tmp_path_factory.mktemp("ending"))
    set_template(path, ENDS_IN_IMAGE)
    with LLM(str(path)) as llm:
        yield llm


# -- the three forms --------------------------------------------------------------------------


def test_token_ids_are_read_as_they_are(llama: LLM) -> None:
    output = solo(llama, prompt(9), READ)
    assert prompt_ids(output)[1:] == ids(9)[1:]
    assert output.usage.prompt_tokens == 9
    assert output.usage.completion_tokens == len(output.token_ids) == 6


def test_a_string_is_read_through_the_tokenizer(llama: LLM) -> None:
    said = "A bushel of Äpfel 🍎"
    output = solo(llama, {"prompt": said}, READ)
    expected = encoded("llama", said, special=True)
    assert prompt_ids(output)[1:] == expected[1:]
    assert_same(output, solo(llama, {"prompt_token_ids": expected}, READ))


def test_system_prompt_and_all_turns_reach_the_model(llama: LLM) -> None:
    """The prompt is what the model's own template makes of all messages. B14."""
    output = solo(llama, {"messages": TURNS}, READ)
    expected = encoded("llama", RENDERED)
    assert prompt_ids(output)[1:] == expected[1:]
    assert_same(output, solo(llama, {"prompt_token_ids": expected}, READ))


@pytest.mark.parametrize("at", range(len(TURNS)))
def test_every_turn_changes_the_reply(llama: LLM, at: int) -> None:
    """A turn that reached the model unread would leave the reply as it was. B14."""
    turns = [dict(turn) for turn in TURNS]
    turns[at]["content"] = turns[at]["content"].replace("a", "e")
    first = [solo(llama, {"messages": each}, greedy(1)).logprobs for each in (TURNS, turns)]
    assert difference(*first) > 1e-3


def test_text_parts_read_like_the_same_text(llama: LLM) -> None:
    parts = chat(text("What is"), text("my name?"))
    assert_same(solo(llama, parts, READ), solo(llama, chat("What is\nmy name?"), READ))


def test_tools_and_template_options_reach_the_template(telling: LLM) -> None:
    asked = chat("hi", tools=[TOOL], chat_template_kwargs={"mood": "calm"})
    said = "user: hi\ntool get_weather\nmood calm\nassistant:"
    assert prompt_ids(solo(telling, asked, READ))[1:] == encoded("llama", said)[1:]


def test_no_option_is_forced_on_the_template(telling: LLM) -> None:
    """A template that tells every option it got tells of none. B15."""
    said = "user: hi\nassistant:"
    assert prompt_ids(solo(telling, chat("hi"), READ))[1:] == encoded("llama", said)[1:]


def test_the_generation_prompt_can_be_left_out(telling: LLM) -> None:
    asked = chat("hi", chat_template_kwargs={"add_generation_prompt": False})
    assert prompt_ids(solo(telling, asked, READ))[1:] == encoded("llama", "user: hi\n")[1:]


# -- images -----------------------------------------------------------------------------------


def test_data_url_path_and_file_url_show_the_same_picture(seeing: LLM, tmp_path: Path) -> None:
    """However a picture is given, the reply is the same; another picture gives another. B7."""
    shown = picture(MEDIUM, seed=1)
    file = tmp_path / "a picture.png"
    file.write_bytes(png(shown))
    sources: list[Any] = [data_url(shown), str(file), file.as_uri(), shown]
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": source}} for source in sources]
    parts.append({"type": "image_url", "image_url": str(file)})
    asked = [chat(text("What is"), part) for part in parts]
    outputs = [solo(seeing, request, READ) for request in asked]
    for output in outputs[1:]:
        assert_same(outputs[0], output)
    other = solo(seeing, chat(text("What is"), image(picture(MEDIUM, seed=2))), greedy(1))
    assert abs(other.logprobs[0].top[0][1] - outputs[0].logprobs[0].top[0][1]) > 1e-3  # type: ignore[index]


def test_a_picture_takes_as_many_tokens_as_its_size_asks(seeing: LLM) -> None:
    family = VISION["qwen3_5_vl"]
    for size, count in ((MEDIUM, family.image_tokens[1]), (LARGE, family.image_tokens[2])):
        output = solo(seeing, chat(image(picture(size)), text("?")), READ)
        assert prompt_ids(output).count(family.image_token_id) == count


def test_pictures_stand_where_the_conversation_put_them(seeing: LLM) -> None:
    """The reply sees the image and every earlier turn. B7."""
    shown = image(picture(MEDIUM))
    turns = [
        {"role": "user", "content": [text("first"), shown, text("then")]},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": [image(picture(LARGE)), text("last")]},
    ]
    seen = prompt_ids(solo(seeing, {"messages": turns}, READ))
    token = VISION["qwen3_5_vl"].image_token_id
    spots = [at for at, each in enumerate(seen) if each == token]
    assert [each for each in seen if each == token] == [token] * (12 + 24)
    words = encoded("qwen3_5_vl", "then"), encoded("qwen3_5_vl", "last")
    assert seen.index(words[0][-1], spots[11]) < spots[12]
    assert seen.index(words[1][-1], spots[-1]) > spots[-1]


@pytest.mark.parametrize("name", often(["qwen3_5_vl", "gemma3_vl", "smolvlm"], "gemma3_vl"))
def test_a_vision_model_serves_text_requests(name: str) -> None:
    """Streaming and not, alone and beside an image, through the same path. B6."""
    asked, shown = {"messages": TURNS}, chat(image(picture(MEDIUM)), text("What is it?"))
    with LLM(str(checkpoint_dir(name))) as llm:
        alone = solo(llm, asked, READ)
        expected = encoded(name, RENDERED, special=True)
        assert prompt_ids(alone)[1:] == expected[1:]
        events = list(llm.stream(asked, READ))
        assert "".join(event.text for event in events) == alone.text
        assert [token for event in events for token in event.token_ids] == alone.token_ids
        beside, seen = llm.generate([asked, shown], READ)
        assert_same(beside, alone)
        assert_same(seen, solo(llm, shown, READ))
        assert llm.status()["max_decode_batch"] == 2


# -- what is refused --------------------------------------------------------------------------

BROKEN: dict[str, tuple[Any, str]] = {
    "not a mapping": (["hello"], "mapping"),
    "no form": ({}, "exactly one of prompt_token_ids, prompt, messages"),
    "no known form": ({"input": "hello"}, "exactly one of"),
    "two forms": ({"prompt": "a", "prompt_token_ids": [50]}, "exactly one of"),
    "empty ids": ({"prompt_token_ids": []}, "empty"),
    "ids as text": ({"prompt_token_ids": "abc"}, "prompt_token_ids must be integers"),
    "ids as floats": ({"prompt_token_ids": [50.0]}, "prompt_token_ids must be integers"),
    "ids as booleans": ({"prompt_token_ids": [True]}, "prompt_token_ids must be integers"),
    "negative id": ({"prompt_token_ids": [50, -1]}, f"below {VOCAB}"),
    "id beyond the vocabulary": ({"prompt_token_ids": [50, VOCAB]}, f"below {VOCAB}"),
    "empty string": ({"prompt": ""}, "empty"),
    "prompt as list": ({"prompt": ["a"]}, "prompt must be a string"),
    "messages as text": ({"messages": "hello"}, "messages must be a list"),
    "no messages": ({"messages": []}, "at least one message"),
    "message as text": ({"messages": [*TURNS, "hello"]}, "messages[4]"),
    "message without role": ({"messages": [{"content": "a"}]}, "messages[0]"),
    "content as number": ({"messages": [*TURNS, {"role": "user", "content": 5}]}, "messages[4]"),
    "no parts": ({"messages": [*TURNS, {"role": "user", "content": []}]}, "messages[4]"),
    "part as text": (chat(text("a"), "b"), "messages[0].content[1]"),
    "part without type": (chat(text("a"), {"text": "b"}), "messages[0].content[1]"),
    "unknown part": (
        {"messages": [*TURNS, *chat(text("a"), {"type": "input_audio"})["messages"]]},
        "messages[4].content[1]",
    ),
    "text part without text": (chat({"type": "text"}), "messages[0].content[0]"),
    "template options as text": (
        chat("a", chat_template_kwargs="calm"),
        "chat_template_kwargs must be",
    ),
    "image without url": (chat({"type": "image_url"}), "url"),
    "broken base64": (chat(image("data:image/png;base64,@@@@")), "base64"),
    "truncated base64": (chat(image("data:image/png;base64,AAAAA")), "base64"),
    "data url without data": (chat(image("data:image/png")), "comma"),
    "not an image": (chat(image("data:image/png;base64,AAAA")), "image cannot be decoded"),
    "truncated image": (
        chat(image(base64_url(png(picture(LARGE))[:300]))),
        "image cannot be decoded",
    ),
    "missing file": (chat(image("/nowhere/at/all.png")), "cannot be read"),
    "http": (chat(image("http://127.0.0.1:9/a.png")), "not fetched"),
    "https": (chat(image("HTTPS://example.org/a.png")), "not fetched"),
}
BROKEN_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "tokens as text": ({"max_tokens": "5"}, "max_tokens"),
    "negative temperature": ({"temperature": -1.0}, "temperature"),
    "temperature nan": ({"temperature": float("nan")}, "temperature"),
    "temperature as text": ({"temperature": "hot"}, "temperature"),
    "top_p beyond one": ({"top_p": 1.5}, "top_p"),
    "negative min_p": ({"min_p": -0.1}, "min_p"),
    "top_k as text": ({"top_k": "many"}, "top_k"),
    "top_k as fraction": ({"top_k": 2.5}, "top_k"),
    "no repetition": ({"repetition_penalty": 0}, "repetition_penalty"),
    "no choices": ({"n": 0}, "n must be"),
    "too many choices": ({"n": 100_000}, "n must be"),
    "empty stop": ({"stop": ["a", ""]}, "stop"),
    "stop as number": ({"stop": 5}, "stop"),
    "stop ids as number": ({"stop_token_ids": 5}, "stop_token_ids"),
    "stop id beyond the vocabulary": ({"stop_token_ids": [VOCAB]}, "stop_token_ids"),
    "bias beyond the vocabulary": ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
    "bias of a word": ({"logit_bias": {"word": 1.0}}, "logit_bias"),
    "bias as list": ({"logit_bias": [1.0]}, "logit_bias"),
    "infinite bias": ({"logit_bias": {7: float("inf")}}, "logit_bias"),
    "logprobs beyond the vocabulary": ({"logprobs": VOCAB + 1}, "logprobs"),
    "negative prompt_logprobs": ({"prompt_logprobs": -1}, "prompt_logprobs"),
    "negative min_tokens": ({"min_tokens": -1}, "min_tokens"),
    "seed as text": ({"seed": "lucky"}, "seed"),
}


def assert_refused(llm: LLM, request: Any, message: str, params: SamplingParams = READ) -> None:
    """Refused with a message of one line that speaks of the request, not of Bushel's insides."""
    [output] = llm.generate([request], params)
    assert output.finish_reason == "error"
    assert output.error is not None
    assert message in output.error
    assert "\n" not in output.error
    assert len(output.error) < 300
    assert "bushel." not in output.error
    assert (output.token_ids, output.text, len(output.choices)) == ([], "", 1)


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_request_says_what_is_wrong(seeing: LLM, case: str) -> None:
    """One error in words for each way to be wrong, and the model serves on. B17, B48."""
    assert_refused(seeing, *BROKEN[case])


@pytest.mark.parametrize("case", BROKEN_SETTINGS)
def test_a_broken_setting_is_named(llama: LLM, case: str) -> None:
    """The error names the setting that cannot be used. B48."""
    settings, message = BROKEN_SETTINGS[case]
    assert_refused(llama, prompt(5), message, SamplingParams(**settings))


def test_text_sent_as_a_path_is_not_repeated_whole(seeing: LLM) -> None:
    """Neither as base64 without its data: prefix, nor as a name of a file."""
    assert_refused(seeing, chat(image("A" * 100_000)), "image cannot be decoded")
    assert_refused(seeing, chat(image("a b" * 50_000)), "cannot be read")


def test_an_image_for_a_text_model_is_refused(llama: LLM) -> None:
    assert_refused(llama, chat(text("a"), image(picture())), "text model")


@pytest.mark.parametrize("name", ["gemma3_vl", "pixtral", "lfm2_vl"])
def test_a_video_for_a_model_without_video_is_refused_by_name(name: str) -> None:
    """It is never dropped unseen. B7a."""
    with LLM(str(checkpoint_dir(name))) as llm:
        assert_refused(llm, chat(text("What is it?"), video(picture(MEDIUM))), "video")


def test_the_templates_own_complaint_reaches_the_caller(telling: LLM) -> None:
    """Nothing is sent to the model as raw text instead. B16."""
    assert_refused(telling, chat("result", role="tool"), "no tools in this house")


def test_a_prompt_beyond_the_context_is_told_both_numbers(telling: LLM) -> None:
    """The error has the prompt's length and the context's; one token less is served. B50."""
    for length in (CONTEXT, CONTEXT + 36):
        assert_refused(telling, prompt(length), f"{CONTEXT} tokens")
        assert_refused(telling, prompt(length), f"{length} tokens")
    assert solo(telling, prompt(CONTEXT - 1), READ).usage.prompt_tokens == CONTEXT - 1


def test_a_prompt_that_ends_inside_an_image_is_refused(ending_in_image: LLM) -> None:
    shown = image(picture(MEDIUM))
    assert_refused(ending_in_image, chat(text("See"), shown), "ends inside an image")
    assert solo(ending_in_image, chat(text("See"), shown, text("this")), READ).error is None


def test_bad_requests_do_not_disturb_the_good_ones(seeing: LLM) -> None:
    """Each good one is what it is without them. B48."""
    good: list[Any] = [
        {"messages": TURNS},
        chat(image(picture(MEDIUM)), text("What is it?")),
        prompt(40, seed=3),
        {"prompt": "A bushel is"},
    ]
    alone = seeing.generate(good, READ)
    bad = [request for request, _ in BROKEN.values()]
    mixed: list[Any] = []
    for at, request in enumerate(good):
        mixed += [request, *bad[at :: len(good)]]
    outputs = seeing.generate(mixed, READ)
    served = [output for output in outputs if output.error is None]
    assert len(served) == len(good)
    assert [output.finish_reason for output in outputs].count("error") == len(bad)
    for one, two in zip(served, alone, strict=True):
        assert_same(one, two)


def test_a_request_that_fails_at_its_first_chunk_does_not_disturb_the_others(
    ending_in_image: LLM,
) -> None:
    """This one is found out only after it has been admitted. B48."""
    good = chat(text("See"), image(picture(LARGE)), text("this"))
    bad = chat(text("See"), image(picture(MEDIUM)))
    outputs = ending_in_image.generate([good, bad, prompt(40), bad], READ)
    assert [output.finish_reason for output in outputs] == ["length", "error", "length", "error"]
    assert_same(outputs[0], solo(ending_in_image, good, READ))
    assert_same(outputs[2], solo(ending_in_image, prompt(40), READ))


# -- the call itself --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_of_settings_must_match_the_requests(llama: LLM, count: int) -> None:
    with pytest.raises(BushelError, match=rf"2 requests but {count} params"):
        llama.generate([prompt(5), prompt(6)], [greedy()] * count)


def test_settings_are_given_in_the_order_of_the_requests(llama: LLM) -> None:
    outputs = llama.generate([prompt(5), prompt(5)], [greedy(3), greedy(7)])
    assert [len(output.token_ids) for output in outputs] == [3, 7]


def test_one_request_may_come_without_a_list(llama: LLM) -> None:
    [output] = llama.generate(prompt(5), greedy(3))
    assert_same(output, solo(llama, prompt(5), greedy(3)))


def test_no_requests_give_no_outputs(llama: LLM) -> None:
    assert llama.generate([], greedy()) == []


@pytest.mark.parametrize("setting", ["max_batch", "prefill_chunk"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "8"])
def test_an_impossible_engine_setting_is_refused(setting: str, value: Any) -> None:
    make: Callable[..., LLM] = LLM
    with pytest.raises(BushelError, match=setting):
        make(str(checkpoint_dir("llama")), **{setting: value})
