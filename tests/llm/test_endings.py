"""How a reply ends, what of it is shown, and the settings nobody gave."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bushel import LLM, Choice, Output, SamplingParams
from tests.depth import one_in
from tests.families.checkpoint import END_OF_TEXT, IM_END
from tests.models.altered_checkpoints import copied, set_json

from .request_builders import assert_same, forcing, greedy, hot, prompt, solo

HOT = hot()
PLAIN = "river gallon market field"


def test_the_end_token_is_counted_but_not_shown(llama: LLM) -> None:
    """It is in the ids and in the usage, and the text is empty. B21."""
    for end in (IM_END, END_OF_TEXT):
        output = solo(llama, prompt(20), SamplingParams(logit_bias=forcing(end)))
        assert (output.token_ids, output.text, output.finish_reason) == ([end], "", "stop")
        assert output.usage.completion_tokens == 1


def test_min_tokens_holds_the_end_back(llama: LLM) -> None:
    params = SamplingParams(max_tokens=20, logit_bias=forcing(IM_END, END_OF_TEXT), min_tokens=5)
    output = solo(llama, prompt(20), params)
    assert len(output.token_ids) == 6
    assert not {IM_END, END_OF_TEXT} & set(output.token_ids[:5])
    assert output.token_ids[5] in (IM_END, END_OF_TEXT)
    assert output.finish_reason == "stop"
    assert output.token_ids[:5] == solo(llama, prompt(20), greedy(5)).token_ids


def test_min_tokens_also_holds_for_stop_strings_and_stop_tokens(llama: LLM) -> None:
    free = solo(llama, prompt(20), greedy(12))
    assert len(solo(llama, prompt(20), greedy(12, stop=characters(free))).token_ids) == 1
    late = solo(llama, prompt(20), greedy(12, stop=characters(free), min_tokens=6))
    assert len(late.token_ids) >= 6
    assert late.finish_reason == "stop"
    forced = greedy(12, logit_bias=forcing(77), stop_token_ids=[77], min_tokens=4)
    tokens = solo(llama, prompt(20), forced).token_ids
    assert (len(tokens), tokens.index(77)) == (5, 4)


def characters(output: Output) -> list[str]:
    """Stop strings that any of the output's tokens meets."""
    return sorted(set(output.text))[:64]


def test_ignore_eos_goes_on_past_the_end_token(llama: LLM) -> None:
    """The reply goes on to its limit, and still shows none. B21."""
    params = SamplingParams(max_tokens=7, ignore_eos=True, logit_bias=forcing(IM_END))
    output = solo(llama, prompt(20), params)
    assert (output.token_ids, output.text) == ([IM_END] * 7, "")
    assert output.finish_reason == "length"


def test_a_stop_token_ends_the_reply_and_is_not_shown(llama: LLM) -> None:
    free = solo(llama, prompt(20), greedy(12))
    at = next(at for at, token in enumerate(free.token_ids) if at > 2)
    token = free.token_ids[at]
    first = free.token_ids.index(token)
    output = solo(llama, prompt(20), greedy(12, stop_token_ids=[token]))
    assert output.token_ids == free.token_ids[: first + 1]
    assert output.finish_reason == "stop"
    assert output.text == solo(llama, prompt(20), greedy(first)).text
    assert len(output.logprobs or []) == first + 1


def test_ignore_eos_does_not_ignore_stop_tokens(llama: LLM) -> None:
    params = SamplingParams(logit_bias=forcing(77), stop_token_ids=[77], ignore_eos=True)
    assert solo(llama, prompt(20), params).token_ids == [77]


def test_the_limit_is_a_length_finish(llama: LLM) -> None:
    for limit in (1, 2, 9):
        output = solo(llama, prompt(20), greedy(limit))
        assert (len(output.token_ids), output.finish_reason) == (limit, "length")


def test_a_limit_beyond_the_context_is_clamped(llama: LLM, tmp_path: Path) -> None:
    """It is not refused, and what fits is unchanged. B50."""
    path = copied("llama", tmp_path)
    set_json(path / "config.json", max_position_embeddings=64)
    with LLM(str(path)) as llm:
        asked = [prompt(50), prompt(63), prompt(20)]
        outputs = llm.generate(asked, [greedy(320), greedy(320), greedy(8)])
    assert [len(output.token_ids) for output in outputs] == [14, 1, 8]
    assert [output.finish_reason for output in outputs] == ["length"] * 3
    assert_same(outputs[0], solo(llama, asked[0], greedy(14)))


