"""Every request decodes by its own settings, whoever shares its batch."""

from dataclasses import replace
from functools import cache
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from bushel import LLM, Output, SamplingParams, TokenLogprob
from tests.depth import often, one_in
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.families.images import LARGE, picture

from .request_builders import (
    BOUND,
    assert_same,
    assert_same_choice,
    chat,
    difference,
    forcing,
    greedy,
    hot,
    ids,
    image,
    prompt,
    solo,
    text,
)

FAMILIES = often(("llama_sliding", "qwen3_5_vl"), "qwen3_5_vl")
CHUNKS = (8, 512)  # in pieces, and whole
HOT = hot()


def best(output: Output, at: int = 0) -> list[tuple[int, float]]:
    """What the model itself thought of the token at this place, best first."""
    assert output.logprobs is not None
    return list(output.logprobs[at].top)


# -- company ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_a_greedy_and_a_hot_request_share_a_batch_unchanged(name: str) -> None:
    asked, params = [prompt(40, seed=1), prompt(25, seed=2)], [greedy(16), HOT]
    with LLM(str(checkpoint_dir(name))) as llm:
        alone = [solo(llm, *pair) for pair in zip(asked, params, strict=True)]
        together = llm.generate(asked, params)
        assert llm.status()["max_decode_batch"] == 2
    for one, two in zip(together, alone, strict=True):
        assert_same(one, two)
    with LLM(str(checkpoint_dir(name))) as llm:
        cold = solo(llm, asked[1], greedy(16))
    assert cold.token_ids != alone[1].token_ids


def arrivals(llm: LLM, order: list[int], batch: list[Any], pause: int) -> list[Output]:
    """Submit in this order, some steps apart, and run until all are done."""
    handles = {}
    for at in order:
        handles[at] = llm.submit(*batch[at])
        for _ in range(pause):
            llm.step()
    while not all(handle.done for handle in handles.values()):
        llm.step()
    return [handles[at].output for at in range(len(batch))]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seeded_reply_does_not_depend_on_company_order_or_chunks(name: str) -> None:
    batch = [
        (prompt(33, seed=4), HOT),
        (prompt(70, seed=5), greedy(20)),
        (prompt(9, seed=6), SamplingParams(max_tokens=9, temperature=1.0, seed=8)),
        (prompt(50, seed=4), replace(HOT, seed=9)),
    ]
    seeded = []
    for chunk in CHUNKS:
        with LLM(str(checkpoint_dir(name)), prefill_chunk=chunk) as llm:
            seeded.append(solo(llm, *batch[0]))
            for order, pause in ([0, 1, 2, 3], 0), ([3, 2, 1, 0], 0), ([1, 3, 0, 2], 3):
                seeded.append(arrivals(llm, order, batch, pause)[0])
            assert llm.status()["max_decode_batch"] == 4
    with LLM(str(checkpoint_dir(name)), max_batch=2) as llm:
        seeded.append(arrivals(llm, [1, 2, 0, 3], batch, 1)[0])
        assert llm.status()["max_decode_batch"] == 2
    for output in seeded[1:]:
        assert_same(output, seeded[0])


def test_other_seeds_give_other_replies(llama: LLM) -> None:
    replies = [solo(llama, prompt(33), replace(HOT, seed=seed)).token_ids for seed in range(4)]
    assert len({tuple(reply) for reply in replies}) == 4


def test_a_request_without_a_seed_is_not_repeated(llama: LLM) -> None:
    replies = [solo(llama, prompt(33), replace(HOT, seed=None)).token_ids for _ in range(2)]
    assert replies[0] != replies[1]


def test_the_global_random_state_is_not_touched(llama: LLM) -> None:
    mx.random.seed(3)
    states: Any = mx.random.state
    before = [np.array(state) for state in states]
    first = solo(llama, prompt(33), HOT)
    after = [np.array(state) for state in states]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    mx.random.seed(4)
    assert_same(solo(llama, prompt(33), HOT), first)


