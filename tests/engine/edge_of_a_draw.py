"""Whether two runs of one request that drew different tokens did so by rounding, or by a mistake.

A token is drawn where a uniform number, a function of seed and position, falls among running sums
of the tokens' weights. Passes of other shapes round logits otherwise, and borders move with them:

    numbers   0                                        1
    one run   |------ a ------|--- b ---|------ c ------|
    another   |------ a -----|---- b ---|------ c ------|
    u                        ^                             at the edge: a in one, b in the other

What happened is judged from the request alone: it is run once more, alone and token by token, up to
where the replies part. There the mask is that of a grammar at its start which takes the same
tokens, penalties are counted anew, and the number is that of the seed and the place. Both tokens
have to be what is drawn from that, if logits and number are off by no more than rounding. Of draws
that another number, mask or logit has changed, hardly any pass for that (`test_edge_of_a_draw`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from bushel import LLM, Choice, Output, SamplingParams, TokenLogprob
from bushel.arguments import Prompt
from bushel.chat.script_request import checked_request
from bushel.core import Decoding, Request
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.constraints.masker import Masker
from bushel.engine.sampling import draw, vectorised
from bushel.engine.sampling.chooser import Masks, SamplingStep
from bushel.engine.sampling.sampler import Sampler
from bushel.models import Model
from bushel.text.grammar_compiler import compiled
from tests.llm.request_builders import BOUND, assert_same_choice, difference

# By how much a logit of float32 differs between two passes. The largest difference among those of
# 50,000 tokens of `bushel:tiny`, with drafts and without, was 3.2e-5.
ROUNDING = 5e-5
# By how much a border differs besides: weights have seven squarings of float32 behind them.
_SUMS = 1e-5
_GRID = 2.0**-24  # of uniform numbers
_FARTHEST = 1 << 14  # steps of it that are tried, where next to no temperature allows more
_SIGNS = 64  # ways in which all logits are off at once
_AT_ONCE = 256  # draws


class Redrawn(NamedTuple):
    """token: what is drawn. near: what is, or might be if something was rounded otherwise."""

    token: int
    near: frozenset[int]

    def edge(self, one: int, other: int) -> bool:
        """Whether these are two sides of an edge, and the number lies at it."""
        return self.token in (one, other) and self.near.issuperset((one, other))


def redraw(logits: np.ndarray, row: Decoding, position: int) -> Redrawn:
    """Draw from logits [V], after masks, penalties and bias, with the numbers of that place."""
    numbers = draw.uniforms([row.seed], [position], 1)[0]  # [1, 2, K]
    [token] = drawn(logits[None], numbers, row)
    # What is the best, or among the best, does not hang on numbers.
    signs = np.random.default_rng(0).choice([-ROUNDING, ROUNDING], (_SIGNS, len(logits)))
    rounded = (logits + signs).astype(np.float32)
    near = {token, *drawn(rounded, np.repeat(numbers, _SIGNS, axis=0), row)}
    if draw.route(row) != "greedy":
        near.update(drawn(logits[None], _numbers_near(numbers, row.temperature), row))
    return Redrawn(token, frozenset(near))


def _numbers_near(numbers: np.ndarray, temperature: float) -> np.ndarray:
    """[N, 2, K], all to which a border may have moved.

    A logit that is off by d moves no border by more than d / 2, in units of the temperature. A draw
    takes two numbers, a group's and a token's in it: either is moved, as no two lie at an edge.
    """
    slack = ROUNDING / temperature / 2 + _SUMS
    reach = min(round(slack / _GRID), _FARTHEST)
    steps = np.arange(-reach, reach + 1) * _GRID
    moved = np.repeat(numbers, 2 * len(steps), axis=0)
    moved[: len(steps), 0] += steps[:, None]
    moved[len(steps) :, 1] += steps[:, None]
    return np.clip(moved, 0, 1 - _GRID).astype(np.float32)


def drawn(logits: np.ndarray, numbers: np.ndarray, row: Decoding) -> list[int]:
    """A token for each of numbers [N, 2, K], from logits [N or 1, V]."""
    tokens: list[int] = []
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        mine = logits[start : start + _AT_ONCE] if len(logits) > 1 else logits
        x = mx.array(np.broadcast_to(mine, (len(some), logits.shape[1])))
        rows = [row] * len(some)
        group = vectorised._group(draw.route(row), rows, [*range(len(some))], None)
        tokens += np.array(group.tokens(x, some)).reshape(-1).tolist()
    return tokens


class _Final(vectorised.VectorisedChooser):
    """Keeps what it has drawn from."""

    logits: mx.array

    def _drawn(self, logits: mx.array, penalised: mx.array | None, turn: SamplingStep) -> mx.array:
        x = (logits if penalised is None else penalised).astype(mx.float32)
        self.logits = x if turn.bias is None else x + turn.bias
        return super()._drawn(logits, penalised, turn)


def drawn_from(
    logits: mx.array, row: Decoding, prompt: Sequence[int], reply: Sequence[int],
    masks: Masks | None = None,
) -> np.ndarray:  # fmt: skip
    """What the token after a reply is drawn from, [V] of a model's logits [V]."""
    sampler = Sampler(logits.shape[0])
    sampler.chooser = final = _Final(logits.shape[0])
    said = [*prompt, *reply]
    sampler.join(row, prompt, reply)
    sampler._plain = False  # not even a greedy row goes without its chooser
    sampler.sample(logits[None, None], mx.array([said[-1:]]), [len(reply)], [len(said)], masks)
    return np.array(final.logits[0])


