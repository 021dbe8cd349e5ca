"""Masks along a draft are those of a row that says it one by one, and the row stays where it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLParserLimits

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply_constraint import constraint_of
from bushel.core import Constraint, Decoding, RequestError, ThinkingBudget
from bushel.engine.constraints import constraint as module
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.constraints.masker import Masker
from bushel.engine.constraints.thinking_budget import ThinkingProgress
from bushel.models import Preparer
from bushel.text.grammar_compiler import compiled
from tests.chat.structured_output.random_replies import host
from tests.chat.structured_output.test_call_grammars import TOOLS
from tests.depth import one_in
from tests.engine.constrained_requests import PERSON
from tests.engine.numpy_sampling import decoding
from tests.engine.test_constraints_many import schema

SPECIAL = ("<tool_call>", "</tool_call>")
NO_WAY_BACK = 'start: thought answer\nthought[max_tokens=4]: /[a-z ]*/\nanswer: "=" /[0-9]{2,4}/'


class Rows:
    """Rows held to one thing, for a tokenizer."""

    def __init__(self, folder: Path):
        self.host = host(folder, SPECIAL)
        ends = self.host.tokenizer.end_ids
        self.ends = sorted(ends)
        self.masker = Masker(self.host.vocab, len(self.host.tokenizer.hf), ends)
        self.compiled = cache(lambda grammar: compiled(self.host.profile.grammar_tokens, grammar))

    def encode(self, text: str) -> list[int]:
        return [*self.host.tokenizer.encode(text, add_special_tokens=False)]

    def decoding(self, held: Constraint, **said: Any) -> Decoding:
        ends = frozenset() if said.get("ignore_eos") else frozenset(self.ends)
        plain = decoding(self.host.vocab, **said)
        return replace(plain, constraint=held, end_ids=ends, banned_early=frozenset(self.ends))

    def row(self, held: Constraint, tokens: Sequence[int] = (), **said: Any) -> ConstrainedRow:
        """One that has said these, one by one."""
        grammar = None if held.grammar is None else self.compiled(held.grammar).deep_copy()
        made = ConstrainedRow(self.decoding(held, **said), self.host.tokenizer.decode, grammar)
        made.follow(tokens)
        return made

    def mask(self, row: ConstrainedRow) -> np.ndarray:
        masks, failed = self.masker.make([row])
        assert masks is not None
        for _, error in failed:
            raise error
        return np.array(masks.words)[0]

    def along(
        self, row: ConstrainedRow, draft: Sequence[int]
    ) -> tuple[list[np.ndarray], list[int]]:
        """The masks that may be used, and how much of the draft they are for."""
        masks, (allowed,), failed = self.masker.along([row], [draft])
        for _, error in failed:
            raise error
        if masks is None:
            return [], allowed
        words, slots = np.array(masks.words), np.array(masks.slots).tolist()
        assert len(slots) == 1 + len(draft)
        assert slots[1 + len(allowed) :] == [len(words) - 1] * (len(draft) - len(allowed))
        return [words[slot] for slot in slots[: 1 + len(allowed)]], allowed


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return Rows(tmp_path_factory.mktemp("host"))


def tokens_of(mask: np.ndarray) -> list[int]:
    bits = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), bitorder="little")
    return [int(token) for token in np.nonzero(bits)[0]]


def grammar_of(host: Preparer, **request: Any) -> str:
    style = detect_formats("", host.tokenizer.controls, tools="hermes", thinking="think")
    made = constraint_of(style, request, opened=False, host=host)
    assert made is not None
    assert made.grammar is not None
    return made.grammar


def budget(rows: Rows, tokens: int) -> ThinkingBudget:
    closing = tuple(rows.encode("\n</think>\n\n"))
    return ThinkingBudget(tokens, False, "<think>", "</think>", closing)


def calls(rows: Rows) -> str:
    request = {"tools": TOOLS, "tool_choice": "required", "messages": []}
    return grammar_of(rows.host, **request)


KINDS: dict[str, Callable[[Rows], Constraint]] = {
    "schema": lambda rows: Constraint(grammar_of(rows.host, shape={"json_schema": PERSON}), None),
    "calls": lambda rows: Constraint(calls(rows), None),
    "choice": lambda rows: Constraint('start: "yes, I do" | "yes" | "no"', None),
    "no way back": lambda rows: Constraint(NO_WAY_BACK, None),
    "budget": lambda rows: Constraint(None, budget(rows, 3)),
    "budget and schema": lambda rows: Constraint(
        grammar_of(rows.host, shape={"json_schema": PERSON}), budget(rows, 4)
    ),
}


def reply_of(rows: Rows, held: Constraint, rng: random.Random, most: int) -> list[int]:
    """Tokens that a row may say, one by one, up to where it can only end."""
    row, said = rows.row(held), list[int]()
    thoughts = rows.encode("<think>a b c d e f g") if held.budget is not None else []
    while len(said) < most:
        allowed = [token for token in tokens_of(rows.mask(row)) if token not in rows.ends]
        if not allowed:
            break
        token = thoughts.pop(0) if thoughts and thoughts[0] in allowed else rng.choice(allowed)
        said.append(token)
        row.take(token)
    return said


def right(rows: Rows, held: Constraint, said: list[int], draft: Sequence[int]) -> list[np.ndarray]:
    """The masks after every token of a draft that may be said, by rows that have said it."""
    masks = [rows.mask(rows.row(held, said))]
    for at, token in enumerate(draft):
        if token in rows.ends or token not in tokens_of(masks[-1]):
            break
        masks.append(rows.mask(rows.row(held, [*said, *draft[: at + 1]])))
    return masks


def draft_of(
    rows: Rows, held: Constraint, said: list[int], ahead: Sequence[int], rng: random.Random
) -> list[int]:
    """What comes, and then what may come or may not; or something else that may."""
    draft = [*ahead[: rng.randint(0, 5)]]
    if draft and rng.random() < 0.5:
        parts = rng.randrange(len(draft))
        row = rows.row(held, [*said, *draft[:parts]])
        for at in range(parts, len(draft)):
            allowed = {*tokens_of(rows.mask(row))}.difference(rows.ends)
            if not allowed:
                break
            draft[at] = rng.choice(sorted(allowed))
            row.take(draft[at])
        return draft
    for at in range(len(draft)):
        if rng.random() < 0.25:
            draft[at] = rng.choice([rng.randrange(rows.host.vocab), *rows.ends, *draft])
    return draft


def differences(rows: Rows, held: Constraint, seed: int, most: int = 24) -> int:
    """Masks and cuts of a reply in rounds of drafts that are others than one by one."""
    rng = random.Random(seed)
    reply = reply_of(rows, held, rng, most)
    row, done, wrong = rows.row(held), 0, 0
    while done < len(reply):
        said = reply[:done]
        draft = draft_of(rows, held, said, reply[done:], rng)
        wanted = right(rows, held, said, draft)
        (cut,) = rows.masker.cut([row], [draft])
        masks, allowed = rows.along(row, draft)
        if masks:
            wrong += len(masks) != len(wanted) or not all(map(np.array_equal, masks, wanted))
            wrong += cut[: len(allowed)] != allowed or len(allowed) != len(wanted) - 1
        else:
            wrong += any(len(tokens_of(mask)) < rows.host.vocab for mask in wanted)
        if rng.random() < 0.5:  # rows that have drafts are not asked in between
            wrong += not np.array_equal(rows.mask(row), wanted[0])  # it is where it was
        row.check_integrity(said)
        kept = 0
        while kept < len(allowed) and allowed[kept] == reply[done + kept]:
            kept += 1
        done = min(done + kept + 1, len(reply))
        row.follow(reply[:done])
    return wrong


@pytest.mark.parametrize("kind", one_in(2, KINDS))
@settings(derandomize=True, max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_masks_along_a_draft_are_those_of_saying_it(rows: Rows, kind: str, seed: int) -> None:
    """And afterwards the row is where it was, whatever the draft was."""
    assert differences(rows, KINDS[kind](rows), seed) == 0


@settings(derandomize=True, max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_schema_is_followed_along_a_draft(rows: Rows, seed: int) -> None:
    made = schema(random.Random(seed))
    held = Constraint(grammar_of(rows.host, shape={"json_schema": made}), None)
    assert differences(rows, held, seed) == 0


TWO_KEYS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"enum": ["red", 5, None]},
        "a": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["a"],
}


@pytest.mark.parametrize("said", ["", '{"'])
@pytest.mark.parametrize("before", ["", "went back", "failed"])
def test_a_mask_of_a_draft_that_was_refused_is_not_another_places(
    rows: Rows, said: str, before: str
) -> None:
    """llguidance would give it to one that looks alike: where the value of another key begins."""
    held = Constraint(grammar_of(rows.host, shape={"json_schema": TWO_KEYS}), None)
    start, drafted = rows.encode(said), rows.encode('{"a":')
    replied = rows.encode('{"name":')
    row = rows.row(held, start)
    if before == "failed":  # a round that was never read
        rows.along(row, replied[len(start) :])
    rows.along(row, drafted[len(start) :])
    if before == "went back":
        row.follow(drafted)
        rows.mask(row)
        row.follow(start)
    row.follow(replied)
    wanted = rows.mask(rows.row(held, replied))
    assert np.array_equal(rows.mask(row), wanted)
    assert not np.array_equal(rows.mask(rows.row(held, drafted)), wanted)


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_which_less_was_read_than_it_took_goes_on_from_there(
    rows: Rows, kind: str, drafted: bool
) -> None:
    """After a step that could not be read, whatever its grammar can do. B49."""
    held, rng = KINDS[kind](rows), random.Random(5)
    reply = reply_of(rows, held, rng, 12)
    row = rows.row(held)
    for done in range(len(reply) + 1):
        row.follow(reply)
        if drafted:
            rows.along(row, [])
        row.follow(reply[:done])
        assert np.array_equal(rows.mask(row), rows.mask(rows.row(held, reply[:done])))


def test_rows_of_a_batch_have_their_own_masks_beside_free_ones(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, and in threads where they take long."""
    held = [KINDS[kind](rows) for kind in ("schema", "calls", "choice")]
    replies = [reply_of(rows, one, random.Random(3), 5) for one in held]
    drafts = [replies[0][:4], [7, 8, 9], replies[1][:2], replies[2][:1]]

    def masks() -> list[np.ndarray]:
        mine = [rows.row(one) for one in held]
        found, allowed, failed = rows.masker.along([mine[0], None, mine[1], mine[2]], drafts)
        assert found is not None
        assert (allowed, failed) == (drafts, [])
        return [np.array(found.words)[slot] for slot in np.array(found.slots).tolist()]

    once = masks()
    wanted: list[np.ndarray] = []
    everything = np.full_like(once[0], 0xFFFFFFFF)
    for one, draft in zip([held[0], None, held[1], held[2]], drafts, strict=True):
        mine = [] if one is None else right(rows, one, [], draft)
        wanted += [*mine, *[everything] * (5 - len(mine))]
    assert all(map(np.array_equal, once, wanted))
    monkeypatch.setattr(module, "_DEAR", -1.0)
    assert all(map(np.array_equal, masks(), wanted))
    assert rows.masker._threads is not None


