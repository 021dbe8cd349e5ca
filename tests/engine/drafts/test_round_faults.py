"""A round of drafts that fails costs nobody a token, and a drafter that fails nobody a reply."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from bushel import LLM, Output, SamplingParams
from bushel.cache import BatchState
from bushel.core import IntegrityError
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.drafts.lookup import PromptLookup
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.engine import Engine
from bushel.engine.prompt_runner import PromptRunner
from bushel.engine.sampling.sampler import Sampled, SampledDraft, Sampler
from bushel.engine.sequence import Sequence
from bushel.engine.step_costs import Stopwatch
from bushel.models import recurrent_rollback
from bushel.models.text_model import TextModel
from bushel.models.vision.vision_model import VisionModel
from tests.depth import often, one_in, rarely
from tests.engine.late_faults import WORDS, LateFaults
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.llm.request_builders import assert_same, chat, greedy, hot, prompt
from tests.parity.drafting import Oracle, oracle

Pair = tuple[Any, SamplingParams]
GUILTY = 13  # the seed of a row that is to blame

FAMILIES = ["llama", "gemma3_text", "qwen3_5"]  # plain layers, windows, recurrent ones
ASKED: list[Pair] = [
    (prompt(9, 1), greedy(28)),
    (prompt(17, 2), hot(28)),
    (prompt(40, 3), greedy(24, repetition_penalty=1.3)),
    (prompt(12, 4), hot(24, seed=GUILTY, presence_penalty=0.5)),
]
COUNTED = "one two three four five six seven eight nine ten"
TEXTS: list[Pair] = [
    (chat(f"Say this again: {COUNTED}, {COUNTED}"), greedy(40, ignore_eos=False)),
    (chat(f"Repeat {COUNTED} and {COUNTED}."), hot(40, temperature=0.5, ignore_eos=False)),
    (chat("Repeat: A, B, C, A, B, C, A, B, C."), greedy(30, frequency_penalty=0.1)),
]
# Where a round may fail: who does it, and what for.
PLACES = {
    "verify": (DecodeBatch, "_run"),
    "begin": (BatchState, "begin_draft"),
    "choose": (Sampler, "sample_along"),
    "read": (SampledDraft, "read"),
    "go back": (BatchState, "end_draft"),
    "keep": (Sampler, "keep"),
}
QUESTIONS = ("chances", "propose", "kept", "join", "leave")  # that a drafter may fail at


class Faults:
    """Calls of a method raise, of those that `when` is true of: by number, or all of them."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        owner: Any,
        name: str,
        numbers: Iterable[int] | None = None,
        *,
        when: Callable[..., bool] = lambda *_: True,
        late: bool = False,
        words: str = "planted",
    ):
        """late: when the call has done its work."""
        self.calls = self.raised = 0
        original = getattr(owner, name)
        wanted = None if numbers is None else frozenset(numbers)

        def planted(*args: Any, **kwargs: Any) -> Any:
            self.calls += when(*args)
            fails = when(*args) and (wanted is None or self.calls in wanted)
            if fails and not late:
                self.raised += 1
                raise RuntimeError(words)
            result = original(*args, **kwargs)
            if fails:
                self.raised += 1
                raise RuntimeError(words)
            return result

        patch.setattr(owner, name, planted)


def wide(_: Any, inputs: Any, *__: Any) -> bool:
    """Whether a pass is one over drafts."""
    return bool(inputs.shape[1] > 1)


def in_round(patch: pytest.MonkeyPatch, place: str, *numbers: int, **more: Any) -> Faults:
    owner, name = PLACES[place]
    if place == "verify":
        more["when"] = wide
    return Faults(patch, owner, name, numbers or None, **more)


def run(llm: LLM, asked: Iterable[Pair]) -> list[Output]:
    handles = [llm.submit(*pair) for pair in asked]
    while not all(handle.done for handle in handles):
        llm.step()
        llm.check_integrity()
    return [handle.output for handle in handles]


