"""Rows of a batch that come and go: each gets the tokens it would get alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core import Decoding, IntegrityError, TokenLogprob
from bushel.engine.sampling import draw, vectorised
from bushel.engine.sampling.penalties import Penalties
from bushel.engine.sampling.sampler import Sampled, Sampler
from bushel.engine.sampling.vectorised import VectorisedChooser
from tests.depth import often

from .numpy_sampling import ENDS, VOCAB, Settings, allowed, decoding, penalised


@dataclass(eq=False)
class Row:
    decoding: Decoding
    prompt: list[int]
    seed: int
    vocab: int = VOCAB
    dtype: mx.Dtype = mx.float32
    reply: list[int] = field(default_factory=list)

    def logits(self) -> mx.array:
        """[V], a function of the row and of how far it is; end tokens would often win."""
        rng = np.random.default_rng([self.seed, len(self.reply)])
        x = (rng.normal(size=self.vocab) * 2).astype(np.float32)
        x[list(ENDS)] += 4
        return mx.array(x).astype(self.dtype)

    @property
    def position(self) -> int:
        return len(self.prompt) + len(self.reply)

    def newest(self) -> int:
        return self.reply[-1] if self.reply else self.prompt[-1]


Result = tuple[int, TokenLogprob | None]


def sample(sampler: Sampler, rows: Sequence[Row]) -> list[Result]:
    logits = mx.stack([row.logits()[None] for row in rows])
    newest = mx.array([[row.newest()] for row in rows], dtype=mx.uint32)
    indices = [len(row.reply) for row in rows]
    result = sampler.sample(logits, newest, indices, [row.position for row in rows])
    return list(zip(*result.read(sampler.rows), strict=True))


def alone(row: Row) -> Result:
    sampler = Sampler(row.vocab)
    sampler.join(row.decoding, row.prompt, row.reply)
    return sample(sampler, [row])[0]


class Traffic:
    """A batch in which rows join, pause, come back in the middle of their reply, and leave."""

    def __init__(self, seed: int, kind: type[Sampler], vocab: int, dtype: mx.Dtype):
        self.rng = np.random.default_rng(seed)
        self.vocab, self.dtype = vocab, dtype
        self.sampler = kind(vocab)
        self.rows: list[Row] = []
        self.paused: list[Row] = []

    def some_decoding(self) -> Decoding:
        pick = self.rng.choice
        return decoding(
            self.vocab,
            temperature=float(pick([0.0, 0.5, 1.0, 3.0])),
            top_k=int(pick([0, 1, 5, 64, 100, self.vocab, 10**6])),
            top_p=float(pick([0.3, 0.9, 1.0])),
            min_p=float(pick([0.0, 0.0, 0.05])),
            seed=int(self.rng.integers(2**62)),
            repetition_penalty=float(pick([1.0, 1.0, 1.5])),
            presence_penalty=float(pick([0.0, 0.0, 1.0])),
            frequency_penalty=float(pick([0.0, 0.0, 0.7, -0.5])),
            logit_bias=None if pick(2) else {5: 3.0, 6: -1e6},
            min_tokens=int(pick([0, 0, 4])),
            logprobs=[None, None, 0, 3, 20][pick(5)],
        )

    def change(self) -> None:
        if self.rows and self.rng.random() < 0.5:
            keep = [at for at in range(len(self.rows)) if self.rng.random() < 0.7]
            self.paused += [row for at, row in enumerate(self.rows) if at not in keep]
            self.rows = [self.rows[at] for at in keep]
            self.sampler.leave(keep)
        while len(self.rows) < 6 and self.rng.random() < 0.6:
            if self.paused and self.rng.random() < 0.5:
                row = self.paused.pop()
            else:
                prompt = self.rng.integers(0, self.vocab, 8).tolist()
                seed = int(self.rng.integers(2**31))
                row = Row(self.some_decoding(), prompt, seed, self.vocab, self.dtype)
            self.rows.append(row)
            self.sampler.join(row.decoding, row.prompt, row.reply)

    def step(self) -> list[tuple[Row, Result, Result]]:
        """Each row, what it got here and what it gets alone."""
        self.change()
        if not self.rows:
            return []
        here = sample(self.sampler, self.rows)
        self.sampler.check_integrity()
        solo = [alone(row) for row in self.rows]
        found = list(zip(self.rows, here, solo, strict=True))
        for row, (token, _) in zip(self.rows, here, strict=True):
            row.reply.append(token)
        return found


def differences(
    seed: int,
    kind: type[Sampler] = Sampler,
    *,
    vocab: int = VOCAB,
    dtype: mx.Dtype = mx.float32,
    steps: int = 25,
    logprobs: bool = True,
) -> int:
    traffic = Traffic(seed, kind, vocab, dtype)
    found = [it for _ in range(steps) for it in traffic.step()]
    assert len(found) > steps  # there was something to compare
    return sum(here != solo if logprobs else here[0] != solo[0] for _, here, solo in found)


@settings(derandomize=True, max_examples=12)
@given(st.integers(0, 10**6))
def test_joining_and_leaving_rows_never_change_a_row(seed: int) -> None:
    assert differences(seed) == 0


def test_rows_that_stay_together_for_long_get_what_they_get_alone() -> None:
    """Numbers are made for many steps at once, and rows are at different positions."""
    rows = [Row(decoding(temperature=2.0, seed=at), [1] * (at + 1), seed=at) for at in range(3)]
    sampler = Sampler(VOCAB)
    for row in rows:
        sampler.join(row.decoding, row.prompt, [])
    for _ in range(100):
        here = sample(sampler, rows)
        assert here == [alone(row) for row in rows]
        for row, (token, _) in zip(rows, here, strict=True):
            row.reply.append(token)


def test_a_row_that_goes_back_gets_the_same_tokens_again() -> None:
    row = Row(decoding(temperature=100.0), [1], seed=0)
    sampler = Sampler(VOCAB)
    sampler.join(row.decoding, row.prompt, [])
    for reply in ([], [4], [4, 5], [4], []):
        row.reply = reply
        assert sample(sampler, [row])[0] == alone(row)
    for reply in ([4, 5, 6], [4, 5]):  # back beyond where the numbers in hand begin
        sampler.leave([0])
        row.reply = reply
        sample(sampler, [row])
        row.reply = reply[:-1]
        assert sample(sampler, [row])[0] == alone(row)


def test_joining_and_leaving_rows_never_change_a_row_of_a_wide_vocabulary() -> None:
    assert differences(0, vocab=5000, steps=10) == 0


def test_joining_and_leaving_rows_never_change_a_token_in_half_precision() -> None:
    assert differences(1, dtype=mx.bfloat16, logprobs=False) == 0


def test_a_row_gets_the_same_top_logprobs_whatever_its_neighbours_ask_for() -> None:
    """Logits in half precision are often equal."""

    class Coarse(Row):
        def logits(self) -> mx.array:
            return mx.round(super().logits() * 4)

    rows = [Coarse(decoding(9000, logprobs=asked), [1], asked, 9000) for asked in (5, 20)]
    sampler = Sampler(9000)
    for row in rows:
        sampler.join(row.decoding, row.prompt, [])
    assert sample(sampler, rows) == [alone(row) for row in rows]


def penalties_of(sampler: Sampler) -> Penalties:
    assert isinstance(sampler.chooser, VectorisedChooser)
    return sampler.chooser.penalties


class ForgetsReplies(Sampler):
    def join(self, row: Decoding, prompt: Any, reply: Any) -> None:
        super().join(row, prompt, [])


class MixesRows(Sampler):
    def leave(self, keep: Any) -> None:
        penalties = penalties_of(self)
        counts = penalties._counts
        super().leave(keep)
        if penalties._counts is not None and counts is not None:
            penalties._counts = counts[: len(penalties.rows)]


class CountsTwice(Sampler):
    def sample(self, logits: mx.array, inputs: mx.array, indices: Any, positions: Any) -> Sampled:
        penalties_of(self).apply(logits[:, 0], inputs[:, 0], indices)
        return super().sample(logits, inputs, indices, positions)


class SharesNumbers(Sampler):
    def sample(self, logits: mx.array, inputs: mx.array, indices: Any, positions: Any) -> Sampled:
        return super().sample(logits, inputs, indices, [positions[0]] * len(positions))


class MixesBias(Sampler):
    def _make_bias(self, early: Any) -> mx.array | None:
        bias = super()._make_bias(early)
        return None if bias is None else bias[::-1]


@pytest.mark.parametrize(
    "wrong",
    often(
        [ForgetsReplies, MixesRows, CountsTwice, SharesNumbers, MixesBias], MixesRows, CountsTwice
    ),
)
def test_control_a_sampler_that_mixes_rows_is_noticed(wrong: type[Sampler]) -> None:
    assert sum(differences(seed, wrong) for seed in range(4)) > 0


MIXED = [
    decoding(temperature=2.0, seed=at, top_p=top_p, min_p=min_p, top_k=top_k)
    for at, (top_k, top_p, min_p) in enumerate(
        (top_k, top_p, min_p)
        for top_k in (0, 20, 100)
        for top_p in (0.9, 0.8, 0.3, 1.0)
        for min_p in (0.05, 0.0)
    )
]


def unlike_alone() -> int:
    """Rows of one batch, with every mix of settings, that get another token than alone."""
    rows = [Row(it, [1], seed) for seed in range(20) for it in MIXED]
    sampler = Sampler(VOCAB)
    for row in rows:
        sampler.join(row.decoding, row.prompt, [])
    assert isinstance(sampler.chooser, VectorisedChooser)
    groups = sampler.chooser._layout(1).groups
    assert len(groups) == len({vectorised._company(it) for it in MIXED}) >= 3
    return sum(here != alone(row) for row, here in zip(rows, sample(sampler, rows), strict=True))


def test_rows_of_one_route_are_drawn_in_one_call_and_keep_their_own_settings() -> None:
    assert unlike_alone() == 0


def test_control_a_setting_taken_from_a_neighbour_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every row of a group gets the settings of the group's first row."""
    settings_of = vectorised._settings

    def wrong(route: draw.Route, rows: list[Decoding]) -> tuple[mx.array | None, ...]:
        own = settings_of(route, rows)
        return tuple(None if it is None else mx.broadcast_to(it[:1], it.shape) for it in own)

    monkeypatch.setattr(vectorised, "_settings", wrong)
    assert unlike_alone() > 0


