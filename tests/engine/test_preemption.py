"""A reply that has to make way goes on as if nothing had happened (B63, B67)."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bushel import LLM, Output, SamplingParams
from bushel.cache.batch_state import BatchState, Snapshot
from bushel.core import Prepared, Request
from bushel.engine.build import rows_of
from bushel.engine.engine import Engine
from bushel.engine.plan import Plan
from bushel.engine.sampling.sampler import Sampled
from tests.depth import often, rarely
from tests.engine.constrained_requests import Pair, shaped, talk, thinking, together
from tests.engine.mixed_requests import innocent
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, greedy, hot, prompt

EVERY = 3  # steps between two rows that make way
# Keys and values, latent ones, windows, recurrent layers beside attention, chunked attention.
FAMILIES = ("llama", "deepseek_v3", "gemma3_text", "qwen3_5", "llama4")
SETTINGS: list[Pair] = [
    (prompt(5, 1), greedy(20)),
    (prompt(70, 2), hot(24)),
    (prompt(33, 3), hot(24, n=3, top_p=0.9, temperature=1.0)),
    (prompt(1, 4), greedy(16, repetition_penalty=1.3, frequency_penalty=0.4)),
    (prompt(12, 5), greedy(18, prompt_logprobs=1, min_tokens=9, stop="zq")),
]


def making_way(monkeypatch: pytest.MonkeyPatch, *, drop: bool) -> list[int]:
    """Every few steps one of the running rows yields its slot; returns which, as they do."""
    decide, steps, yielded = Engine.decide, itertools.count(), list[int]()

    def plan(engine: Engine) -> Plan:
        found, rows = decide(engine), [sequence.row.id for sequence in engine._batch.sequences]
        step = next(steps)
        if not rows or step % EVERY:
            return found
        yielded.append(rows[step // EVERY % len(rows)])
        one = (yielded[-1],)
        return replace(found, preempt=one, drop=one if drop else ())

    monkeypatch.setattr(Engine, "decide", plan)
    return yielded


def served(llm: LLM, pairs: list[Pair]) -> list[Output]:
    outs = together(llm, pairs)
    llm.check_integrity()
    assert [out.error for out in outs] == [None] * len(outs)
    return outs


def compare(llm: LLM, pairs: list[Pair], least: int) -> None:
    """Replies that make way, with their state kept and dropped, and those that do not."""
    clean = served(llm, pairs)
    for drop in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            yielded = making_way(patch, drop=drop)
            outs = served(llm, pairs)
        assert len(yielded) > least
        for out, expected in zip(outs, clean, strict=True):
            assert_same(out, expected)


@pytest.mark.parametrize("name", rarely(FAMILIES, lambda name: name != "qwen3_5"))
def test_replies_that_make_way_are_the_same_as_those_that_do_not(name: str) -> None:
    """With their state kept, and rebuilt from their tokens; there are fewer slots than rows."""
    with LLM(str(checkpoint_dir(name)), max_batch=4, prefill_chunk=32) as llm:
        compare(llm, SETTINGS, 10)
        assert llm.status()["preemptions"] > 20


def test_replies_about_pictures_that_make_way_are_the_same() -> None:
    with LLM(str(checkpoint_dir("qwen3_5_vl")), prefill_chunk=32) as llm:
        compare(llm, innocent(), 5)


GUIDED: list[Pair] = [
    (shaped("Who are you?"), SamplingParams(max_tokens=200, temperature=1.0, seed=1, logprobs=0)),
    (shaped("And you?"), SamplingParams(max_tokens=200, temperature=1.5, seed=2, logprobs=0)),
    (talk("Say something."), SamplingParams(max_tokens=40, temperature=1.0, seed=3, logprobs=0)),
    (thinking("Think.", 8), SamplingParams(max_tokens=40, temperature=1.0, seed=4, logprobs=0)),
]


@pytest.mark.long
@pytest.mark.parametrize(("speculate", "least"), often([("off", 10), ("auto", 5)], ("auto", 5)))
def test_replies_held_to_a_schema_that_make_way_are_the_same(speculate: str, least: int) -> None:
    """With drafts they are there in fewer steps."""
    with LLM("bushel:tiny", speculate=speculate) as llm:
        compare(llm, GUIDED, least)


REPEATING: list[Pair] = [
    (talk("Say this again: one two three, one two three, one two three."), greedy(40)),
    (talk("Count: 1, 2, 3, 4, 5, 6, 7, 8, 9"), hot(30, temperature=0.5)),
    (talk("Repeat A, B, C, A, B, C, A, B, C."), greedy(30, repetition_penalty=1.1)),
    (shaped("Who are you?"), greedy(60, ignore_eos=False)),
]


@pytest.mark.parametrize("who", often(("lookup", "mtp", "bushel:tiny"), "mtp"))
def test_replies_that_draft_make_way_and_say_what_plain_ones_say(who: str) -> None:
    """Their state kept, and rebuilt from their tokens; what guesses for them goes on, too. B70."""
    with LLM("bushel:tiny", dtype="float32", speculate="off") as llm:
        plain = served(llm, REPEATING)
    with LLM("bushel:tiny", dtype="float32", speculate=who) as llm:
        for drop in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                yielded = making_way(patch, drop=drop)
                outs = served(llm, REPEATING)
            assert len(yielded) > 5
            assert sum(out.usage.accepted_tokens for out in outs) > 20
            for out, expected in zip(outs, plain, strict=True):
                assert_same(out, expected)


def test_a_reply_that_makes_way_while_its_last_step_is_lost_loses_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It left the batch, but the token it has not read yet is in the step that fails. B49."""
    with LLM(str(checkpoint_dir("llama")), max_batch=4) as llm:
        clean = served(llm, SETTINGS)
        yielded = making_way(monkeypatch, drop=False)
        read, failed = Sampled.read, set[int]()

        def failing(sampled: Sampled, rows: Any) -> Any:
            if len(rows) > 1 and len(yielded) in {3, 6} - failed:  # this step someone has left
                failed.add(len(yielded))
                raise RuntimeError("planted")
            return read(sampled, rows)

        monkeypatch.setattr(Sampled, "read", failing)
        for out, expected in zip(served(llm, SETTINGS), clean, strict=True):
            assert_same(out, expected)
        assert failed == {3, 6}


