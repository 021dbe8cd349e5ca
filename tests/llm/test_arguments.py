"""What `generate` may be called with, and calls that cannot be meant."""

from typing import Any

import pytest

from bushel import LLM, RequestError, SamplingParams
from tests.depth import one_in

from .request_builders import assert_same, chat, greedy, prompt, solo

STORY = "Once upon a time"
SHORT = {"max_tokens": 5, "temperature": 0.0, "ignore_eos": True}


def reference(llm: LLM, text: str) -> Any:
    return solo(llm, {"prompt": text}, SamplingParams(**SHORT))


# -- what is taken ----------------------------------------------------------------------------


def test_a_string_is_one_prompt_and_gives_a_list_of_one(llama: LLM) -> None:
    outputs = llama.generate(STORY, SHORT)
    assert len(outputs) == 1
    assert_same(outputs[0], reference(llama, STORY))
    assert len(outputs[0].token_ids) == 5


def test_a_list_of_strings_gives_an_output_for_each(llama: LLM) -> None:
    texts = [STORY, "The weather is", "A bushel"]
    outputs = llama.generate(texts, SHORT)
    for output, text in zip(outputs, texts, strict=True):
        assert_same(output, reference(llama, text))
    assert outputs[0].token_ids != outputs[1].token_ids


def test_strings_and_requests_may_be_mixed(llama: LLM) -> None:
    mixed = (request for request in (STORY, {"prompt": STORY}, prompt(7), chat("Hello")))
    text, same, ids, talk = llama.generate(mixed, greedy(5))
    assert_same(text, same)
    assert_same(ids, solo(llama, prompt(7), greedy(5)))
    assert_same(talk, solo(llama, chat("Hello"), greedy(5)))


def test_one_string_may_be_submitted_and_streamed(llama: LLM) -> None:
    expected = reference(llama, STORY)
    handle = llama.submit(STORY, SHORT)
    while not handle.done:
        llama.step()
    assert_same(handle.output, expected)
    events = list(llama.stream(STORY, SHORT))
    assert "".join(event.text for event in events) == expected.text


def test_a_dict_says_what_sampling_params_say(llama: LLM) -> None:
    """Alone, in a list, and beside `SamplingParams` and nothing at all."""
    [one] = llama.generate(STORY, SHORT)
    assert_same(one, reference(llama, STORY))
    params = [{"max_tokens": 2, "ignore_eos": True}, SamplingParams(max_tokens=3), None]
    outputs = llama.generate([prompt(5), prompt(6), prompt(7)], params)
    assert [len(output.token_ids) for output in outputs[:2]] == [2, 3]
    assert outputs[2].error is None


# -- what belongs to one request --------------------------------------------------------------

WRONG: dict[str, tuple[Any, str]] = {
    "misspelt key": ({"promt": "a"}, "'promt' is not a key of a request; did you mean 'prompt'?"),
    "misspelt field": (chat("a", respons_format={}), "did you mean 'response_format'?"),
    "key that nobody knows": ({"prompt": "a", "colour": 1}, "'colour' is not a key of a request."),
    "key that is no text": ({"prompt": "a", 5: 1}, "'5' is not a key"),
    "sampling parameter": ({"prompt": "a", "max_tokens": 5}, "goes into params"),
    "tools of a prompt": ({"prompt": "a", "tools": []}, "tools goes with messages"),
    "number as a request": (5, "not int"),
    "bytes as a request": (b"abc", "not bytes"),
    "content by another name": (
        {"messages": [{"role": "user", "contents": "a"}]},
        "messages[0] has no content; is it what 'contents' says?",
    ),
    "message without content": ({"messages": [{"role": "user"}]}, "messages[0] has no content."),
    "tools as an object": (chat("a", tools={"name": "f"}), "tools must be a list"),
    "tool without a name": (chat("a", tools=[{"type": "function"}]), "tools[0] must be"),
    "tool of no schema": (
        chat("a", tools=[{"name": "f", "parameters": "none"}]),
        "tools[0].function.parameters must be a JSON schema",
    ),
    "function without words": (chat("a", tools=[lambda x: x]), "tools[0]"),
    "choice without tools": (chat("a", tool_choice="required"), "tool_choice is required, but"),
    "choice of a word": (chat("a", tool_choice="sometimes"), "tool_choice must be"),
    "choice of nobody": (
        chat("a", tool_choice={"type": "function", "function": {}}),
        "tool_choice.function.name must be",
    ),
    "one call as text": (chat("a", parallel_tool_calls="no"), "parallel_tool_calls must be true"),
    "format as text": (chat("a", response_format="json"), "response_format must be an object"),
    "format of no kind": (
        chat("a", response_format={"type": "yaml"}),
        "response_format.type must be one of text, json_object, json_schema",
    ),
    "format without a schema": (
        chat("a", response_format={"type": "json_schema"}),
        "response_format.json_schema must be",
    ),
    "schema in the wrong place": (
        chat("a", response_format={"type": "json_schema", "json_schema": {"type": "object"}}),
        "response_format.json_schema has a key 'type'",
    ),
    "two forms of an answer": (
        chat("a", response_format={"type": "json_object"}, shape={"regex": "a"}),
        "response_format or to shape",
    ),
    "thinking as text": (chat("a", thinking="yes"), "thinking must be an object, not str"),
    "thinking misspelt": (chat("a", thinking={"enable": True}), "did you mean 'enabled'?"),
    "thinking by a word": (chat("a", thinking={"enabled": "yes"}), "enabled must be true or false"),
    "salt as a number": (chat("a", cache_salt=5), "cache_salt"),
}