def spelled(llm: LLM, words: str) -> SamplingParams:
    """Settings that make the model spell these words over and over, a token at a time."""
    tokens = llm._engine.model.tokenizer.encode(words, add_special_tokens=False)  # type: ignore[union-attr]
    assert len(tokens) >= 4
    return SamplingParams(
        max_tokens=24,
        temperature=3.0,
        seed=5,
        logit_bias=forcing(*tokens),
        ignore_eos=True,
    )


@pytest.fixture
def words(llama: LLM) -> Output:
    """A reply of plain letters, so that any piece of it can be a stop string."""
    output = solo(llama, prompt(20), spelled(llama, PLAIN))
    assert len(output.text) > 30
    assert output.text.isascii()
    return output


def test_a_stop_string_across_token_borders_is_cut(llama: LLM, words: Output) -> None:
    """Wherever it begins and ends, it and all after it are not shown. B22."""
    settings = spelled(llama, PLAIN)
    for start in range(4, 24):
        stop = words.text[start : start + 5]
        output = solo(llama, prompt(20), replace(settings, stop=stop))
        assert output.text == words.text[: words.text.index(stop)]
        assert output.finish_reason == "stop"
        assert output.token_ids == words.token_ids[: len(output.token_ids)]
        assert len(output.token_ids) < len(words.token_ids)


def test_the_first_of_several_stop_strings_counts(llama: LLM, words: Output) -> None:
    """The text ends before whichever comes first in it. B22."""
    stops = [words.text[20:26], words.text[10:14], "not in there"]
    output = solo(llama, prompt(20), replace(spelled(llama, PLAIN), stop=stops))
    assert output.text == words.text[: min(words.text.index(stop) for stop in stops[:2])]


def test_what_only_began_a_stop_string_is_shown_in_the_end(llama: LLM, words: Output) -> None:
    """Also when the reply ends in the middle of it. B22."""
    settings = spelled(llama, PLAIN)
    almost = [words.text[at : at + 4] + "☂" for at in range(0, 20, 3)] + [words.text[-3:] + "☂"]
    assert_same(solo(llama, prompt(20), replace(settings, stop=almost)), words)


def test_no_event_shows_a_part_of_the_stop_string(llama: LLM, words: Output) -> None:
    """Text that was shown cannot be taken back. B22."""
    stop = words.text[12:18]
    params = replace(spelled(llama, PLAIN), stop=stop)
    shown = ""
    for event in llama.stream(prompt(20), params):
        shown += event.text
        assert words.text[: words.text.index(stop)].startswith(shown)


@pytest.mark.parametrize(
    "more",
    one_in(2, [{}, {"n": 3}, {"stop": ["e", "a"]}, {"prompt_logprobs": 1}]),
    ids=lambda it: ",".join(it),
)
def test_streamed_events_fold_to_the_whole_output(llama: LLM, more: dict[str, Any]) -> None:
    params = replace(HOT, max_tokens=24, **more)
    whole = solo(llama, prompt(30), params)
    folded = Output(
        [
            Choice(logprobs=[], prompt_logprobs=[] if "prompt_logprobs" in more else None)
            for _ in whole.choices
        ]
    )
    ended: list[int] = []
    for event in llama.stream(prompt(30), params):
        assert event.choice not in ended
        folded.fold(event)
        if event.finish_reason is not None:
            ended.append(event.choice)
    assert sorted(ended) == list(range(len(whole.choices)))
    assert_same(folded, whole)