def test_tokens_obey_penalties_bias_and_settings_of_their_own_row() -> None:
    """Against numpy, with the newest token counted."""
    checked = 0
    for seed in range(4):
        traffic = Traffic(seed, Sampler, VOCAB, mx.float32)
        for _ in range(20):
            replies = {id(row): list(row.reply) for row in [*traffic.rows, *traffic.paused]}
            for row, (token, _), _ in traffic.step():
                it, reply = row.decoding, replies.get(id(row), [])
                row.reply.pop()
                raw = np.array(row.logits())
                row.reply.append(token)
                x = penalised(raw, it, row.prompt, reply).astype(np.float32)
                if it.temperature == 0 or it.top_k == 1:
                    assert token == x.argmax()
                    checked += 1
                else:
                    mine = Settings(it.temperature, it.top_k, it.min_p, it.top_p)
                    assert allowed(x, mine, nats=2e-4, mass=1e-5)[token]
    assert checked > 50


def test_logprobs_are_those_of_the_raw_logits() -> None:
    row = Row(
        decoding(logprobs=3, temperature=1.0, repetition_penalty=2.0, logit_bias={7: 50.0}),
        [7, 8, 9],
        seed=0,
    )
    token, found = alone(row)
    assert token == 7
    assert found is not None
    x = np.array(row.logits()).astype(np.float64)
    logprobs = x - np.log(np.exp(x).sum())
    assert found.token_id == 7
    assert found.logprob == pytest.approx(logprobs[7], abs=1e-5)
    assert [at for at, _ in found.top] == np.argsort(-x)[:3].tolist()
    assert [value for _, value in found.top] == pytest.approx(np.sort(logprobs)[::-1][:3], abs=1e-5)