MIXED: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0, "logprobs": 0},
    "hot": {"temperature": 5.0, "seed": 1, "logprobs": 3},
    "nucleus": {"temperature": 1.5, "top_p": 0.7, "seed": 2, "stop": ["e", "zz"]},
    "narrow": {"temperature": 2.0, "top_k": 20, "min_p": 0.05, "seed": 3, "min_tokens": 4},
    "wide": {"temperature": 2.0, "top_k": 200, "seed": 4, "logprobs": 20},
    "penalised": {
        "temperature": 0.0,
        "repetition_penalty": 1.4,
        "presence_penalty": 0.7,
        "frequency_penalty": 0.4,
        "logprobs": 2,
    },
    "biased": {"temperature": 0.0, "logit_bias": {300: 6.0, 301: 6.0}, "logprobs": 2},
    "stopped": {"temperature": 1.0, "seed": 5, "stop_token_ids": list(range(60, 160))},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_eight_rows_with_eight_settings_share_one_batch(name: str) -> None:
    asked = [prompt(12 + 5 * at, seed=10 + at) for at in range(8)]
    params = [SamplingParams(max_tokens=20, **settings) for settings in MIXED.values()]
    with LLM(str(checkpoint_dir(name))) as llm:
        together = llm.generate(asked, params)
        assert llm.status()["max_decode_batch"] == 8
    with LLM(str(checkpoint_dir(name))) as llm:
        alone = [solo(llm, *pair) for pair in zip(asked, params, strict=True)]
        assert llm.status()["max_decode_batch"] == 1
        plain = [solo(llm, request, greedy(20)) for request in asked]
    for one, two in zip(together, alone, strict=True):
        assert_same(one, two)
    # Settings that changed nothing would be compared in vain.
    changed = [two.token_ids != three.token_ids for two, three in zip(alone, plain, strict=True)]
    assert changed == [False] + [True] * 7
    assert alone[-1].finish_reason == "stop"


# -- several choices --------------------------------------------------------------------------


def test_choices_differ_and_the_first_is_the_single_one(llama: LLM) -> None:
    single = solo(llama, prompt(20), HOT)
    several = solo(llama, prompt(20), replace(HOT, n=4))
    assert len(several.choices) == 4
    assert_same_choice(several.choices[0], single.choices[0])
    assert len({tuple(choice.token_ids) for choice in several.choices}) == 4
    assert several.usage.completion_tokens == 4 * 16
    assert several.usage.prompt_tokens == 20
    assert_same(several, solo(llama, prompt(20), replace(HOT, n=4)))


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_choices_are_all_equal(name: str) -> None:
    """They start from copies of one state, which decoding must not write into."""
    with LLM(str(checkpoint_dir(name))) as llm:
        single = solo(llm, prompt(40), greedy())
        several = solo(llm, prompt(40), greedy(n=3))
        for choice in several.choices:
            assert_same_choice(choice, single.choices[0])
        asked = [prompt(40), prompt(15)]
        crowd = llm.generate(asked, [replace(HOT, n=3), greedy(20)])
        assert_same(crowd[0], solo(llm, asked[0], replace(HOT, n=3)))
        assert_same(crowd[1], solo(llm, asked[1], greedy(20)))


@pytest.mark.long
def test_more_choices_than_rows_wait_for_their_turn(llama: LLM) -> None:
    expected = solo(llama, prompt(20), replace(HOT, n=7))
    with LLM(str(checkpoint_dir("llama")), max_batch=3) as llm:
        assert_same(solo(llm, prompt(20), replace(HOT, n=7)), expected)
        assert llm.status()["max_decode_batch"] == 3


def test_choices_of_a_one_token_prompt(llama: LLM) -> None:
    several = solo(llama, prompt(1), replace(HOT, n=3))
    assert_same_choice(several.choices[0], solo(llama, prompt(1), HOT).choices[0])
    assert len({tuple(choice.token_ids) for choice in several.choices}) == 3


# -- log-probabilities ------------------------------------------------------------------------


def test_logprobs_are_the_models_own_distribution(llama: LLM) -> None:
    output = solo(llama, prompt(20), replace(HOT, logprobs=VOCAB))
    assert output.logprobs is not None
    assert [found.token_id for found in output.logprobs] == output.token_ids
    for found in output.logprobs:
        values = [value for _, value in found.top]
        assert {token for token, _ in found.top} == set(range(VOCAB))
        assert values == sorted(values, reverse=True)
        assert abs(sum(np.exp(values)) - 1) < 1e-5
        assert abs(dict(found.top)[found.token_id] - found.logprob) < 1e-6


def test_as_many_logprobs_come_as_were_asked_for(llama: LLM) -> None:
    assert solo(llama, prompt(20), greedy(4, logprobs=None)).logprobs is None
    chosen = solo(llama, prompt(20), greedy(4, logprobs=0)).logprobs or []
    three = solo(llama, prompt(20), greedy(4, logprobs=3)).logprobs or []
    assert [found.top for found in chosen] == [()] * 4
    assert [len(found.top) for found in three] == [3] * 4
    assert [found.logprob for found in chosen] == [found.logprob for found in three]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 5.0, "seed": 3},
        {"temperature": 1.0, "seed": 3, "top_k": 2},
        {"temperature": 1.0, "seed": 3, "top_p": 0.1},
        {"logit_bias": {7: 50.0}},
        {"repetition_penalty": 2.0, "presence_penalty": 3.0, "frequency_penalty": 3.0},
        {"min_tokens": 3},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_logprobs_ignore_how_tokens_are_chosen(llama: LLM, settings: dict[str, Any]) -> None:
    """Raw log-softmax, checked against the library's model on the very same tokens."""
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 6, "logprobs": VOCAB, **settings})
    output = solo(llama, prompt(20), params)
    raw = library_logprobs("llama", [*ids(20), *output.token_ids])
    for at, found in enumerate(output.logprobs or []):
        expected = raw[20 - 1 + at]
        assert abs(expected[found.token_id] - found.logprob) < BOUND
        assert max(abs(expected[token] - value) for token, value in found.top) < BOUND


