"""Samplers of other servers, and texts that a request shapes, as a script asks for them."""

from typing import Any

import pytest

from bushel import LLM, SamplingParams

from .request_builders import assert_same, chat, greedy, hot, prompt, solo

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "typical_p": {"typical_p": 0.3},
    "top_n_sigma": {"top_n_sigma": 0.5},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.001, "top_k": 50},
    "dry": {"dry_multiplier": 5.0, "dry_allowed_length": 1},
    "dry, greedy": {"dry_multiplier": 5.0, "temperature": 0.0},
    "window": {"repetition_penalty": 3.0, "repeat_last_n": 6, "temperature": 0.0},
    "all": {
        "typical_p": 0.9,
        "top_n_sigma": 2.0,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.01,
        "dry_multiplier": 1.0,
        "repetition_penalty": 1.2,
        "repeat_last_n": 16,
        "bad_words": ["a b", "c"],
    },
}


def test_rows_of_every_sampler_share_a_batch_unchanged(llama: LLM) -> None:
    """Tokens and log-probabilities of each are what the request gets alone; so are seeded ones."""
    asked = [prompt(20 + at, seed=at) for at in range(len(SETTINGS))]
    params = [hot(24, **said) for said in SETTINGS.values()]
    alone = [solo(llama, *pair) for pair in zip(asked, params, strict=True)]
    together = llama.generate(asked, params)
    for one, two in zip(together, alone, strict=True):
        assert_same(one, two)


@pytest.mark.long
def test_each_sampler_changes_the_reply(llama: LLM) -> None:
    """A control of the comparison above: none of them was ignored."""
    few = {"allowed_token_ids": [*range(60, 90)]}  # so that some are said again
    for name, said in SETTINGS.items():
        temperature = said.get("temperature", 5.0)
        plain = solo(llama, prompt(20), hot(24, **few, temperature=temperature)).token_ids
        changed = solo(llama, prompt(20), hot(24, **few, **said)).token_ids != plain
        assert changed == (name != "plain"), name


def test_only_allowed_tokens_are_chosen(llama: LLM) -> None:
    few = [60, 61, 62]
    hotly = solo(llama, prompt(20), hot(24, allowed_token_ids=few))
    assert set(hotly.token_ids) == set(few)
    assert set(solo(llama, prompt(20), greedy(8, allowed_token_ids=few)).token_ids) <= set(few)


def test_breakers_that_no_token_tells_of_are_refused_by_name(llama: LLM) -> None:
    [output] = llama.generate(
        [prompt(9)], {"dry_multiplier": 0.8, "dry_sequence_breakers": ["\n", "###"]}
    )
    assert output.error is not None
    assert output.error.startswith("dry_sequence_breakers[1] must be one ASCII character")
    off = SamplingParams(dry_sequence_breakers=["###"], max_tokens=2)
    assert solo(llama, prompt(9), off).finish_reason is not None


@pytest.fixture(scope="module")
def tiny() -> Any:
    with LLM("bushel:tiny") as llm:
        yield llm


SUM = chat("What is 3 + 4?")


def test_the_stop_is_part_of_the_text_where_it_is_wanted(tiny: LLM) -> None:
    """A string, a token that ends the reply, and the model's own end, which is a special token."""

    def text(**said: Any) -> str:
        return solo(tiny, SUM, SamplingParams(temperature=0.0, **said)).text

    whole = text()
    assert (whole, text(stop="=")) == ("3 + 4 = 7", "3 + 4 ")
    assert text(stop="=", include_stop_str_in_output=True) == "3 + 4 ="
    assert text(include_stop_str_in_output=True) == whole
    both = {"include_stop_str_in_output": True, "skip_special_tokens": False}
    assert text(**both) == f"{whole}<|im_end|>"
    assert text(skip_special_tokens=False) == whole


def test_special_tokens_can_be_text(tiny: LLM) -> None:
    """And a stop can be met in them."""
    end = tiny.tokenizer.convert_tokens_to_ids("<|im_end|>")
    forced: dict[str, Any] = {"ignore_eos": True, "max_tokens": 3, "allowed_token_ids": [end]}
    assert solo(tiny, SUM, SamplingParams(**forced)).text == ""
    shown = SamplingParams(**forced, skip_special_tokens=False)
    assert solo(tiny, SUM, shown).text == "<|im_end|>" * 3
    stopped = SamplingParams(**forced, skip_special_tokens=False, stop="end|><|")
    assert solo(tiny, SUM, stopped).text == "<|im_"


@pytest.mark.parametrize(("word", "kept"), [("7", "3 + 4 = "), ("+ 4", "3 +")])
def test_a_bad_word_is_not_said(tiny: LLM, word: str, kept: str) -> None:
    """Neither of one token nor of several, each of which may come by itself."""
    text = solo(tiny, SUM, SamplingParams(temperature=0.0, bad_words=[word], max_tokens=12)).text
    assert text.startswith(kept)
    assert not text.startswith("3 + 4 = 7")
