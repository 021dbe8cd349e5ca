"""What a request may say about its tokens, and what is done where it says nothing."""

import math
from typing import Any

import pytest

from bushel.core import Decoding, GenerationDefaults, RequestError, SamplingParams, params
from bushel.core.params import MAX_STOPS, choices, resolve

VOCAB = 1000
MAX_CHOICES = int(params.BOUNDS["n"].high)
ENDS = frozenset({2, 3})


def resolved(defaults: GenerationDefaults | None = None, **said: Any) -> Decoding:
    configured = defaults or GenerationDefaults()
    return resolve(SamplingParams(**said), configured, vocab=VOCAB, end_ids=ENDS)


# -- who is asked first --------------------------------------------------------------------

# field: what the request says, what the generation config says, what the library does
PRECEDENCE: dict[str, tuple[Any, Any, Any]] = {
    "temperature": (0.5, 0.7, 0.0),
    "top_p": (0.9, 0.8, 1.0),
    "top_k": (5, 20, 0),
    "min_p": (0.1, 0.05, 0.0),
    "repetition_penalty": (1.2, 1.1, 1.0),
    "max_tokens": (10, 99, 256),
}


@pytest.mark.parametrize("name", PRECEDENCE)
def test_the_request_comes_before_the_generation_config_and_that_before_the_default(
    name: str,
) -> None:
    """Each setting is the first of the three that is given. B31."""
    said, configured, fallback = PRECEDENCE[name]
    config = GenerationDefaults(**{name: configured})
    assert getattr(resolved(config, **{name: said}), name) == said
    assert getattr(resolved(config), name) == configured
    assert getattr(resolved(), name) == fallback


@pytest.mark.parametrize("name", ["temperature", "top_k", "min_p", "top_p"])
def test_a_zero_in_the_request_is_an_answer_and_not_silence(name: str) -> None:
    """A setting of 0 counts, whatever the model's config says. B31."""
    config = GenerationDefaults(**{name: PRECEDENCE[name][1]})
    assert getattr(resolved(config, **{name: 0}), name) == 0


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({}, 0.0),
        ({"do_sample": False, "temperature": 0.7}, 0.0),
        ({"do_sample": True}, 1.0),
        ({"do_sample": True, "temperature": 0.7}, 0.7),
        ({"temperature": 0.7}, 0.7),
        ({"temperature": "hot"}, 0.0),
        ({"temperature": True}, 0.0),
    ],
)
def test_the_generation_config_decides_whether_a_model_is_greedy(
    config: dict[str, object], temperature: float
) -> None:
    """Without a word from the request, `do_sample` and `temperature` of the model count. B31."""
    assert resolved(GenerationDefaults.from_config(config)).temperature == temperature


def test_the_generation_config_is_read_field_by_field() -> None:
    """Every setting that a model's config names is used. B31."""
    config = {"top_p": 0.8, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}
    read = resolved(GenerationDefaults.from_config({**config, "max_new_tokens": 99}))
    assert (read.top_p, read.top_k, read.min_p, read.repetition_penalty) == (0.8, 20, 0.05, 1.1)
    assert read.max_tokens == 99


# -- bounds --------------------------------------------------------------------------------