@cache
def library_model(name: str) -> Any:
    return mlx_lm.load(str(checkpoint_dir(name)))[0]


def library_logprobs(name: str, tokens: list[int]) -> np.ndarray:
    """[n, vocab]: row i is what the library's model says about token i + 1."""
    model = library_model(name)
    logits = model(mx.array([tokens]))[0].astype(mx.float32)
    return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


@pytest.mark.parametrize("name", often(["llama", "llama_sliding", "qwen3_5"], "qwen3_5"))
def test_prompt_logprobs_are_those_of_one_pass_over_the_prompt(name: str) -> None:
    length = 70
    raw = library_logprobs(name, ids(length))
    for chunk in CHUNKS:
        with LLM(str(checkpoint_dir(name)), prefill_chunk=chunk) as llm:
            found = solo(llm, prompt(length), greedy(2, prompt_logprobs=3)).prompt_logprobs
        assert found is not None
        assert len(found) == length
        assert found[0] is None
        for at, (token, it) in enumerate(zip(ids(length)[1:], found[1:], strict=True)):
            assert isinstance(it, TokenLogprob)
            assert it.token_id == token
            assert abs(it.logprob - raw[at, token]) < BOUND
            expected = np.sort(raw[at])[::-1][:3]
            assert np.abs(expected - [value for _, value in it.top]).max() < BOUND


def test_prompt_logprobs_of_an_image_prompt_do_not_depend_on_chunks() -> None:
    asked = chat(text("What is"), image(picture(LARGE)), text("and where?"))
    found = []
    for chunk in CHUNKS:
        with LLM(str(checkpoint_dir("qwen3_5_vl")), prefill_chunk=chunk) as llm:
            found.append(solo(llm, asked, greedy(2, prompt_logprobs=2)))
    for output in found:
        assert output.prompt_logprobs is not None
        assert len(output.prompt_logprobs) == output.usage.prompt_tokens
        assert_same(output, found[0])


def test_every_choice_has_the_prompt_logprobs(llama: LLM) -> None:
    several = solo(llama, prompt(20), replace(HOT, n=2, prompt_logprobs=1))
    one, two = (choice.prompt_logprobs for choice in several.choices)
    assert one is not None
    assert len(one) == 20
    assert difference(one, two) == 0


def test_a_prompt_of_one_token_has_one_prompt_logprob(llama: LLM) -> None:
    assert solo(llama, prompt(1), greedy(2, prompt_logprobs=1)).prompt_logprobs == [None]


# -- which tokens may be drawn ----------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    one_in(
        3, [{"top_k": 1}, {"top_p": 1e-6}, {"top_p": 0.0}, {"min_p": 1.0}, {"temperature": 1e-3}]
    ),
    ids=lambda settings: ",".join(settings),
)
def test_the_narrowest_settings_are_greedy(llama: LLM, settings: dict[str, Any]) -> None:
    narrow = SamplingParams(**{"max_tokens": 12, "temperature": 5.0, "seed": 1, **settings})
    expected = solo(llama, prompt(20), greedy(12)).token_ids
    assert solo(llama, prompt(20), replace(narrow, ignore_eos=True)).token_ids == expected


@pytest.mark.parametrize("top_k", often([5, 63, 64, 65, 300], 64, 300))
def test_top_k_draws_from_the_k_best(llama: LLM, top_k: int) -> None:
    params = replace(HOT, max_tokens=60, top_k=top_k, logprobs=VOCAB)
    ranks = [
        [token for token, _ in found.top].index(found.token_id)
        for found in solo(llama, prompt(20), params).logprobs or []
    ]
    assert max(ranks) < top_k
    assert max(ranks) >= top_k // 2