def test_a_draft_is_cut_before_what_may_not_be_said(rows: Rows) -> None:
    """By the grammar, or because it would end the reply."""
    held = KINDS["schema"](rows)
    good = rows.encode('{"name": "Bo')
    row = rows.row(held)
    for bad in (rows.encode("!!")[0], rows.ends[0], rows.host.vocab + 5):
        for at in range(len(good) + 1):
            draft = [*good[:at], bad, *good[at:]]
            if rows.masker.cut([row], [draft]) != [draft[:at]]:
                assert bad in rows.encode("!!")  # inside a string it may
                assert '"name": "' in rows.host.tokenizer.decode(good[:at])
    assert rows.masker.cut([None], [[rows.ends[0], 5]]) == [[rows.ends[0], 5]]


def test_tokens_that_end_a_reply_wait_for_min_tokens_in_a_draft_too(rows: Rows) -> None:
    """Also where a grammar would let the reply end."""
    held = Constraint('start: "a"+', None)
    (letter,) = rows.encode("a")
    row = rows.row(held, min_tokens=3)
    masks, allowed = rows.along(row, [letter] * 4)
    assert allowed == [letter] * 4
    ends = [bool(set(tokens_of(mask)) & set(rows.ends)) for mask in masks]
    assert ends == [False, False, False, True, True]


