"""DRY, repetition windows, bad words and allowed tokens against numpy, as rows come and go."""

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Decoding
from bushel.core.params import TokenRules, with_token_rules
from bushel.engine.sampling import history
from bushel.engine.sampling.history import TokenHistory, repeats
from bushel.engine.sampling.sampler import Sampler
from bushel.engine.sampling.split import SplitChooser
from bushel.engine.sampling.vectorised import VectorisedChooser

from .numpy_samplers import dry_penalties, reworked
from .numpy_sampling import decoding

VOCAB = 12  # so few that everything is said again soon
RULES = TokenRules(banned=((4,), (5, 6), (1, 2, 3)), breakers=(7,))
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2},
    "window": {"repetition_penalty": 1.5, "repeat_last_n": 4},
    "window and penalties": {"repetition_penalty": 0.7, "repeat_last_n": 2, "presence_penalty": 1},
    "no window": {"repetition_penalty": 1.5, "repeat_last_n": 0},
    "dry": {"dry_multiplier": 0.8},
    "dry in a window": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": 9},
    "dry and penalties": {"dry_multiplier": 0.5, "dry_base": 1.2, "repetition_penalty": 1.4},
    "any repetition": {"dry_multiplier": 0.3, "dry_allowed_length": 0, "dry_base": 3.0},
    "bad words": {"rules": True},
    "all": {"dry_multiplier": 0.8, "repetition_penalty": 1.2, "repeat_last_n": 8, "rules": True},
    "allowed": {"allowed_token_ids": [1, 2, 5, 6, 7, 8], "dry_multiplier": 1.0, "rules": True},
    "drawn": {"temperature": 1.5, "seed": 5, "dry_multiplier": 1.0, "xtc_probability": 0.5},
}


def row_of(kind: str) -> Decoding:
    said = dict(KINDS[kind])
    rules = RULES if said.pop("rules", False) else TokenRules(breakers=RULES.breakers)
    return with_token_rules(decoding(VOCAB, **{"temperature": 0.0, **said}), rules)


def logits_at(seed: int, step: int) -> np.ndarray:
    """Of every row at a step; those of a few steps come again, so that texts repeat.

    Often it would say 4, 5 and 6.
    """
    x = np.random.default_rng([seed, step % 3]).normal(size=VOCAB).astype(np.float32)
    x[4 + step % 3] += 1.5
    return x


class Rows:
    """Rows of a sampler. Each has logits of its own, as far as it has come."""

    def __init__(self, kinds: list[str], sampler: Sampler | None = None):
        self.sampler = sampler or Sampler(VOCAB)
        self.kinds: list[str] = []
        self.prompts: list[list[int]] = []
        self.replies: list[list[int]] = []
        for kind in kinds:
            seed = [*KINDS].index(kind)
            self.join(kind, np.random.default_rng(seed).integers(0, VOCAB, 20).tolist(), [])

    def join(self, kind: str, prompt: list[int], reply: list[int]) -> None:
        self.kinds.append(kind)
        self.prompts.append(prompt)
        self.replies.append(list(reply))
        self.sampler.join(row_of(kind), prompt, reply)

    def leave(self, keep: list[int]) -> None:
        self.sampler.leave(keep)
        self.kinds = [self.kinds[at] for at in keep]
        self.prompts = [self.prompts[at] for at in keep]
        self.replies = [self.replies[at] for at in keep]

    def logits(self, at: int) -> np.ndarray:
        return logits_at([*KINDS].index(self.kinds[at]), len(self.replies[at]))

    def step(self) -> list[int]:
        count = len(self.kinds)
        logits = mx.array(np.stack([self.logits(at) for at in range(count)]))[:, None]
        pairs = [*zip(self.prompts, self.replies, strict=True)]
        newest = mx.array([[[*prompt, *reply][-1]] for prompt, reply in pairs], dtype=mx.uint32)
        positions = [len(prompt) + len(reply) for prompt, reply in pairs]
        indices = [len(reply) for reply in self.replies]
        tokens, _ = self.sampler.sample(logits, newest, indices, positions).read(self.sampler.rows)
        self.sampler.check_integrity()
        for reply, token in zip(self.replies, tokens, strict=True):
            reply.append(token)
        return tokens


def best(rows: Rows, at: int) -> int:
    """What numpy takes, for a greedy row."""
    said = rows.prompts[at], rows.replies[at]
    return int(reworked(rows.logits(at), row_of(rows.kinds[at]), *said).argmax())


GREEDY = [kind for kind in KINDS if kind != "drawn"]


@pytest.mark.parametrize("kind", GREEDY)
def test_a_row_alone_says_what_numpy_says(kind: str) -> None:
    rows = Rows([kind])
    for _ in range(40):
        wanted = best(rows, 0)
        assert rows.step() == [wanted]


def test_control_each_setting_makes_a_difference() -> None:
    def reply(kind: str, decoded: str) -> list[int]:
        rows = Rows([kind], Sampler(VOCAB))
        rows.sampler.leave([])
        rows.sampler.join(row_of(decoded), rows.prompts[0], [])
        for _ in range(40):
            rows.step()
        return rows.replies[0]

    same = [kind for kind in GREEDY if reply(kind, kind) == reply(kind, "greedy")]
    assert same == ["greedy", "no window"]


def test_rows_of_all_settings_say_side_by_side_what_they_say_alone() -> None:
    """Among them greedy ones that pay for nothing, and those that are drawn."""
    together, alone = Rows([*KINDS]), [Rows([kind]) for kind in KINDS]
    for _ in range(40):
        assert together.step() == [token for rows in alone for token in rows.step()]


