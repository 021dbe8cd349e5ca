"""Rows that are held to a grammar or a budget, beside rows that are not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bushel import LLM, Output, SamplingParams
from bushel.engine.decode_batch import DecodeBatch, Step
from bushel.engine.drafts.batch_drafts import BatchDrafts
from bushel.text import grammar_compiler as grammars
from tests.depth import often
from tests.engine.constrained_requests import (
    PERSON,
    Pair,
    alone,
    shaped,
    talk,
    thinking,
    together,
    valid,
)
from tests.llm.request_builders import BOUND, difference

WILD = SamplingParams(max_tokens=80, temperature=1.5, logprobs=0)
# One for each way through the sampler, and for what changes logits on its way.
ROUTES = {
    "greedy": replace(WILD, temperature=0.0),
    "narrow": replace(WILD, top_k=20),
    "wide": WILD,
    "nucleus": replace(WILD, top_p=0.9),
    "ranked": replace(WILD, top_p=0.3),
    "least": replace(WILD, min_p=0.02),
    "penalised": replace(WILD, repetition_penalty=1.3, presence_penalty=0.5),
    "biased": replace(WILD, logit_bias={40: 5.0, 41: -5.0}),
    "long": replace(WILD, min_tokens=10),
}


@pytest.fixture(scope="module")
def _llm() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32") as llm:
        yield llm


@pytest.fixture
def llm(_llm: LLM) -> Iterator[LLM]:
    yield _llm
    _llm.check_integrity()
    assert _llm.status()["running"] == 0


def company() -> list[Pair]:
    """Guided rows of every route, with free ones between them."""
    pairs: list[Pair] = []
    for at, params in enumerate(ROUTES.values()):
        pairs.append((shaped(f"Person {at}?"), replace(params, seed=at)))
        pairs.append((talk(f"Tell me of {at}."), replace(params, seed=100 + at, max_tokens=20)))
    pairs.append((thinking("Why?", 6), replace(WILD, seed=7, max_tokens=24)))
    return pairs


@pytest.fixture(scope="module")
def apart(_llm: LLM) -> list[Output]:
    """What each of the company says alone."""
    return alone(_llm, company())


def test_a_row_says_the_same_alone_and_in_company(llm: LLM, apart: list[Output]) -> None:
    """Tokens and log-probabilities, of constrained rows and of free ones beside them."""
    pairs = company()
    for (_, params), one, other in zip(pairs, apart, together(llm, pairs), strict=True):
        assert one.error is None, params
        assert one.token_ids == other.token_ids, params
        for mine, theirs in zip(one.logprobs or (), other.logprobs or (), strict=True):
            assert abs(mine.logprob - theirs.logprob) < 1e-4


@pytest.mark.parametrize("route", often(ROUTES, "wide", "penalised"))
def test_every_sampler_stays_within_the_schema(llm: LLM, route: str) -> None:
    pairs = [(shaped(f"Who is {seed}?"), replace(ROUTES[route], seed=seed)) for seed in range(2)]
    for out in together(llm, pairs):
        valid(out)


def test_without_a_guide_such_replies_are_no_json(llm: LLM) -> None:
    """The control."""
    (out,) = llm.generate(talk("Who is 1?"), replace(WILD, seed=1))
    with pytest.raises((ValueError, AssertionError)):
        valid(out)


def test_logprobs_are_those_before_the_mask(llm: LLM) -> None:
    params = SamplingParams(max_tokens=4, temperature=0.0, logprobs=3)
    free, held = llm.generate([talk("Who?"), shaped("Who?")], params)
    assert free.logprobs
    assert held.logprobs
    assert [token for token, _ in free.logprobs[0].top] == [t for t, _ in held.logprobs[0].top]
    assert held.logprobs[0].token_id != free.logprobs[0].token_id


def test_a_complete_reply_ends_although_it_may_be_longer(llm: LLM) -> None:
    request = {**talk("Yes or no?"), "shape": {"choice": ["yes", "no"]}}
    (out,) = llm.generate(request, SamplingParams(max_tokens=50, temperature=2.0, seed=3))
    assert (out.text in ("yes", "no"), out.finish_reason) == (True, "stop")


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=50, min_tokens=40),
        SamplingParams(max_tokens=50, ignore_eos=True),
    ],
)
def test_what_cannot_end_fails_alone_and_says_why(llm: LLM, params: SamplingParams) -> None:
    request = {**talk("Yes or no?"), "shape": {"choice": ["yes", "no"]}}
    free = (talk("Hello"), SamplingParams(max_tokens=12, seed=1, temperature=1.0))
    held, other = together(llm, [(request, params), free])
    assert "neither go on nor end" in (held.error or "")
    assert other.token_ids == alone(llm, [free])[0].token_ids


def test_a_token_that_the_caller_ends_with_may_end_a_complete_reply(llm: LLM) -> None:
    (mark,) = llm._own_engine().model.tokenizer.encode("!", add_special_tokens=False)
    request = {**talk("Yes or no?"), "shape": {"choice": ["yes", "no"]}}
    params = SamplingParams(max_tokens=9, ignore_eos=True, stop_token_ids=[mark])
    (out,) = llm.generate(request, params)
    assert (out.text in ("yes", "no"), out.token_ids[-1]) == (True, mark)


def test_every_choice_of_a_request_is_held(llm: LLM) -> None:
    (out,) = llm.generate(shaped("Who?"), replace(WILD, n=4, seed=5))
    texts = {choice.text for choice in out.choices}
    assert len(texts) > 1
    for choice in out.choices:
        valid(replace(out, choices=[choice]))


def test_thoughts_beyond_their_budget_are_closed(llm: LLM) -> None:
    """The row goes on behind them, and has spent no more on them than it was given."""
    tokenizer = llm._own_engine().model.tokenizer
    (out,) = llm.generate(thinking("Why?", 6), replace(WILD, seed=11, max_tokens=30))
    closing = tokenizer.encode("\n</think>\n\n", add_special_tokens=False)
    assert out.token_ids[6 : 6 + len(closing)] == closing
    assert len(out.token_ids) > 6 + len(closing)


def test_thoughts_within_their_budget_are_left_alone(llm: LLM) -> None:
    """The control."""
    params = replace(WILD, seed=11, max_tokens=30)
    free, held = llm.generate([thinking("Why?", 6), thinking("Why?", 5000)], params)
    (never,) = llm.generate({**talk("Why?"), "thinking": {"enabled": True}}, params)
    assert held.token_ids == never.token_ids != free.token_ids


def test_an_answer_of_a_given_form_comes_behind_thoughts_of_a_budget(llm: LLM) -> None:
    request = {**shaped("Who?"), "thinking": {"enabled": True, "budget": 7}}
    for seed in range(3):
        (out,) = llm.generate(request, replace(WILD, seed=seed))
        assert 0 < len(out.reasoning) < 200
        valid(out)


def test_a_known_prompt_gives_the_same_guided_reply(llm: LLM) -> None:
    """Its state is restored from the cache. B33."""
    request, params = shaped("Someone who is known already?"), replace(WILD, seed=9)
    first, again = alone(llm, [(request, params), (request, params)])
    assert again.usage.cached_tokens > 0
    assert first.logprobs
    assert first.token_ids == again.token_ids
    assert difference(first.logprobs, again.logprobs) < BOUND


def test_an_aborted_row_leaves_the_others_as_they_are(llm: LLM, apart: list[Output]) -> None:
    pairs = company()[:6]
    expected = [out.token_ids for out in apart[:6]]
    handles = [llm.submit(*pair) for pair in pairs]
    for _ in range(6):
        llm.step()
    handles[2].abort()
    while not all(handle.done for handle in handles):
        llm.step()
        llm.check_integrity()
    found = [handle.output.token_ids for handle in handles]
    assert found[2] == expected[2][: len(found[2])] != expected[2]
    assert found[:2] + found[3:] == expected[:2] + expected[3:]


SOME = [(it, replace(params, max_tokens=22)) for it, params in (*company()[:4], company()[-1])]


@pytest.fixture(scope="module")
def undisturbed(_llm: LLM) -> list[list[int]]:
    return [out.token_ids for out in alone(_llm, SOME)]


@pytest.mark.parametrize("where", often(["forward", "tokens_for_masks", "choose", "read"], "read"))
def test_rows_that_start_again_after_a_fault_go_on_within_their_grammar(
    llm: LLM, undisturbed: list[list[int]], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Batched steps fail here and there in the replies.

    With "read", guides have taken tokens that the engine never got, and have to go back. B49.
    """
    monkeypatch.setattr(BatchDrafts, "may_propose", lambda *_, **__: False)  # steps alone
    owner = Step if where in ("tokens_for_masks", "read") else DecodeBatch
    original, calls = getattr(owner, where), iter(range(10**6))

    def planted(self: Step | DecodeBatch, *args: Any, **kwargs: Any) -> Any:
        if len(self.sequences) > 1 and next(calls) in (3, 8, 14):
            raise RuntimeError("planted")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, where, planted)
    assert [out.token_ids for out in together(llm, SOME)] == undisturbed
    assert next(calls) > 14


