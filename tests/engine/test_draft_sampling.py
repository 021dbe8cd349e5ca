"""Tokens chosen along a draft are those that are chosen one by one, whatever a row asks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core import Decoding, IntegrityError, TokenLogprob
from bushel.core.params import TokenRules, with_token_rules
from bushel.engine.sampling import cuda
from bushel.engine.sampling.chooser import Chooser, Masks, SamplingStep
from bushel.engine.sampling.sampler import Sampler
from bushel.engine.sampling.split import SplitChooser
from bushel.engine.sampling.vectorised import VectorisedChooser
from tests.depth import one_in, rarely, some
from tests.engine.numpy_sampling import decoding
from tests.engine.test_cuda_sampling import _on_this_machine  # noqa: F401

VOCAB = 40  # so few that everything is said again soon
WORDS = -(-VOCAB // 32)
RULES = TokenRules(banned=((4,), (5, 6), (1, 2, 3)), breakers=(7,))
Token = tuple[int, TokenLogprob | None]


def _split(vocab: int) -> SplitChooser:
    return SplitChooser(cuda.KernelChooser(vocab), VectorisedChooser(vocab))


CHOOSERS: dict[str, Callable[[int], Chooser]] = {
    "vectorised": VectorisedChooser,
    "split": _split,
}

KINDS: Sequence[dict[str, Any]] = (
    {"temperature": 0.0},
    {"temperature": 0.0, "logprobs": 3},
    {"temperature": 1.5},
    {"temperature": 1.5, "min_p": 0.05, "logprobs": 0},
    {"temperature": 2.0, "top_p": 0.9},
    {"temperature": 2.0, "top_p": 0.3},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.8},
    {"temperature": 1.5, "typical_p": 0.7},
    {"temperature": 1.5, "top_k": 12, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"temperature": 1.5, "top_n_sigma": 1.0},
    {"temperature": 0.0, "repetition_penalty": 1.5},
    {"temperature": 1.0, "presence_penalty": 1.0, "frequency_penalty": 0.5, "logprobs": 2},
    {"temperature": 0.0, "frequency_penalty": 0.9},
    {"temperature": 0.0, "repetition_penalty": 1.8, "repeat_last_n": 3},
    {"temperature": 0.0, "dry_multiplier": 2.0, "dry_allowed_length": 1},
    {"temperature": 1.0, "dry_multiplier": 1.0, "dry_penalty_last_n": 6, "rules": True},
    {"temperature": 0.0, "rules": True},
    {"temperature": 1.0, "logit_bias": {5: 3.0, 6: -1e6}},
    {"temperature": 0.0, "min_tokens": 3},
    {"temperature": 1.0, "min_tokens": 6, "repetition_penalty": 1.2},
    {"temperature": 1.0, "allowed_token_ids": [1, 2, 5, 6, 7, 8]},
)


def row_of(kind: int, seed: int) -> Decoding:
    said = dict(KINDS[kind])
    rules = RULES if said.pop("rules", False) else TokenRules(breakers=RULES.breakers)
    return with_token_rules(decoding(VOCAB, seed=seed, **said), rules)


class Batch:
    """Rows whose logits, like those of a model, follow from what they have said."""

    def __init__(self, rows: Sequence[Decoding], chooser: str, held: bool):
        self.rows, self.held = rows, held
        self.sampler = Sampler(VOCAB)
        self.sampler.chooser = CHOOSERS[chooser](VOCAB)
        self.said: list[list[int]] = []  # prompt and reply
        self.prompts: list[int] = []  # how long they are
        for at, row in enumerate(rows):
            rng = np.random.default_rng(at)
            prompt = rng.integers(4, VOCAB, 3 + at).tolist()
            # Some come in the middle of their reply.
            reply = rng.integers(4, VOCAB, at % 3).tolist()
            self.sampler.join(row, prompt, reply)
            self.said.append([*prompt, *reply])
            self.prompts.append(len(prompt))

    def logits(self, row: int, said: Sequence[int]) -> np.ndarray:
        x = np.random.default_rng([row, *said[-1:]]).normal(size=VOCAB).astype(np.float32)
        x[[2, 3, said[-1] // 2 + 4]] += 2  # ends, and something that comes again
        return x

    def mask(self, row: int, said: Sequence[int]) -> np.ndarray:
        rng = np.random.default_rng([row, len(said)])
        return rng.integers(1, 1 << 32, WORDS, dtype=np.uint32) if row % 2 else FREE

    def masks(self, places: Sequence[tuple[int, Sequence[int]]]) -> Masks | None:
        if not self.held:
            return None
        words = np.stack([*(self.mask(*place) for place in places), FREE])
        return Masks(mx.arange(len(places)), mx.array(words))

    def where(self) -> tuple[list[int], list[int]]:
        pairs = zip(self.said, self.prompts, strict=True)
        return [len(said) - many for said, many in pairs], [len(said) for said in self.said]

    def step(self) -> list[Token]:
        """One by one."""
        places = list(enumerate(self.said))
        logits = mx.array(np.stack([self.logits(*place)[None] for place in places]))
        inputs = mx.array([[said[-1]] for said in self.said], dtype=mx.uint32)
        sampled = self.sampler.sample(logits, inputs, *self.where(), masks=self.masks(places))
        return list(zip(*sampled.read(self.rows), strict=True))

    def along(self, drafts: Sequence[Sequence[int]]) -> list[list[Token]]:
        """What each row would say after its newest token and after each of its drafts."""
        width = 1 + max(map(len, drafts))
        places, inputs = list[tuple[int, list[int]]](), list[list[int]]()
        for row, (said, draft) in enumerate(zip(self.said, drafts, strict=True)):
            real = [said[-1], *draft]
            inputs.append([*real, *[real[-1]] * (width - len(real))])
            mine = [(row, [*said, *draft[:many]]) for many in range(len(real))]
            places += [*mine, *[mine[-1]] * (width - len(mine))]
        logits = np.stack([self.logits(*place) for place in places])
        sampled = self.sampler.sample_along(
            mx.array(logits).reshape(len(drafts), width, VOCAB),
            mx.array(inputs, dtype=mx.uint32),
            [1 + len(draft) for draft in drafts],
            *self.where(),
            masks=self.masks(places),
        )
        tokens, logprobs = sampled.read(self.rows)
        assert [len(mine) for mine in tokens] == [1 + len(draft) for draft in drafts]
        return [
            [*zip(mine, told or [None] * len(mine), strict=True)]
            for mine, told in zip(tokens, logprobs, strict=True)
        ]


FREE = np.full(WORDS, 0xFFFFFFFF, np.uint32)


def one_by_one(
    rows: Sequence[Decoding], chooser: str, held: bool, tokens: int
) -> list[list[Token]]:
    batch = Batch(rows, chooser, held)
    replies: list[list[Token]] = [[] for _ in rows]
    for _ in range(tokens):
        for row, token in enumerate(batch.step()):
            replies[row].append(token)
            batch.said[row].append(token[0])
    return replies


def in_rounds(
    rows: Sequence[Decoding], chooser: str, held: bool, right: list[list[Token]], seed: int
) -> int:
    """How many of the tokens that rounds of drafts choose are others than one by one.

    Drafts are right as far as chance has it, then wrong. What is kept follows from `right`, so that
    one wrong choice does not end the comparison.
    """
    rng = np.random.default_rng(seed)
    batch, wrong = Batch(rows, chooser, held), 0
    done = [0] * len(rows)
    most = len(right[0])
    while min(done) < most:
        kind = rng.integers(6)
        if kind == 0:  # a plain step between the rounds
            for row, token in enumerate(batch.step()):
                if done[row] < most:
                    wrong += token != right[row][done[row]]
            kept = [1] * len(rows)
        else:
            drafts, kept = list[list[int]](), list[int]()
            for row in range(len(rows)):
                ahead = [token for token, _ in right[row][done[row] :]]
                draft = ahead[: int(rng.integers(0, 5))]
                good = int(rng.integers(0, len(draft) + 1))
                draft[good:] = [(token + 1) % VOCAB for token in draft[good:]]
                drafts.append(draft)
                kept.append(good + 1)
            found = batch.along(drafts)
            for row, mine in enumerate(found):
                wanted = right[row][done[row] : done[row] + kept[row]]
                wrong += mine[: len(wanted)] != wanted
            if kind == 1:  # a round that is thrown away
                continue
            batch.sampler.keep(kept)
        batch.sampler.check_integrity()
        for row, many in enumerate(kept):
            new = [token for token, _ in right[row][done[row] :][:many]]
            batch.said[row] += new + [0] * (many - len(new))
            done[row] += many
    return wrong


TOKENS = 14


def differences(kinds: Sequence[int], chooser: str, held: bool, seed: int) -> int:
    rows = [row_of(kind, seed + at) for at, kind in enumerate(kinds)]
    # As long as the slowest row may need: the others go beyond what is compared.
    right = one_by_one(rows, chooser, held, TOKENS)
    return in_rounds(rows, chooser, held, right, seed)


some_kinds = st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=4)


@pytest.mark.parametrize("chooser", CHOOSERS)
@settings(derandomize=True, max_examples=some(60))
@given(some_kinds, st.booleans(), st.integers(0, 10**6))
def test_what_is_said_with_drafts_is_what_is_said_without(
    chooser: str, kinds: list[int], held: bool, seed: int
) -> None:
    assert differences(kinds, chooser, held, seed) == 0


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_rows_of_all_settings_say_side_by_side_what_they_say_without_drafts(chooser: str) -> None:
    assert differences(range(len(KINDS)), chooser, held=True, seed=0) == 0


def test_a_history_that_needs_more_room_on_the_way_is_kept() -> None:
    """Rooms begin with 256 tokens, and a draft may lead beyond."""
    said = np.random.default_rng(5).integers(4, 12, 254).tolist()
    row = row_of(14, 0)
    plain, drafting = Sampler(VOCAB), Sampler(VOCAB)
    for sampler in (plain, drafting):
        sampler.join(row, said, [])
    logits = mx.array(np.random.default_rng(6).normal(size=(9, VOCAB)).astype(np.float32))
    wanted: list[int] = []
    for at in range(9):
        newest = mx.array([[[*said, *wanted][-1]]])
        sampled = plain.sample(logits[None, at : at + 1], newest, [at], [254 + at])
        wanted += sampled.read([row])[0]
    inputs = [said[-1], *wanted]
    for first, kept in ((0, 4), (4, 5)):
        width = 5
        sampled = drafting.sample_along(
            logits[None, first : first + width],
            mx.array([inputs[first : first + width]]),
            [width],
            [first],
            [254 + first],
        )
        tokens, _ = sampled.read([row])
        assert tokens == [wanted[first : first + width]]
        drafting.keep([kept])


@pytest.mark.parametrize("kinds", [(0, 0), (10, 14)], ids=["plain", "penalised"])
@pytest.mark.parametrize("chooser", CHOOSERS)
def test_a_draft_can_be_kept_once_and_only_while_its_rows_are_the_same(
    chooser: str, kinds: tuple[int, ...]
) -> None:
    def drafted() -> Batch:
        batch = Batch([row_of(kind, 0) for kind in kinds], chooser, held=False)
        batch.along([[5], [6]])
        return batch

    batch = drafted()
    batch.sampler.keep([1, 2])
    with pytest.raises(IntegrityError):
        batch.sampler.keep([1, 2])
    batch = drafted()
    batch.sampler.leave([0])
    with pytest.raises(IntegrityError):
        batch.sampler.keep([1])
    batch = drafted()
    batch.step()
    with pytest.raises(IntegrityError):
        batch.sampler.keep([1, 1])


def test_rows_that_leave_and_come_after_a_draft_go_on_with_what_they_kept() -> None:
    """In a batch of two, then alone, then beside a new one: as if it had never drafted."""
    rows = [row_of(kind, 1) for kind in (15, 11)]
    right = one_by_one(rows, "vectorised", False, 8)
    batch = Batch(rows, "vectorised", held=False)
    ahead = [[token for token, _ in mine] for mine in right]
    batch.along([ahead[0][:2], ahead[1][:3]])
    batch.sampler.keep([2, 3])
    batch.sampler.leave([1])
    batch.rows, batch.prompts = rows[1:], batch.prompts[1:]
    batch.said = [[*batch.said[1], *ahead[1][:3]]]
    batch.logits = lambda _, said: Batch.logits(batch, 1, said)  # type: ignore[method-assign]
    assert batch.along([ahead[1][3:5]]) == [right[1][3:6]]
    batch.sampler.keep([2])
    batch.said[0] += ahead[1][3:5]
    assert batch.step() == [right[1][5]]


# -- what makes these tests fail -------------------------------------------------------------


def _same_numbers_everywhere(patch: pytest.MonkeyPatch) -> None:
    """The number of column 0 at every column."""
    own = VectorisedChooser._uniforms

    def uniforms(self: VectorisedChooser, positions: Sequence[int], width: int) -> np.ndarray:
        return np.repeat(own(self, positions, 1), width, axis=0)

    patch.setattr(VectorisedChooser, "_uniforms", uniforms)
    places = cuda._places_along
    patch.setattr(
        cuda, "_places_along", lambda turn, width: mx.repeat(places(turn, 1), width, axis=0)
    )


def _numbers_off_by_one(patch: pytest.MonkeyPatch) -> None:
    own = Sampler.sample_along

    def sample_along(
        self: Sampler,
        logits: Any,
        inputs: Any,
        counts: Any,
        indices: Any,
        positions: Any,
        **more: Any,
    ) -> Any:
        later = [position + 1 for position in positions]
        return own(self, logits, inputs, counts, indices, later, **more)

    patch.setattr(Sampler, "sample_along", sample_along)


def _without_the_draft(patch: pytest.MonkeyPatch) -> None:
    """Penalties over what was said before the draft alone."""

    def first(turn: SamplingStep) -> SamplingStep:
        return turn._replace(inputs=mx.repeat(turn.inputs[:, :1], turn.inputs.shape[1], axis=1))

    for kind in (VectorisedChooser, cuda.KernelChooser):
        own = kind.tokens_along
        patch.setattr(
            kind, "tokens_along", lambda self, logits, turn, own=own: own(self, logits, first(turn))
        )


def _masks_of_the_column_before(patch: pytest.MonkeyPatch) -> None:
    own = Batch.masks

    def masks(self: Batch, places: Sequence[tuple[int, Sequence[int]]]) -> Masks | None:
        return own(self, [(row, said[:-1]) for row, said in places])

    along = Batch.along

    def along_wrongly(self: Batch, drafts: Sequence[Sequence[int]]) -> list[list[Token]]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Batch, "masks", masks)
            return along(self, drafts)

    patch.setattr(Batch, "along", along_wrongly)


def _bias_of_the_first_column(patch: pytest.MonkeyPatch) -> None:
    own = Sampler._bias_along

    def bias(self: Sampler, indices: Sequence[int], width: int) -> mx.array | None:
        first = own(self, indices, 1)
        return None if first is None else mx.repeat(first, width, axis=0)

    patch.setattr(Sampler, "_bias_along", bias)


def _keeps_one_less(patch: pytest.MonkeyPatch) -> None:
    own = Sampler.keep
    patch.setattr(
        Sampler, "keep", lambda self, kept: own(self, [max(many - 1, 0) for many in kept])
    )


def _a_discarded_draft_stays(patch: pytest.MonkeyPatch) -> None:
    own = Sampler.sample_along

    def sample_along(
        self: Sampler, logits: Any, inputs: Any, counts: Any, *more: Any, **masks: Any
    ) -> Any:
        sampled = own(self, logits, inputs, counts, *more, **masks)
        self.keep(counts)
        return own(self, logits, inputs, counts, *more, **masks) and sampled

    patch.setattr(Sampler, "sample_along", sample_along)


DRAWN, PENALISED, REMEMBERING, EARLY = (2, 4, 6), (10, 11, 12), (13, 14, 16), (18, 19)
CONTROLS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Sequence[int]]] = {
    "one number for all columns": (_same_numbers_everywhere, DRAWN),
    "numbers off by one": (_numbers_off_by_one, DRAWN),
    "penalties without the draft": (_without_the_draft, PENALISED),
    "history without the draft": (_without_the_draft, REMEMBERING),
    "masks of the column before": (_masks_of_the_column_before, (0, 0)),
    "min_tokens of the first column": (_bias_of_the_first_column, EARLY),
    "penalties that keep one less": (_keeps_one_less, PENALISED),
    "a history that keeps one less": (_keeps_one_less, REMEMBERING),
    "a discarded draft that stays": (_a_discarded_draft_stays, PENALISED),
}


@pytest.mark.parametrize(
    ("chooser", "control"),
    one_in(
        3,
        rarely(itertools.product(CHOOSERS, CONTROLS), lambda case: case[0] != next(iter(CHOOSERS))),
    ),
)
def test_control_a_choice_that_belongs_to_another_place_is_noticed(
    control: str, chooser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, kinds = CONTROLS[control]
    held = "mask" in control
    assert sum(differences(kinds, chooser, held, seed) for seed in range(4)) == 0
    spoil(monkeypatch)
    assert sum(differences(kinds, chooser, held, seed) for seed in range(4)) > 0