def test_a_budget_that_is_spent_inside_a_draft_forces_its_end(rows: Rows) -> None:
    held = Constraint(None, budget(rows, 3))
    assert held.budget is not None
    said = rows.encode("<think>")
    thought, closing = rows.encode(" so")[0], [*held.budget.closing]
    row = rows.row(held, said)
    good = [thought, thought, thought, *closing, thought]
    assert rows.masker.cut([row], [good]) == [good]
    masks, allowed = rows.along(row, good)
    assert allowed == good
    assert [tokens_of(mask) for mask in masks[3 : 3 + len(closing)]] == [[it] for it in closing]
    assert len(tokens_of(masks[2])) > 1 < len(tokens_of(masks[-1]))
    late = [thought] * 6
    assert rows.masker.cut([row], [late]) == [late[:3]]
    assert rows.along(row, late)[1] == late[:3]
    assert rows.row(held).holds_along(late)
    assert not rows.row(held).holds_along(late[:1])


def test_what_could_neither_go_on_nor_end_fails_only_when_it_is_said(rows: Rows) -> None:
    held = Constraint('start: "yes"', None)
    yes = rows.encode("yes")
    row = rows.row(held, ignore_eos=True)
    masks, allowed = rows.along(row, yes)
    assert allowed == yes[:-1]
    assert len(masks) == len(yes)
    row.follow(yes)
    with pytest.raises(RequestError, match="neither go on nor end"):
        rows.along(row, [])