def test_a_grammar_that_becomes_too_complex_fails_alone(llm: LLM, apart: list[Output]) -> None:
    """It compiles, and grows with every letter beyond what a row may cost. B48."""
    many = '((("a"{1,1000}){1,1000}){1,1000}){1,1000}'
    hostile = {**talk("x"), "shape": {"grammar": f"start: {many}"}}
    pairs = [*company()[:4], (hostile, replace(WILD, seed=1, ignore_eos=True))]
    *others, bad = together(llm, pairs)
    assert "cannot be held" in (bad.error or "")
    assert [out.token_ids for out in others] == [out.token_ids for out in apart[:4]]


def test_a_grammar_that_does_not_compile_is_refused_alone(llm: LLM) -> None:
    bad, good = llm.generate([{**talk("x"), "shape": {"regex": "a(("}}, shaped("Who?")], WILD)
    assert "cannot be used" in (bad.error or "")
    valid(good)


def test_others_decode_while_a_grammar_is_compiled(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled in a thread of its own, and its row waits for it."""
    gate, seen = threading.Event(), list[int]()
    original = grammars.compiled

    def slow(*args: Any) -> Any:
        seen.append(threading.get_ident())
        assert gate.wait(60)
        return original(*args)

    monkeypatch.setattr(grammars, "compiled", slow)
    schema = {**PERSON, "properties": {**PERSON["properties"], "rare": {"const": 1}}}
    held = llm.submit(shaped("Who?", schema), WILD)
    free = llm.submit(talk("Hello"), SamplingParams(max_tokens=10))
    while not free.done:
        llm.step()
    assert not held.output.token_ids
    gate.set()
    while not held.done:
        llm.step()
    valid(held.output, schema)
    assert seen
    assert threading.get_ident() not in seen


def test_a_request_that_is_aborted_while_its_grammar_is_compiled_is_gone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, original = threading.Event(), grammars.compiled
    monkeypatch.setattr(grammars, "compiled", lambda *them: (gate.wait(60), original(*them))[1])
    held = llm.submit({**talk("x"), "shape": {"regex": "[a-f]{3}"}}, WILD)
    llm.step()
    held.abort()
    assert held.done
    assert llm.status()["waiting"] == 0
    gate.set()