@pytest.mark.parametrize("more", [{}, {"n": 3}, {"stop": ["e", "a"], "n": 3}], ids=str)
def test_looking_at_a_running_reply_does_not_change_it(llama: LLM, more: dict[str, Any]) -> None:
    """Text is made when it is looked at, and only grows. B20, B22."""
    params = replace(HOT, max_tokens=24, **more)
    whole = solo(llama, prompt(30), params)
    watched, unwatched = (llama.submit(prompt(30), params) for _ in range(2))
    grown = 0
    while not (watched.done and unwatched.done):
        before = [choice.text for choice in watched.output.choices]
        llama.step()
        for old, new, end in zip(before, watched.output.choices, whole.choices, strict=True):
            assert new.text.startswith(old)
            assert end.text.startswith(new.text)
            grown += new.text != old
    assert grown > 3
    assert_same(watched.output, whole)
    assert_same(unwatched.output, whole)
    assert watched.output is watched.output


def test_a_refused_request_streams_one_error(llama: LLM) -> None:
    [event] = llama.stream({"prompt_token_ids": []}, HOT)
    assert event.finish_reason == "error"
    assert "empty" in (event.error or "")


# -- what nobody said -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = copied("llama", tmp_path_factory.mktemp("configured"))
    set_json(
        path / "generation_config.json",
        do_sample=True,
        temperature=3.0,
        top_k=30,
        top_p=0.8,
        min_p=0.01,
        repetition_penalty=1.3,
        max_new_tokens=11,
    )
    with LLM(str(path)) as llm:
        yield llm


CONFIGURED: dict[str, Any] = {
    "temperature": 3.0,
    "top_k": 30,
    "top_p": 0.8,
    "min_p": 0.01,
    "repetition_penalty": 1.3,
    "max_tokens": 11,
}


def test_settings_nobody_gave_come_from_the_generation_config(configured: LLM, llama: LLM) -> None:
    """Length and tokens are those of a request that says the same itself. B31."""
    silent = SamplingParams(seed=4, ignore_eos=True)
    output = solo(configured, prompt(20), silent)
    assert len(output.token_ids) == 11
    assert_same(output, solo(llama, prompt(20), replace(silent, **CONFIGURED)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0),
        ("top_k", 0),
        ("top_p", 0.2),
        ("min_p", 0.5),
        ("repetition_penalty", 3.0),
        ("max_tokens", 5),
    ],
)
def test_a_requests_own_setting_beats_the_generation_config(
    configured: LLM, llama: LLM, name: str, value: Any
) -> None:
    """Every one of them is seen to matter. B31."""
    own = SamplingParams(seed=4, ignore_eos=True, **{name: value})
    output = solo(configured, prompt(20), own)
    expected = SamplingParams(seed=4, ignore_eos=True, **{**CONFIGURED, name: value})
    assert_same(output, solo(llama, prompt(20), expected))
    silent = solo(configured, prompt(20), SamplingParams(seed=4, ignore_eos=True))
    assert output.token_ids != silent.token_ids


def test_without_any_settings_a_reply_is_greedy(llama: LLM) -> None:
    """The library's default temperature is zero. B31."""
    silent = solo(llama, prompt(20), SamplingParams(max_tokens=12, ignore_eos=True))
    assert silent.token_ids == solo(llama, prompt(20), greedy(12)).token_ids


def test_a_config_that_says_not_to_sample_is_greedy(llama: LLM, tmp_path: Path) -> None:
    """Whatever temperature it carries beside that. B31."""
    path = copied("llama", tmp_path)
    set_json(path / "generation_config.json", do_sample=False, temperature=3.0)
    silent = SamplingParams(max_tokens=12, ignore_eos=True)
    expected = solo(llama, prompt(20), greedy(12)).token_ids
    with LLM(str(path)) as llm:
        assert solo(llm, prompt(20), silent).token_ids == expected
    set_json(path / "generation_config.json", do_sample=True)
    with LLM(str(path)) as llm:
        assert solo(llm, prompt(20), silent).token_ids != expected


def test_a_config_that_samples_without_a_temperature_uses_one(llama: LLM, tmp_path: Path) -> None:
    """What the config's own library does. B31."""
    path = copied("llama", tmp_path)
    set_json(path / "generation_config.json", do_sample=True)
    silent = SamplingParams(max_tokens=12, ignore_eos=True, seed=3)
    with LLM(str(path)) as llm:
        assert_same(
            solo(llm, prompt(20), silent),
            solo(llama, prompt(20), replace(silent, temperature=1.0)),
        )
