"""`python -m benchmarks.field`: its loads, limits and verdicts, without a clock."""

import gc
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import mlx.core as mx
import pytest

from benchmarks.field import parts
from benchmarks.field.__main__ import parsed
from benchmarks.field.cases import Case, Question, Words
from benchmarks.field.in_process import SIDES, run_in_process
from benchmarks.field.limits import (
    Machine,
    Sizes,
    bare_together,
    limit,
    load_bytes,
    load_operations,
    passes,
)
from benchmarks.field.loads import (
    LOADS,
    SCALES,
    Arrival,
    Load,
    closed_loop,
    fresh_tokens,
    make_load,
    spread_over,
)
from benchmarks.field.over_http import Ask
from benchmarks.field.parts import Setting, Subject, engine_part
from benchmarks.field.parts import _result as http_result
from benchmarks.field.records import Reply, Run, percentile
from benchmarks.field.servers import Server
from benchmarks.field.solo import Solo, verdict
from benchmarks.field.table import Result, ratios, table
from benchmarks.networks import BYTES, make
from bushel.engine.solo_run import BOUNDS
from bushel.models import Model

VOCAB = 4096
LITTLE = 50_000  # bytes that other tests may leave; an engine keeps 390,000


@pytest.fixture(scope="module")
def model() -> Model:
    return make("nano", mx.float32)


@pytest.fixture(scope="module")
def solo(model: Model) -> Solo:
    return Solo(model.network, mx.float32, literal=True)


@pytest.mark.parametrize("name", LOADS)
def test_a_load_is_the_same_for_every_side_and_another_one_in_every_round(name: str) -> None:
    one = make_load(name, VOCAB, SCALES["quick"], seed=1)
    assert one == make_load(name, VOCAB, SCALES["quick"], seed=1)
    other = make_load(name, VOCAB, SCALES["quick"], seed=2)
    assert not {arrival.ids for arrival in one} & {arrival.ids for arrival in other}
    assert all(BYTES <= token < VOCAB - 1 for arrival in one for token in arrival.ids)


def test_arrivals_of_mixed_lengths_have_the_lengths_that_are_promised() -> None:
    load = make_load("poisson", VOCAB, SCALES["full"], span=10.0)
    assert (load[0].at, round(load[-1].at, 6)) == (0, 10)
    assert all(64 <= len(one.ids) <= 8192 and 32 <= one.new <= 512 for one in load)
    assert min(len(one.ids) for one in load) < 300
    assert max(len(one.ids) for one in load) > 3000
    loop = closed_loop(32, VOCAB, SCALES["full"])
    assert len(loop) == 64
    assert all(200 <= len(one.ids) <= 2000 and one.new == 128 for one in loop)


def test_a_span_moves_arrivals_and_nothing_else() -> None:
    load = make_load("shared", VOCAB, SCALES["quick"], span=1.0)
    later = spread_over(load, 4.0)
    assert later[-1].at == pytest.approx(4.0)
    assert [replace(one, at=0) for one in later] == [replace(one, at=0) for one in load]


def test_what_prompts_have_in_common_counts_once() -> None:
    load = make_load("shared", VOCAB, SCALES["quick"])
    fresh = fresh_tokens(load)
    assert fresh[:2] == [len(load[0].ids), len(load[1].ids)]
    assert all(
        count == len(one.ids) - one.system for count, one in zip(fresh[2:], load[2:], strict=True)
    )


SIZES = Sizes(weights=1000, body=100, head=10, per_token=2, per_pair=3)
TWO = (Arrival(0, (1, 2, 3), 2), Arrival(0, (4, 5), 3))


def test_the_limit_is_what_a_person_counts() -> None:
    assert passes(TWO, rows=2) == 3  # the longest reply
    assert passes(TWO, rows=1) == 5  # one after another
    # Tokens that are looked at: 3 + 4 and 2 + 3 + 4.
    assert load_bytes(TWO, SIZES, rows=2) == 3 * 1000 + 2 * (7 + 9)
    # 5 tokens each, of which 2 and 3 go through the head; pairs: 5 * 5 / 2, rounded, each.
    assert load_operations(TWO, SIZES) == 2 * (100 * 10 + 10 * 5) + 3 * (12 + 12)
    assert limit(TWO, SIZES, Machine(bandwidth=3032, rate=1e9), rows=2) == 1.0
    assert limit(TWO, SIZES, Machine(bandwidth=1e9, rate=2172), rows=2) == 1.0
    late = (*TWO, Arrival(9.0, (6,), 1))
    assert limit(late, SIZES, Machine(bandwidth=1e9, rate=1e9), rows=2) == 9.0