# field: the values at its bounds, and values just outside of them
BOUNDS: dict[str, tuple[list[Any], list[Any]]] = {
    "max_tokens": ([1, 2**31], [0, -1, 2**31 + 1]),
    "temperature": ([0, 0.0, 1, 100], [-0.001, 100.1]),
    "top_p": ([0, 1, 1.0], [-0.001, 1.001]),
    "top_k": ([-1, 0, 1, 2**31], [-2, 2**31 + 1]),
    "min_p": ([0, 1], [-0.001, 1.001]),
    "seed": ([0, -(2**63), 2**64 - 1], [-(2**63) - 1, 2**64]),
    "typical_p": ([0, 1], [-0.001, 1.001]),
    "top_n_sigma": ([-1, 0, 100], [-1.1, 100.1]),
    "xtc_probability": ([0, 1], [-0.001, 1.001]),
    "xtc_threshold": ([0, 1], [-0.001, 1.001]),
    "dry_multiplier": ([0, 100], [-0.001, 100.1]),
    "dry_base": ([1, 100], [0.9, 100.1]),
    "dry_allowed_length": ([0, 128], [-1, 129]),
    "dry_penalty_last_n": ([-1, 0, 2**31], [-2, 2**31 + 1]),
    "dry_sequence_breakers": ([[], ["a"] * 64], ["a", [""], ["a"] * 65, ["a" * 257]]),
    "repetition_penalty": ([0.001, 1000], [0, -1.0, 1000.1]),
    "repeat_last_n": ([-1, 0, 2**31], [-2, 2**31 + 1]),
    "presence_penalty": ([-100, 100], [-100.1, 100.1]),
    "frequency_penalty": ([-100, 100], [-100.1, 100.1]),
    "min_tokens": ([0, 2**31], [-1, 2**31 + 1]),
    "logprobs": ([0, VOCAB], [-1, VOCAB + 1]),
    "prompt_logprobs": ([0, VOCAB], [-1, VOCAB + 1]),
    "logit_bias": ([{0: 1.0, VOCAB - 1: -1.0}, {}], [{VOCAB: 1.0}, {-1: 1.0}, {5: 1e7}]),
    "stop_token_ids": ([[0, VOCAB - 1], []], [[VOCAB], [-1]]),
    "allowed_token_ids": ([[0, VOCAB - 1]], [[VOCAB], [-1], []]),
    "bad_words": ([[], ["a"] * 256, ["a" * 256]], ["a", [""], ["a"] * 257, ["a" * 257]]),
    "include_stop_str_in_output": ([True, False], [1, "yes"]),
    "skip_special_tokens": ([True, False], [0, "no"]),
    "speculate": ([True, False], [0, "no", None]),
    "stop": (["a", ["a", "b"], [], ["a"] * MAX_STOPS], ["", ["a", ""], ["a"] * (MAX_STOPS + 1)]),
}
WHOLE = (
    "max_tokens",
    "top_k",
    "seed",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "repeat_last_n",
    "dry_allowed_length",
    "dry_penalty_last_n",
)
REAL = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, True, "1", "hot", [1]]
# `int()` is applied to these before anything is checked.


def refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        resolved(**{name: value})
    assert caught.value.param == name
    assert str(caught.value).startswith(name)


@pytest.mark.parametrize("name", BOUNDS)
def test_values_at_the_bounds_are_accepted(name: str) -> None:
    for value in BOUNDS[name][0]:
        resolved(**{name: value})


@pytest.mark.parametrize("name", BOUNDS)
def test_values_outside_the_bounds_are_refused_by_name(name: str) -> None:
    for value in BOUNDS[name][1]:
        refused(name, value)


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize("name", [*WHOLE, *REAL])
def test_what_is_not_a_number_is_refused_by_name(name: str, value: Any) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", WHOLE)
def test_fractions_of_tokens_are_refused_by_name(name: str) -> None:
    refused(name, 2.5)


@pytest.mark.parametrize("name", REAL)
def test_integers_beyond_every_float_are_refused_by_name(name: str) -> None:
    """JSON has them."""
    refused(name, 10**400)


def test_lists_of_anything_else_are_refused_by_name() -> None:
    wrong: dict[str, list[Any]] = {
        "stop_token_ids": [[1.5], [True], ["1"], [None]],
        "stop": [[1], ["a", None]],
        "logit_bias": [{5: value} for value in (math.nan, math.inf, True, "1", None)],
    }
    for name, values in wrong.items():
        for value in values:
            refused(name, value)


@pytest.mark.parametrize("key", ["abc", "", "1.5", None, 1.5, True, " 1_0 "], ids=repr)
def test_bias_on_what_is_no_token_id_is_refused_by_name(key: Any) -> None:
    refused("logit_bias", {key: 1.0})