def test_control_a_row_that_goes_on_with_another_ones_state_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = BatchState.snapshot

    def anothers(rows: BatchState, row: int) -> Snapshot:
        wrong = snapshot(rows, (row + 1) % len(rows))
        return replace(wrong, position=rows.positions[row])

    pairs = [(prompt(20, seed), greedy(20)) for seed in range(3)]
    with LLM(str(checkpoint_dir("llama"))) as llm:
        clean = served(llm, pairs)
        making_way(monkeypatch, drop=False)
        monkeypatch.setattr(BatchState, "snapshot", anothers)
        outs = together(llm, pairs)
    assert [out.token_ids for out in outs] != [out.token_ids for out in clean]


def test_many_single_replies_never_make_way() -> None:
    """However long they wait: nobody holds more than another."""
    pairs = [(prompt(5, seed), greedy(6)) for seed in range(12)]
    with LLM(str(checkpoint_dir("llama")), max_batch=3, start_wait=0.0) as llm:
        served(llm, pairs)
        assert llm.status()["preemptions"] == 0


@pytest.fixture
def engine() -> Iterator[Engine]:
    with LLM(str(checkpoint_dir("llama")), max_batch=4, start_wait=0.0) as llm:
        assert llm._engine is not None
        yield llm._engine


def ask(engine: Engine, id: str, owner: str, choices: int, tokens: int, length: int = 8) -> None:
    decoding = greedy_decoding(engine, tokens)
    ids = tuple(prompt(length, len(id))["prompt_token_ids"])
    engine.submit(Request(id, Prepared(ids), rows_of(decoding, choices), owner=owner))


def greedy_decoding(engine: Engine, tokens: int) -> Any:
    from bushel.core.params import resolve

    model = engine.model
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    return resolve(params, model.defaults, vocab=model.vocab, end_ids=model.tokenizer.end_ids)


def test_another_owner_is_served_beside_a_request_that_wants_every_row(engine: Engine) -> None:
    """It gets a row and ends first; all rows of the other end too. B67."""
    ask(engine, "many", "greedy", 8, 60)
    for _ in range(6):
        engine.step()
    ask(engine, "one", "modest", 1, 4)
    ended = list[tuple[str, int]]()
    while not engine.idle:
        events = engine.step()
        ended += [
            (event.request_id, event.choice) for event in events if event.finish_reason == "length"
        ]
    assert ended[0] == ("one", 0)
    assert sorted(ended[1:]) == [("many", choice) for choice in range(8)]
    assert engine.preemptions == 1


def test_short_prompts_run_beside_a_long_one_of_another_owner() -> None:
    """Owners run chunks in turn, although the short ones keep coming (B61)."""
    with LLM(str(checkpoint_dir("llama")), max_batch=4, prefill_chunk=16) as llm:
        engine = llm._engine
        assert engine is not None
        ask(engine, "long", "patient", 1, 4, length=400)
        engine.step()
        ended = list[str]()
        for at in range(5):
            ask(engine, f"short {at}", "busy", 1, 1)
            for _ in range(4):  # its turn, its chunk, its token, and what is read of it
                ended += [it.request_id for it in engine.step() if it.finish_reason]
        assert ended == [f"short {at}" for at in range(5)]