@pytest.mark.parametrize("top_k", one_in(2, [None, 40]))
@pytest.mark.parametrize("top_p", [0.3, 0.9])
def test_top_p_draws_from_the_smallest_set_that_reaches_it(
    llama: LLM, top_p: float, top_k: int | None
) -> None:
    """The mass before the drawn token is below top_p, at the request's temperature."""
    params = replace(HOT, max_tokens=60, temperature=2.0, top_p=top_p, top_k=top_k, logprobs=VOCAB)
    before = []
    for found in solo(llama, prompt(20), params).logprobs or []:
        tokens = [token for token, _ in found.top][:top_k]
        weights = np.exp(np.array([value for _, value in found.top][:top_k]) / 2.0)
        mass = np.cumsum(weights / weights.sum())
        place = tokens.index(found.token_id)
        before.append(mass[place - 1] if place else 0.0)
    assert max(before) < top_p + 1e-3
    assert max(before) > top_p / 2


def test_min_p_draws_nothing_far_below_the_best(llama: LLM) -> None:
    params = replace(HOT, max_tokens=60, temperature=2.0, min_p=0.2, logprobs=1)
    gaps = [
        (found.logprob - found.top[0][1]) / 2.0
        for found in solo(llama, prompt(20), params).logprobs or []
    ]
    assert min(gaps) >= np.log(0.2) - 1e-4
    assert min(gaps) < np.log(0.2) / 2


def test_draws_follow_the_distribution(llama: LLM) -> None:
    """Fixed seeds; each of the four best tokens within five standard deviations of its share."""
    params = SamplingParams(max_tokens=1, temperature=1.0, top_k=4, seed=0, n=128, logprobs=4)
    drawn: list[int] = []
    for seed in range(4):
        output = solo(llama, prompt(20), replace(params, seed=seed))
        drawn += [choice.token_ids[0] for choice in output.choices]
    shares = np.exp([value for _, value in best(output)])
    shares /= shares.sum()
    for (token, _), share in zip(best(output), shares, strict=True):
        deviation = np.sqrt(share * (1 - share) / len(drawn))
        assert abs(drawn.count(token) / len(drawn) - share) < 5 * deviation


# -- bias and penalties -----------------------------------------------------------------------


def test_a_large_bias_forces_a_token_and_a_small_one_bans_it(llama: LLM) -> None:
    forced = solo(llama, prompt(20), greedy(5, logit_bias=forcing(77)))
    assert forced.token_ids == [77] * 5
    free = solo(llama, prompt(20), greedy(12)).token_ids
    banned = solo(llama, prompt(20), greedy(12, logit_bias={free[3]: -1000.0})).token_ids
    assert banned[:3] == free[:3]
    assert free[3] not in banned


def test_bias_keys_may_be_the_strings_json_makes_of_them(llama: LLM) -> None:
    bias: Any = {"77": 1000.0}
    assert solo(llama, prompt(20), greedy(3, logit_bias=bias)).token_ids == [77] * 3


def reference(
    name: str, tokens: list[int], count: int, repetition: float, presence: float, frequency: float
) -> list[int]:
    """Step by step: repetition over prompt and reply, presence and frequency over the reply."""
    model = library_model(name)
    caches, inputs = make_prompt_cache(model), tokens
    reply: list[int] = []
    for _ in range(count):
        logits = np.array(model(mx.array([inputs]), cache=caches)[0, -1], dtype=np.float64)
        for token in {*tokens, *reply}:
            scaled = logits[token] / repetition, logits[token] * repetition
            logits[token] = scaled[0] if logits[token] > 0 else scaled[1]
        for token in set(reply):
            logits[token] -= presence + frequency * reply.count(token)
        inputs = [int(logits.argmax())]
        reply += inputs
    return reply


PENALTIES = [(1.5, 0.0, 0.0), (0.6, 0.0, 0.0), (1.0, 2.0, 0.0), (1.0, 0.0, 1.5), (1.3, 0.5, -0.7)]


@pytest.mark.parametrize("name", often(["llama", "qwen3_5"], "qwen3_5"))
def test_penalties_do_what_their_definition_says(name: str) -> None:
    """All of them in one batch, beside a row that has none."""
    expected = [reference(name, ids(20), 24, *values) for values in PENALTIES]
    assert reference(name, ids(20), 24, 1.0, 0.0, 0.0) not in expected
    keys = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    settings = [greedy(24, **dict(zip(keys, values, strict=True))) for values in PENALTIES]
    asked = [prompt(30, seed=9), *[prompt(20)] * len(settings)]
    with LLM(str(checkpoint_dir(name))) as llm:
        plain, *outputs = llm.generate(asked, [greedy(30), *settings])
        assert llm.status()["max_decode_batch"] == len(asked)
        assert [output.token_ids for output in outputs] == expected
        assert plain.token_ids == solo(llm, asked[0], greedy(30)).token_ids