def test_bare_loops_run_prompts_and_then_steps() -> None:
    assert bare_together(TWO, rows=2, prefill=10, step=0.5) == 0.5 + 3 * 0.5


def test_verdicts() -> None:
    assert verdict([5, 6], 2, apart=0, bound=0.5) == "equal"
    assert verdict([5, 6], 2, apart=0.4, bound=0.5) == "within"
    assert verdict([5, 6], 2, apart=0.6, bound=0.5) == "wrong"
    assert verdict([5, 6], 2, apart=float("nan"), bound=0.5) == "wrong"
    assert verdict([5], 2, apart=0, bound=0.5) == "wrong"
    assert verdict([], 2, apart=0, bound=0.5) == "failed"


@pytest.mark.parametrize("literal", [True, False])
def test_control_a_reply_with_another_token_is_wrong(model: Model, literal: bool) -> None:
    solo = Solo(model.network, mx.float32, literal)
    ids = make_load("burst", VOCAB, SCALES["quick"])[0].ids
    reply = solo.reply(ids, 8)
    assert solo.check(ids, reply, 8) == "equal"
    assert solo.check(ids, reply[:-1], 8) == "wrong"
    for at in range(8):
        changed = [*reply[:at], BYTES + (reply[at] + 1) % 1000, *reply[at + 1 :]]
        assert solo.check(ids, changed, 8) == "wrong"


def test_control_the_reply_to_another_prompt_is_wrong_also_by_the_coarsest_bound(
    model: Model,
) -> None:
    solo = Solo(model.network, mx.bfloat16, literal=False)
    one, two, *_ = make_load("burst", VOCAB, SCALES["quick"])
    assert solo.apart(one.ids, solo.reply(two.ids, 16)) > 2 * BOUNDS[mx.bfloat16]
    assert solo.check(one.ids, solo.reply(two.ids, 16), 16) == "wrong"