@cache
def plain(family: str) -> list[Output]:
    """What is said without drafts, and when nothing fails."""
    with LLM(str(checkpoint_dir(family)), speculate="off") as llm:
        return run(llm, ASKED)


def guessing(family: str) -> LLM:
    """With drafts some of which hold."""
    llm = LLM(str(checkpoint_dir(family)), speculate="off")
    engine = llm._own_engine()
    pairs = zip(ASKED, plain(family), strict=True)
    known = {tuple(request["prompt_token_ids"]): output.token_ids for (request, _), output in pairs}
    engine.speculation = oracle(known, VOCAB)
    engine._rows.reset(engine._new_batch())
    return llm


def alike(outputs: list[Output], expected: list[Output]) -> None:
    for output, right in zip(outputs, expected, strict=True):
        assert output.error is None
        assert_same(output, right)


def accepted(outputs: Iterable[Output]) -> int:
    return sum(output.usage.accepted_tokens for output in outputs)


def drafts(llm: LLM) -> dict[str, Any]:
    return dict(llm.status()["speculation"])


# -- one fault, wherever it comes ---------------------------------------------------------


@pytest.mark.parametrize("family", often(FAMILIES, "qwen3_5"))
def test_nothing_planted_and_drafts_hold(family: str) -> None:
    with guessing(family) as llm:
        outputs = run(llm, ASKED)
        assert llm.status()["max_decode_batch"] == len(ASKED)
    alike(outputs, plain(family))
    assert all(accepted([output]) for output in outputs)


def test_steps_without_drafts_are_timed_as_such_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is over when its step is; a decode step may run into the next."""
    timed: list[tuple[int, bool]] = []
    step = Stopwatch.step

    def noted(watch: Stopwatch, *times: float, rows: int, read: bool, **more: Any) -> None:
        timed.append((rows, read))
        step(watch, *times, rows=rows, read=read, **more)

    monkeypatch.setattr(Stopwatch, "step", noted)
    with guessing("llama") as llm:
        run(llm, ASKED[:1])
        [(rows, read)] = {one for one in timed if one[1]}
        assert (rows, read) == (1, True)
        timed.clear()
        run(llm, [(request, replace(params, speculate=False)) for request, params in ASKED[:2]])
        assert (2, False) in timed
        assert not any(read for _, read in timed)


CASES = itertools.product(FAMILIES, PLACES, ("early", "late"))


@pytest.mark.parametrize(
    ("family", "place", "when"),
    # Whoever has to go back has something of its own to go back to.
    one_in(
        2,
        rarely(
            CASES,
            lambda case: case[1:] != ("go back", "early") and case[::2] != ("llama", "late"),
        ),
    ),
)
def test_a_round_that_fails_costs_nobody_a_token(
    family: str, place: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before and not after the work is done; drafts go on with those who come later. B49."""
    with guessing(family) as llm:
        planted = in_round(monkeypatch, place, 2, late=when == "late")
        outputs = run(llm, ASKED)
        assert planted.raised == 1
        alike(outputs, plain(family))
        assert accepted(outputs) > 0
        assert accepted(run(llm, ASKED)) > accepted(outputs)
        assert llm.status()["lane"] == "batch"
        assert drafts(llm)["drafters"] == ["oracle"]