@pytest.mark.parametrize(
    ("name", "value"), [("stop", 5), ("stop_token_ids", 5), ("logit_bias", [1]), ("logit_bias", 5)]
)
def test_something_else_than_a_list_or_an_object_is_refused_by_name(name: str, value: Any) -> None:
    refused(name, value)


def test_control_a_good_request_is_not_refused() -> None:
    with pytest.raises(pytest.fail.Exception):
        refused("top_p", 0.5)


@pytest.mark.parametrize("value", [0, -1, MAX_CHOICES + 1, 1.5, True, "2"])
def test_a_wrong_number_of_choices_is_refused_by_name(value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        choices(SamplingParams(n=value))
    assert caught.value.param == "n"
    assert choices(SamplingParams(n=MAX_CHOICES)) == MAX_CHOICES


# -- what becomes of it --------------------------------------------------------------------


def test_bias_keys_may_be_strings_as_json_has_them() -> None:
    bias: Any = {"123": 2, 7: -1.5}
    assert resolved(logit_bias=bias).logit_bias == ((123, 2.0), (7, -1.5))


def test_end_tokens_are_the_models_and_the_requests() -> None:
    """Both end a reply; with `ignore_eos` only the request's do. B30."""
    assert resolved().end_ids == ENDS
    assert resolved(stop_token_ids=[9]).end_ids == ENDS | {9}
    assert resolved(ignore_eos=True).end_ids == frozenset()
    assert resolved(ignore_eos=True, stop_token_ids=[9]).end_ids == {9}


def test_end_tokens_are_held_down_only_where_min_tokens_asks_for_it() -> None:
    assert resolved().banned_early == frozenset()
    assert resolved(min_tokens=3, stop_token_ids=[9]).banned_early == ENDS | {9}


def test_one_stop_string_is_a_list_of_one() -> None:
    """`stop` may be a string, a list or nothing. B22."""
    assert resolved(stop="END").stops == ("END",)
    assert resolved(stop=["a", "b"]).stops == ("a", "b")
    assert resolved().stops == ()


def test_unseeded_requests_differ_and_seeded_ones_do_not() -> None:
    assert resolved().seed != resolved().seed
    assert resolved(seed=5).seed == 5


def test_minus_one_turns_top_k_off() -> None:
    assert resolved(top_k=-1).top_k == 0


def test_a_row_that_asks_for_no_sampler_needs_none() -> None:
    """Nor one that turns them off by the values that llama.cpp's clients send for that."""
    off = {
        "typical_p": 1.0,
        "top_n_sigma": -1,
        "xtc_probability": 0.0,
        "dry_multiplier": 0.8,
        "dry_penalty_last_n": 0,
        "repetition_penalty": 1.5,
        "repeat_last_n": 0,
    }
    for row in (resolved(), resolved(**off)):
        assert not any((row.shaped, row.remembers, row.reworked))


def test_names_of_other_servers_mean_the_same() -> None:
    """A script may say it as llama.cpp and mlx-lm do."""
    given = params.params_of({"repeat_penalty": 1.2, "repetition_context_size": 20})
    assert given == SamplingParams(repetition_penalty=1.2, repeat_last_n=20)


def test_something_is_left_to_choose() -> None:
    """What no reply could begin with is refused by name."""
    refused("allowed_token_ids", [VOCAB])
    with pytest.raises(RequestError, match="min_tokens") as caught:
        resolved(allowed_token_ids=[2, 3], min_tokens=1)
    assert caught.value.param == "allowed_token_ids"
    row = resolved(allowed_token_ids=[5, 6])
    rules = params.TokenRules(banned=((5,), (6,), (7, 8)))
    with pytest.raises(RequestError) as caught:
        params.with_token_rules(row, rules)
    assert caught.value.param == "bad_words"


@pytest.mark.parametrize(
    "said", [{"repetition_penalty": 1.1}, {"presence_penalty": 0.5}, {"frequency_penalty": -0.5}]
)
def test_penalties_are_noticed(said: dict[str, Any]) -> None:
    assert resolved(**said).penalised
    assert not resolved().penalised