TOO_WIDE = 'start: "a" /[a-z]*/ | "b" x\nx: /[a-c]*/ x x | "d" x | '


def test_a_draft_to_where_a_grammar_is_too_complex_does_no_harm_to_its_row(rows: Rows) -> None:
    """The row fails there if it comes there, and goes on elsewhere."""
    limits = LLParserLimits(max_items_in_row=5, verbose_errors=False)
    tokens = rows.host.profile.grammar_tokens
    first, other = rows.encode("a")[0], rows.encode("b")[0]

    def made() -> ConstrainedRow:
        matcher = LLMatcher(tokens, TOO_WIDE, log_level=0, limits=limits)
        return ConstrainedRow(
            rows.decoding(Constraint(TOO_WIDE, None)), rows.host.tokenizer.decode, matcher
        )

    with pytest.raises(RequestError):
        made().take(other)
    row = made()
    start = rows.mask(row)
    draft = [other, *rows.encode("d")]
    assert rows.along(row, draft)[1] == []
    assert np.array_equal(rows.mask(row), start)
    row.take(first)
    twin = made()
    twin.take(first)
    assert np.array_equal(rows.mask(row), rows.mask(twin))
    letters = rows.encode("ok")
    assert rows.along(row, letters)[1] == letters
    assert np.array_equal(rows.mask(row), rows.mask(twin))


def test_masks_along_drafts_count_for_what_a_row_may_cost(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = rows.row(KINDS["schema"](rows))
    monkeypatch.setattr(module, "_SLOW", -1.0)
    monkeypatch.setattr(module, "_MOST_SLOW", 0.0)
    assert not row.too_slow
    rows.along(row, rows.encode('{"name'))
    assert row.too_slow


def test_what_can_only_come_next_is_a_draft_for_nothing(rows: Rows) -> None:
    row = rows.row(KINDS["schema"](rows), rows.encode('{"'))
    assert row.forced_ahead(9) == rows.encode('name":')
    assert row.forced_ahead(1) == rows.encode("name")
    assert row.forced_ahead(0) == []
    assert rows.row(KINDS["schema"](rows)).forced_ahead(9) == []
    held = Constraint(None, budget(rows, 1))
    assert held.budget is not None
    spent = rows.row(held, rows.encode("<think>") + rows.encode(" so")[:1])
    assert spent.forced_ahead(9) == [*held.budget.closing]
    assert spent.forced_ahead(1) == [held.budget.closing[0]]
    assert rows.masker.cut([spent], [spent.forced_ahead(9)]) == [[*held.budget.closing]]


# -- what makes these tests fail -------------------------------------------------------------


def _stays_there(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def drafting(self: ConstrainedRow) -> Iterator[None]:
        yield

    patch.setattr(ConstrainedRow, "_drafting", drafting)


def _goes_back_too_far(patch: pytest.MonkeyPatch) -> None:
    own = ConstrainedRow._drafting

    @contextmanager
    def drafting(self: ConstrainedRow) -> Iterator[None]:
        with own(self):
            yield
        if self.matcher is not None and self._taken:
            self.matcher.rollback(1)

    patch.setattr(ConstrainedRow, "_drafting", drafting)


def _masks_of_the_column_before(patch: pytest.MonkeyPatch) -> None:
    own = ConstrainedRow.allow_along

    def allow_along(self: Any, draft: Any, words: np.ndarray, *more: Any) -> list[int]:
        allowed = own(self, draft, words, *more)
        words[1:] = words[:-1].copy()
        return allowed

    patch.setattr(ConstrainedRow, "allow_along", allow_along)


def _shares_its_thoughts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThinkingProgress, "copy", lambda self: self)


def _cuts_nothing(patch: pytest.MonkeyPatch) -> None:
    own = ConstrainedRow.allow_along

    def allow_along(self: Any, draft: Any, *more: Any) -> list[int]:
        own(self, draft, *more)
        return [*draft]

    patch.setattr(ConstrainedRow, "allow_along", allow_along)


CONTROLS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "does not go back": (_stays_there, "schema"),
    "goes back too far": (_goes_back_too_far, "schema"),
    "masks of the column before": (_masks_of_the_column_before, "schema"),
    "a budget's count is not given back": (_shares_its_thoughts, "budget"),
    "what is forbidden is not cut": (_cuts_nothing, "choice"),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_control_a_mask_that_belongs_to_another_place_is_noticed(
    rows: Rows, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, kind = CONTROLS[control]
    spoil(monkeypatch)
    wrong = 0
    for seed in range(6):
        try:
            wrong += differences(rows, KINDS[kind](rows), seed)
        except Exception:  # it may also lose its way altogether
            wrong += 1
    assert wrong > 0