@pytest.mark.parametrize("place", ["go back", "keep"])
def test_control_rows_of_a_failed_round_cannot_go_on_as_they_are(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_rebuild", lambda *_, **__: None)
    in_round(monkeypatch, place, 2)
    with guessing("llama") as llm, pytest.raises((AssertionError, IntegrityError)):
        alike(run(llm, ASKED), plain("llama"))


@pytest.mark.parametrize("place", one_in(3, often(PLACES, "verify", "read", "keep")))
def test_rounds_that_always_fail_end_drafts_and_not_batching(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor any reply; whoever is alone is served as well."""
    with guessing("llama") as llm:
        planted = in_round(monkeypatch, place)
        for pair, right in zip(ASKED, plain("llama"), strict=True):
            alike(run(llm, [pair]), [right])
        alike(run(llm, ASKED), plain("llama"))
        assert planted.raised == 2
        assert llm.status()["lane"] == "batch"
        assert drafts(llm)["why_off"] == "rounds of drafts fail: planted"


def test_where_rounds_are_given_up_nobody_reads_hidden_states_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither of prompts that come nor of one that has begun; and a draft model is closed."""
    closed: list[Speculation] = []
    monkeypatch.setattr(Speculation, "close", lambda drafting: closed.append(drafting))
    with LLM("bushel:tiny", dtype="float32", prefill_chunk=16) as llm:
        engine = llm._own_engine()
        drafting, prefixes = engine.speculation, engine.prefixes
        planted = in_round(monkeypatch, "keep")
        run(llm, TEXTS[:1])
        later = [llm.submit(*TEXTS[0]), llm.submit(prompt(240), greedy(2))]
        while planted.raised < 2:
            llm.step()
        assert drafts(llm)["why_off"] == "rounds of drafts fail: planted"
        assert closed == [drafting]
        assert any(job.done > 0 for job in engine._queue.prefilling.values())
        read = Faults(monkeypatch, VisionModel, "prefill_with_hidden", ())
        assert prefixes is not None
        kept = prefixes.ends.nbytes
        outputs = run(llm, [(prompt(40), greedy(2))])
        while not all(handle.done for handle in later):
            llm.step()
        assert not any(output.error for output in (*outputs, *(each.output for each in later)))
        assert (read.calls, engine.model.mtp) == (0, None)
        assert prefixes.ends.nbytes == kept


@pytest.mark.parametrize("late", one_in(2, [False, True]))
def test_nothing_is_noted_for_a_round_that_has_failed(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What layers are given is kept for as long as a draft may go back, and no longer. B55."""
    with guessing("qwen3_5") as llm:
        in_round(monkeypatch, "verify", late=late)
        alike(run(llm, ASKED), plain("qwen3_5"))
        assert recurrent_rollback._open.recording is None


def test_a_second_fault_may_come_before_the_first_one_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that were rebuilt share a round with one that came late, and it fails as well."""
    with guessing("llama") as llm:
        planted = in_round(monkeypatch, "keep", 1, 2)
        early = [llm.submit(*pair) for pair in (ASKED[0], *ASKED[2:])]
        while not planted.raised:
            llm.step()
            llm.check_integrity()
        [late] = run(llm, ASKED[1:2])
        while not all(handle.done for handle in early):
            llm.step()
            llm.check_integrity()
        assert planted.raised == 2
        first, *others = [handle.output for handle in early]
        alike([first, late, *others], plain("llama"))
        assert llm.status()["lane"] == "batch"


def test_a_row_that_is_to_blame_ends_alone_and_others_draft_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its tokens before are told; what it does to a round is no reason to end drafts."""

    def late(sampler: Sampler, *args: Any) -> bool:
        counts = args[2] if isinstance(args[2][0], int) and len(args) > 4 else None
        indices = args[3] if counts is not None else args[2]
        reach = zip(sampler.rows, indices, counts or [1] * len(indices), strict=True)
        return any(row.seed == GUILTY and index + count > 12 for row, index, count in reach)

    with guessing("llama") as llm:
        for name in ("sample", "sample_along"):
            Faults(monkeypatch, Sampler, name, when=late)
        *others, culprit = run(llm, ASKED)
        alike(others, plain("llama")[:3])
        assert (culprit.finish_reason, culprit.error) == ("error", "RuntimeError: planted")
        assert culprit.token_ids == plain("llama")[3].token_ids[:12]
        assert llm.status()["lane"] == "batch"
        assert accepted(run(llm, ASKED[:3])) > accepted(others)


# -- drafters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "always"),
    one_in(
        2,
        rarely(
            itertools.product(QUESTIONS, (False, True)),
            lambda case: not case[1] and case[0] != "kept",
        ),
    ),
)
def test_a_drafter_that_fails_is_done_without(
    question: str, always: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is rebuilt for it, and it is tried again when all have gone."""
    with guessing("llama") as llm:
        rebuilt = Faults(monkeypatch, Engine, "_rebuild", ())
        numbers = None if always else [1 if question in ("join", "leave") else 3]
        planted = Faults(monkeypatch, Oracle, question, numbers)
        handles = [llm.submit(*pair) for pair in ASKED]
        while not planted.raised:
            llm.step()
            llm.check_integrity()
        if question != "leave":
            assert drafts(llm)["drafters"] == []
            assert drafts(llm)["why_off"] == "oracle failed: planted"
        while not all(handle.done for handle in handles):
            llm.step()
            llm.check_integrity()
        alike([handle.output for handle in handles], plain("llama"))
        outputs = run(llm, ASKED)
        alike(outputs, plain("llama"))
        assert always or accepted(outputs) > 0
        assert rebuilt.calls == 0
        assert llm.status()["lane"] == "batch"


@cache
def plain_texts() -> list[Output]:
    with LLM("bushel:tiny", dtype="float32", speculate="off") as llm:
        return run(llm, TEXTS)


@pytest.mark.long
@pytest.mark.parametrize("drafter", often([MTPDrafter, PromptLookup], MTPDrafter))
def test_where_one_of_two_drafters_fails_the_other_goes_on(
    drafter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM("bushel:tiny", dtype="float32") as llm:
        planted = Faults(monkeypatch, drafter, "chances", [2])
        handles = [llm.submit(*pair) for pair in TEXTS]
        while not planted.raised:
            llm.step()
        assert {*drafts(llm)["drafters"]} == {"grammar", "lookup", "mtp"} - {drafter.name}
        assert drafts(llm)["why_fewer"] == f"{drafter.name} failed: planted"
        before = drafts(llm)["accepted"]
        while not all(handle.done for handle in handles):
            llm.step()
            llm.check_integrity()
        assert drafts(llm)["accepted"] > before
    alike([handle.output for handle in handles], plain_texts())


def test_a_row_that_is_rebuilt_keeps_what_a_head_knows_of_its_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its drafts hold nearly as often, although the head missed the token that it ran alone."""
    monkeypatch.setattr("bushel.engine.sequence._PROVEN", 0)
    planted = in_round(monkeypatch, "keep", 2)

    def held(*, fails: bool) -> tuple[int, int]:
        planted.calls, planted.raised = 0 if fails else 2, 0
        with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
            outputs = run(llm, TEXTS[:1])
            assert planted.raised == fails
        return accepted(outputs), sum(output.usage.drafted_tokens for output in outputs)

    (before, of), (after, among) = held(fails=False), held(fails=True)
    assert after / among > 0.8 * before / of


@pytest.mark.parametrize(
    ("owner", "name"),
    rarely(
        [(VisionModel, "forward_with_hidden"), *PLACES.values()],
        lambda case: case[1] != "end_draft",
    ),
)
def test_a_failed_round_of_a_prediction_head_costs_nobody_a_token(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's pass among others; the head is as far as its rows afterwards. B49."""
    passes = name in ("forward_with_hidden", "_run")
    with LLM("bushel:tiny", dtype="float32") as llm:
        when = wide if passes else lambda *_: True
        planted = Faults(monkeypatch, owner, name, [4], when=when)
        outputs = run(llm, TEXTS)
        assert planted.raised == 1
        assert accepted(outputs) > 0
        alike(outputs, plain_texts())


# -- the device ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "place"),
    often(
        itertools.product(FAMILIES, ("round", "commit")),
        ("qwen3_5", "round"),
    ),
)
def test_a_device_that_fails_in_a_round_spoils_no_reply(
    family: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told late, and everybody starts over; drafts go on. B65."""
    with guessing(family) as llm:
        planted = LateFaults(place, [2, 4], TextModel, monkeypatch.setattr)
        outputs = run(llm, ASKED)
        assert planted.told == 2
        alike(outputs, plain(family))
        alike(run(llm, ASKED), plain(family))


def test_a_round_that_ran_when_the_device_failed_at_a_prompt_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with guessing("llama") as llm:
        rows = llm._own_engine()._rows
        rebuilt = Faults(monkeypatch, Engine, "_rebuild", ())
        beside = Faults(
            *(monkeypatch, PromptRunner, "run", [2]),
            when=lambda *_: rows._round is not None,
            words=WORDS,
        )
        alike(run(llm, ASKED), plain("llama"))
        assert (beside.raised, rebuilt.calls) == (1, 0)
        assert drafts(llm)["accepted"] > 0


def test_a_device_may_fail_while_rows_of_a_failed_round_run_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with guessing("llama") as llm:
        first = in_round(monkeypatch, "go back", 2)
        after = Faults(monkeypatch, Sampled, "read", [2], when=lambda *_: first.raised, words=WORDS)
        alike(run(llm, ASKED), plain("llama"))
        assert (first.raised, after.raised) == (1, 1)


def test_a_drafter_that_hears_of_the_devices_fault_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with guessing("llama") as llm:
        planted = Faults(monkeypatch, Oracle, "propose", [3], words=WORDS)
        outputs = run(llm, ASKED)
        assert planted.raised == 1
        assert planted.calls > 3
        alike(outputs, plain("llama"))


# -- rows that go -------------------------------------------------------------------------


@pytest.mark.parametrize("family", often(FAMILIES, "qwen3_5"))
def test_a_row_that_is_given_up_between_rounds_changes_nothing(family: str) -> None:
    for gone in range(len(ASKED)):
        with guessing(family) as llm:
            handles = [llm.submit(*pair) for pair in ASKED]
            while drafts(llm)["drafted"] < 12:
                llm.step()
                llm.check_integrity()
            handles[gone].abort()
            llm.check_integrity()
            while not all(handle.done for handle in handles):
                llm.step()
                llm.check_integrity()
        outputs = [handle.output for handle in handles]
        said = outputs.pop(gone)
        assert said.finish_reason == "abort"
        assert said.token_ids == plain(family)[gone].token_ids[: len(said.token_ids)]
        alike(outputs, [right for at, right in enumerate(plain(family)) if at != gone])


@pytest.mark.parametrize("family", often(FAMILIES, "qwen3_5"))
def test_replies_that_end_inside_a_draft_end_as_without(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a token, by a text, or by their length, while others go on; what follows is not said."""
    endings: set[tuple[str, bool]] = set()
    add = Sequence.add

    def noted(sequence: Sequence, tokens: Any, logprobs: Any = (), *, drafted: int = 0) -> Any:
        event = add(sequence, tokens, logprobs, drafted=drafted)
        if drafted and event.finish_reason is not None:
            how = "text" if sequence.reply else str(event.finish_reason)
            endings.add((how, len(event.token_ids) < len(tokens)))
        return event

    asked = [*ASKED]
    for (request, params), output in zip(ASKED, plain(family), strict=True):
        for at in (6, 9, 11, 14, 17):
            text = output.text[at : at + 2]
            token = output.token_ids[at]
            asked += [
                (request, replace(params, stop_token_ids=[token])),
                (request, replace(params, stop=[text])),
                (request, replace(params, max_tokens=at)),
            ]
    with LLM(str(checkpoint_dir(family)), speculate="off") as llm:
        expected = run(llm, asked)
    monkeypatch.setattr(Sequence, "add", noted)
    with guessing(family) as llm:
        alike(run(llm, asked), expected)
    assert endings >= {("stop", True), ("text", True), ("length", False)}