def test_rows_that_come_and_go_and_come_back_say_what_they_would_have_said() -> None:
    """Also where their tokens take more room than there was."""
    rng = np.random.default_rng(0)
    steady = {kind: Rows([kind]) for kind in KINDS}
    for _ in range(60):
        for rows in steady.values():
            rows.step()
    rows, away = Rows([]), [(kind, it.prompts[0], list[int]()) for kind, it in steady.items()]
    while any(len(reply) < 60 for _, _, reply in away) or rows.kinds:
        if rows.kinds:
            rows.step()
            keep = [
                at
                for at, reply in enumerate(rows.replies)
                if len(reply) < 60 and rng.random() < 0.8
            ]
            gone = [at for at in range(len(rows.kinds)) if at not in keep]
            away += [(rows.kinds[at], rows.prompts[at], rows.replies[at]) for at in gone]
            rows.leave(keep)
        for one in [one for one in away if len(one[2]) < 60 and rng.random() < 0.5]:
            away.remove(one)
            rows.join(*one)
    assert len(away) == len(KINDS)
    for kind, _, reply in away:
        assert reply == steady[kind].replies[0], kind


def test_a_long_prompt_is_looked_back_at_as_a_whole() -> None:
    """Beyond the room that a history begins with, which then grows."""
    rng = np.random.default_rng(1)
    rows = Rows([])
    for length in (history._BLOCK - 3, 700):
        for kind in ("dry", "dry in a window", "window", "bad words"):
            rows.join(kind, rng.integers(0, VOCAB, length).tolist(), [])
    for _ in range(12):
        wanted = [best(rows, at) for at in range(len(rows.kinds))]
        assert rows.step() == wanted


@pytest.mark.parametrize("repeated", [1, 2, 5])
def test_repeats_of_a_row_that_comes_back_are_those_that_it_left_with(repeated: int) -> None:
    rng = np.random.default_rng(repeated)
    tokens = np.tile(rng.integers(0, VOCAB - 5, repeated), 150)[:150].astype(np.int32)
    row = row_of("dry")
    for end in (2, 30, 150):
        said = tokens[:end].tolist()
        found = TokenHistory(VOCAB, 0)
        found.join(row, said[:1], [])
        for token in said:
            found.add(mx.array([token], dtype=mx.int32))
        kept = np.array(found._matches)[0][-end:]
        most = row.dry_allowed_length + history.LONGEST
        fresh = repeats(np.array(said, np.int32), row)
        np.testing.assert_array_equal(np.minimum(kept, most)[:-1], fresh[:-1])


def test_the_penalty_of_a_repetition_is_numpys() -> None:
    """And not only its order: the numbers that are taken off."""
    row = replace(row_of("dry"), dry_base=1.1)
    said = [1, 2, 3, 7, 1, 2, 3, 4, 2, 3, 5, 1, 2, 3]
    found = TokenHistory(VOCAB, 0)
    found.join(row, said, [])
    found.add(mx.array(said[-1:], dtype=mx.int32))
    taken = -np.array(found.apply(mx.zeros((1, VOCAB))))[0]
    wanted = dry_penalties(row, said, VOCAB)
    assert np.count_nonzero(wanted) == 3
    np.testing.assert_allclose(taken, wanted, rtol=1e-5)


def test_an_endless_repetition_costs_a_finite_penalty() -> None:
    """So that a reply whose form needs that token can still say it."""
    row = replace(row_of("dry"), dry_base=100.0)
    found = TokenHistory(VOCAB, 0)
    found.join(row, [3] * 500, [])
    found.add(mx.array([3], dtype=mx.int32))
    x = np.array(found.apply(mx.zeros((1, VOCAB))))[0]
    assert np.isfinite(x).all()
    assert x[3] < -1e20


def test_rows_that_a_kernel_cannot_serve_are_served_beside_it() -> None:
    """As on CUDA, with MLX's own operations in the kernel's place."""
    sampler = Sampler(VOCAB)
    kernel = VectorisedChooser(VOCAB)
    sampler.chooser = SplitChooser(kernel, VectorisedChooser(VOCAB))
    together, alone = Rows([*KINDS], sampler), [Rows([kind]) for kind in KINDS]
    assert [row.reworked and row.remembers for row in kernel.rows] == [False] * 3
    for step in range(30):
        assert together.step() == [token for rows in alone for token in rows.step()]
        if step in (5, 12, 20):
            keep = [at for at in range(len(alone)) if at % 3 != step % 3]
            together.leave(keep)
            alone = [alone[at] for at in keep]
            if step == 12:
                together.join("dry", together.prompts[0], [])
                alone.append(Rows([]))
                alone[-1].join("dry", together.prompts[0], [])


@pytest.mark.parametrize(("prompt", "reply", "said"), [([1, 5], [], 6), ([1], [5], 8)])
def test_a_bad_word_counts_where_the_reply_has_begun_it(
    prompt: list[int], reply: list[int], said: int
) -> None:
    """What the prompt has begun may be ended."""
    sampler = Sampler(VOCAB)
    sampler.join(row_of("bad words"), prompt, reply)
    x = np.zeros(VOCAB, np.float32)
    x[[6, 8]] = 2, 1
    newest = mx.array([[5]], dtype=mx.uint32)
    sampled = sampler.sample(mx.array(x)[None, None], newest, [len(reply)], [2])
    assert sampled.tokens.tolist() == [[said]]