def logits_after(model: Model, request: Request, reply: Sequence[int]) -> mx.array:
    """[V] of one row alone, in the library's own state."""
    prompt, state = model.embed(request.prompt), model.make_state()
    length = len(prompt.ids)
    logits = model.prefill(prompt, 0, length, state)
    for position, token in enumerate(reply, length + prompt.delta):
        logits = model.forward(mx.array([[token]]), [position], state)
        mx.eval(logits)
    return logits[0, -1].astype(mx.float32)


def masks_after(model: Model, row: Decoding, reply: Sequence[int]) -> Masks | None:
    """Of one row, by a grammar that has drafted nothing."""
    if row.constraint is None:
        return None
    grammar, tokens = row.constraint.grammar, model.host.profile.grammar_tokens
    matcher = None if grammar is None else compiled(tokens, grammar)
    constrained = ConstrainedRow(row, model.tokenizer.decode, matcher)
    constrained.follow(reply)
    if not constrained.holds(len(reply)):
        return None
    masker = Masker(model.vocab, len(model.tokenizer.hf), model.tokenizer.end_ids)
    masks, failed = masker.make([constrained])
    assert not failed, failed
    return masks


def request_of(llm: LLM, request: Prompt, params: SamplingParams) -> Request:
    """What `submit` makes of them."""
    given = {"prompt": request} if isinstance(request, str) else request
    return llm._prepare(llm._own_engine(), "again", checked_request(given), params)


@dataclass
class Edges:
    """Of the replies of one test, those that part from their twins at the edge of a draw.

    most: so many may be, by how often rounding moves a border over a number. Others are mistakes,
    however well each of them is explained.
    """

    llm: LLM
    most: int
    found: list[str] = field(default_factory=list)

    def compare(self, request: Request, output: Output, other: Output) -> None:
        """Tokens, texts, endings and log-probabilities are the same; or tokens and
        log-probabilities are, up to an edge. If `output` was given up, it is the beginning.
        """
        assert len(output.choices) == len(other.choices) == len(request.choices)
        pairs = zip(output.choices, other.choices, strict=True)
        for choice, (mine, its) in enumerate(pairs):
            at = parting(mine.token_ids, its.token_ids)
            if at is not None:
                self._judge(request, choice, at, mine, its)
            elif mine.finish_reason == "abort":
                at = len(mine.token_ids)
                assert at <= len(its.token_ids)
            else:
                assert_same_choice(mine, its)
            assert difference(_first(mine, at), _first(its, at)) < BOUND

    def _judge(self, request: Request, choice: int, at: int, one: Choice, other: Choice) -> None:
        model, row = self.llm._own_engine().model, request.choices[choice]
        prompt, reply = request.prompt.ids, one.token_ids[:at]
        tokens = one.token_ids[at], other.token_ids[at]
        logits = logits_after(model, request, reply)
        final = drawn_from(logits, row, prompt, reply, masks_after(model, row, reply))
        redrawn = redraw(final, row, len(prompt) + at)
        what = (
            f"request {request.id}, choice {choice}, seed {row.seed}: at token {at} one run drew "
            f"{tokens[0]} and another {tokens[1]}; alone it is {redrawn.token}, by rounding one of "
            f"{sorted(redrawn.near)}"
        )
        assert redrawn.edge(*tokens), what
        norm = mx.logsumexp(logits)
        for told in (one.logprobs, other.logprobs):
            if told is not None:
                alone = float(logits[told[at].token_id] - norm)
                assert abs(told[at].logprob - alone) < BOUND, (what, told[at], alone)
        self.found.append(what)
        assert len(self.found) <= self.most, self.found


def parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place with two different tokens."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, its) in pairs if mine != its), None)


def _first(choice: Choice, count: int | None) -> list[TokenLogprob] | None:
    return None if choice.logprobs is None else choice.logprobs[:count]