@pytest.mark.parametrize("case", one_in(3, WRONG))
def test_a_wrong_key_is_named_by_its_own_request_alone(llama: LLM, case: str) -> None:
    """The request has the error, and the one beside it its answer. B48, B71."""
    request, message = WRONG[case]
    good, bad = llama.generate([prompt(5), request], greedy(3))
    assert message in (bad.error or "")
    assert (bad.finish_reason, bad.token_ids) == ("error", [])
    assert_same(good, solo(llama, prompt(5), greedy(3)))


def test_a_wrong_parameter_in_a_list_is_its_own_requests_error(llama: LLM) -> None:
    """The requests beside it are served. B48."""
    params: list[Any] = [SHORT, {"temprature": 0}, {"temperature": "hot"}, 5]
    good, misspelt, wrong, number = llama.generate([STORY] * 4, params)
    assert_same(good, reference(llama, STORY))
    assert "'temprature' is not a sampling parameter; did you mean 'temperature'?" in str(
        misspelt.error
    )
    assert "temperature must be" in str(wrong.error)
    assert "params must be SamplingParams or a dict, not int" in str(number.error)


# -- what is wrong as a whole -----------------------------------------------------------------

IMPOSSIBLE: dict[str, tuple[tuple[Any, ...], str]] = {
    "a number": ((5,), "not int"),
    "nothing": ((None,), "not NoneType"),
    "bytes": ((b"abc",), "not bytes"),
    "token ids": (([1, 2, 3],), "prompt_token_ids"),
    "fewer params": ((["a", "b"], [{}]), "2 requests but 1 params"),
    "params of no kind": (("a", 5), "params must be one for all"),
    "params as text": (("a", "hot"), "params must be SamplingParams or a dict, not str"),
    "misspelt params": (("a", {"max_token": 5}), "did you mean 'max_tokens'?"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_call_that_cannot_be_meant_raises(llama: LLM, case: str) -> None:
    arguments, message = IMPOSSIBLE[case]
    with pytest.raises(RequestError) as raised:
        llama.generate(*arguments)
    assert message in str(raised.value)


def test_an_unknown_keyword_raises(llama: LLM) -> None:
    call: Any = llama.generate
    with pytest.raises(TypeError, match="temperature"):
        call(STORY, temperature=0)


def test_an_interrupted_call_leaves_nothing_running(llama: LLM) -> None:
    """Ctrl-C in the middle of a long answer: the rows are free. B47."""
    events = iter(range(3))

    def interrupted() -> None:
        if next(events, None) is None:
            raise KeyboardInterrupt
        LLM.step(llama)

    llama.step = interrupted  # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            llama.generate([prompt(5), prompt(6)], greedy(500))
    finally:
        del llama.step  # type: ignore[method-assign]
    assert llama.status()["running"] == 0


# -- the bar ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_thousand_prompts_have_a_bar(llama: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    """It is there for those who ask for it, counts all requests, and changes no answer."""
    asked = [prompt(3 + seed % 5, seed) for seed in range(1000)]
    outputs = llama.generate(asked, greedy(2), progress=True)
    assert "1000/1000" in capsys.readouterr().err
    assert [len(output.token_ids) for output in outputs] == [2] * 1000
    again = llama.generate(asked[:50], greedy(2))
    assert capsys.readouterr().err == ""
    for one, two in zip(outputs, again, strict=False):
        assert_same(one, two)


# -- the tokenizer ----------------------------------------------------------------------------


def test_the_tokenizer_writes_what_the_model_reads(llama: LLM) -> None:
    ids = llama.tokenizer.encode(STORY)
    assert llama.tokenizer.decode(ids, skip_special_tokens=True) == STORY
    [text, tokens] = llama.generate([STORY, {"prompt_token_ids": ids}], greedy(4))
    assert_same(text, tokens)