@pytest.mark.parametrize("first", [BYTES + 3, BYTES + 60, BYTES + 3000])
def test_a_first_space_that_a_server_leaves_out_is_no_other_token(
    model: Model, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    reply = [first, BYTES + 5, BYTES + 700]
    solo = Solo(model.network, mx.float32, literal=True)
    monkeypatch.setattr(solo, "reply", lambda ids, new: reply)
    words = Words(model.tokenizer.hf, solo)
    question = words.question(0, [{"role": "user", "content": words.text((300, 301))}], 3)
    text = words.text(tuple(reply))
    assert text.startswith(" ")
    assert question.ask == Ask(0, question.ask.messages, 3, prompt=2)
    for said in (text, text[1:]):
        assert question.check(Reply(0, [0.1], text=said)) == "equal"
    other = words.text((first, BYTES + 6, BYTES + 700))
    assert question.check(Reply(0, [0.1], text=other)) == "wrong"


@pytest.mark.parametrize("side", SIDES)
def test_replies_of_a_load_are_those_of_the_solo_run(model: Model, solo: Solo, side: str) -> None:
    load = make_load("shared", VOCAB, SCALES["quick"], span=0.05)
    run = run_in_process(side, model, load)
    assert solo.count(load, run) == {"equal": len(load), "within": 0, "wrong": 0, "failed": 0}
    assert all(len(reply.times) == one.new for reply, one in zip(run.replies, load, strict=True))


def _result(side: str, tokens: int, **verdicts: int) -> Result:
    reply = Reply(0, [0.5, 1.0, 2.0], list(range(tokens)))
    return Result("http", "burst", side, [Run([reply], 2.0)], verdicts, limits=[1.0])


def test_the_table_tells_ratios_and_what_was_wrong() -> None:
    ours, other = _result("Bushel", 30, equal=1), _result("mlx-lm", 20, wrong=1)
    assert ratios(ours, other) == [1.5]
    _, mine, theirs = table([ours, other]).splitlines()
    assert "15 (15 … 15)" in mine
    assert "50 % (50 … 50)" in mine
    assert "1.5 (1.5 … 1.5)" in theirs
    assert theirs.endswith("1 wrong")


def test_a_side_that_failed_is_not_compared() -> None:
    failed = _result("mlx-lm", 20, equal=1, failed=1)
    assert ratios(_result("Bushel", 30, equal=2), failed) == []
    assert failed.shares([1.0]) == []


def test_each_round_is_held_to_the_limit_of_its_own_lengths() -> None:
    """A side that takes twice the limit in every round is at 50 %, however rounds differ."""
    tokens = [10, 1000, 4000]  # of each round's one prompt

    def make(at: int) -> list[Question]:
        arrival = Arrival(0, tuple(range(tokens[at])), 8)
        return [Question(Ask(0, [], 8), lambda _: "equal", arrival)]

    def least(load: Load, rows: int) -> float:
        assert rows == 1  # of four that there might be
        return len(load[0].ids) / 1000

    bare = SimpleNamespace(together=least)
    subject = cast(Subject, SimpleNamespace(limit=least, bare=bare))
    subject.least = partial(Subject.least, subject)  # type: ignore[method-assign]
    runs = [Run([Reply(0, [0.5])], 2 * count / 1000) for count in tokens]
    case, side = Case("4 clients", make, 4, lambda _: []), Server("Bushel", "model", Path("log"))
    made = http_result("http", case, side, runs, make, subject, _setting(len(tokens)))
    assert made.shares(made.limits) == made.shares(made.bares) == [0.5, 0.5, 0.5]
    assert table([made]).count("50 % (50 … 50)") == 2


def test_rounds_of_engines_have_loads_of_their_own(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And both sides the same."""
    machine, seen = Machine(bandwidth=1e9, rate=1e9), list[tuple[str, Load]]()
    subject = Subject(model, machine, mx.float32, literal=True)
    monkeypatch.setattr(subject.bare, "together", lambda load, rows: 1.0)

    def run(side: str, model: Model, load: Load) -> Run:
        seen.append((side, load))
        return run_in_process(side, model, load)

    monkeypatch.setattr(parts, "run_in_process", run)
    made = engine_part(subject, _setting(rounds=2), ["burst"])
    loads = {side: [load for each, load in seen if each == side] for side in SIDES}
    assert loads["Bushel"] == loads["mlx-lm"]
    assert len({load[0].ids for load in loads["Bushel"]}) == 1 + 2  # one to warm up
    for result in made:
        assert len(result.limits) == len(result.bares) == 2
        assert result.verdicts["equal"] == sum(map(len, loads["Bushel"][1:]))


def _setting(rounds: int) -> Setting:
    return Setting(
        SCALES["quick"],
        mx.float32,
        rounds,
        1,
        warm=False,
        literal=True,
        sides=[*SIDES],
        patience=1.0,
    )


def test_a_wrong_or_missing_reply_of_ours_is_counted() -> None:
    assert _result("Bushel", 20, equal=3, within=1).wrong == 0
    assert _result("Bushel", 20, equal=3, wrong=2, failed=1).wrong == 3


def test_times_of_a_reply() -> None:
    reply = Reply(0.25, [0.5, 1.0, 2.0])
    assert (reply.first, reply.gap) == (0.25, 1.0)
    assert percentile([1, 2, 3, 4], 50) == 2.5
    assert percentile([7], 99) == 7


@pytest.mark.parametrize("side", SIDES)
def test_a_side_leaves_no_memory_to_the_next(model: Model, side: str) -> None:
    """Or peaks of others would count it."""
    load = make_load("burst", VOCAB, SCALES["quick"])
    run_in_process("mlx-lm", model, load)
    gc.collect()
    before = mx.get_active_memory()
    run_in_process(side, model, load)
    assert mx.get_active_memory() < before + LITTLE


def test_the_same_loop_is_not_asked_twice() -> None:
    with pytest.raises(SystemExit):
        parsed(["--clients", "1", "8", "--alone", "8"])
    assert parsed(["--clients", "8", "--alone", "32"]).alone == [32]


def test_a_reply_that_the_next_turn_begins_with_is_not_run_as_a_prompt() -> None:
    first = Arrival(0, (1, 2, 3, 4), 3)
    again = Arrival(1, (1, 2, 3, 4, 5, 6, 7, 8, 9), 3)
    elsewhere = Arrival(2, (1, 2, 9, 9), 3)
    assert fresh_tokens((first, again, elsewhere)) == [4, 2, 2]