@pytest.mark.parametrize("asked", [0, 1, 64, 65, VOCAB])
def test_any_number_of_top_logprobs_can_be_asked_for(asked: int) -> None:
    row = Row(decoding(logprobs=asked), [1], seed=0)
    found = alone(row)[1]
    assert found is not None
    assert len(found.top) == asked
    assert len({at for at, _ in found.top}) == asked


def test_frequency_counts_every_token_of_the_reply_and_none_of_the_prompt() -> None:
    """Equal logits but for a small lead: with a penalty per use, tokens take turns."""
    lead = np.zeros(VOCAB, np.float32)
    lead[[10, 11, 12]] = [1.0, 0.9, 0.8]

    class Flat(Row):
        def logits(self) -> mx.array:
            return mx.array(lead)

    row = Flat(decoding(frequency_penalty=0.25), [10, 10, 10, 10, 10, 10], seed=0)
    sampler = Sampler(VOCAB)
    sampler.join(row.decoding, row.prompt, [])
    for _ in range(12):
        row.reply.append(sample(sampler, [row])[0][0])
    expected: list[int] = []
    for _ in range(12):
        scores = [lead[at] - 0.25 * expected.count(at) for at in (10, 11, 12)]
        expected.append(10 + int(np.argmax(scores)))
    assert row.reply == expected


def test_end_tokens_wait_for_min_tokens() -> None:
    row = Row(decoding(min_tokens=5), [1], seed=0)
    sampler = Sampler(VOCAB)
    sampler.join(row.decoding, row.prompt, [])
    for _ in range(10):
        row.reply.append(sample(sampler, [row])[0][0])
    assert not ENDS & set(row.reply[:5])
    assert ENDS & set(row.reply[5:])


@pytest.mark.parametrize("temperature", [1e-38, 1e-40, 5e-324])
@pytest.mark.parametrize("said", [{}, {"top_p": 0.9}], ids=str)
def test_the_smallest_temperatures_are_greedy(temperature: float, said: dict[str, Any]) -> None:
    row = Row(decoding(temperature=temperature, **said), [1], seed=0)
    greedy = Row(decoding(), [1], seed=0)
    assert alone(row) == alone(greedy)


def test_sampling_leaves_the_global_random_state_alone() -> None:
    def state() -> list[Any]:
        parts: Any = mx.random.state
        return [part.tolist() for part in parts]

    mx.random.seed(5)
    before = state()
    differences(2)
    assert state() == before
    mx.random.normal((1,))
    assert state() != before  # control: drawing from it would show


def test_lost_penalty_state_is_reported() -> None:
    sampler = Sampler(VOCAB)
    for _ in range(2):
        sampler.join(decoding(frequency_penalty=1.0), [1], [])
    sampler.check_integrity()
    penalties = penalties_of(sampler)
    assert penalties._counts is not None
    penalties._counts = penalties._counts[:1]
    with pytest.raises(IntegrityError):
        sampler.check_integrity()
