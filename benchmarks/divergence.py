"""Where replies with drafts part from plain ones in low precision, and whether rounding is why.

    python -m benchmarks.divergence --model 8b --dtype bfloat16

A pass that is wider rounds otherwise, as a batch of another size does: where two tokens score
nearly alike, either may be said. Plain replies are run again token by token, alone and eight
together: the largest difference of any logit between both is what batching alone may change. A
reply with drafts may part from the plain one where both say a token that scores less than the best
one by no more than that, and nowhere else. Drafts are taken from the plain reply, some of them
wrong; a run in which none was accepted, or none refused, shows nothing and fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from functools import partial

import mlx.core as mx
import numpy as np

from benchmarks.drafts import Side, request
from benchmarks.networks import BYTES, CONFIGS, make
from benchmarks.rounds import about_mlx
from bushel.cache import BatchState
from bushel.engine.attention_route import choose_attention
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile
from bushel.engine.drafts.drafter import KeptRound
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.row_state import new_row
from bushel.engine.sequence import Sequence as Reply
from bushel.models import Model

_ROWS = 8
_DEPTH = 4


class Rehearsed:
    """A `Drafter` for replies that are known; at a set rate its guesses hold."""

    name, wants_hidden = "rehearsed", False

    def __init__(self, replies: dict[tuple[int, ...], list[int]], rate: float, deepest: int):
        self._replies, self._rate, self.deepest = replies, rate, deepest
        self._rows: list[Reply] = []

    def join(self, rows: Collection[PrefilledRow]) -> None:
        self._rows += [ready.sequence for ready in rows]

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in keep]

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        return [[1.0] * min(self.deepest, row.draft_room) for row in self._rows]

    def propose(self, depths: Sequence[int]) -> list[list[int]]:
        return [self._draft(row, depth) for row, depth in zip(self._rows, depths, strict=True)]

    def _draft(self, row: Reply, depth: int) -> list[int]:
        ids, said = tuple(row.request.prompt.ids), len(row.tokens)
        reply = self._replies[ids][said : said + depth]
        # A wrong guess at fixed places of each reply, as often as the rate leaves.
        wrong = np.random.default_rng(hash(ids) % 2**32).random(said + depth)[said:] > self._rate
        return [token ^ int(miss) for token, miss in zip(reply, wrong, strict=False)]

    def kept(self, round: KeptRound) -> None:
        pass

    def check_integrity(self) -> None:
        pass


def logits_of(model: Model, prompts: Sequence[list[int]], replies: Sequence[list[int]]) -> mx.array:
    """Of all rows together, before each token of their replies: [B, n, V]."""
    rows = BatchState(model.make_state, model.pages)
    found = []
    states = []
    for ids in prompts:
        state = new_row(model)
        found.append(model.forward(mx.array([ids]), [0], state)[:, -1:])
        mx.eval(found, [layer.state for layer in state])
        states.append((state, len(ids)))
    rows.join_all(states)
    each = [mx.concatenate(found)]
    for at in range(len(replies[0]) - 1):
        rows.reserve(1)
        tokens = mx.array([[reply[at]] for reply in replies])
        each.append(model.forward(tokens, rows.positions, rows.layers)[:, -1:])
        rows.advance([1] * len(replies))
        mx.eval(each[-1])
    return mx.concatenate(each, axis=1).astype(mx.float32)


def first_difference(one: list[int], two: list[int]) -> int | None:
    return next(
        (at for at, pair in enumerate(zip(one, two, strict=True)) if len({*pair}) > 1), None
    )


def compare(model: Model, rows: int, tokens: int, rate: float) -> bool:
    chance = np.random.default_rng(0)
    prompts = [chance.integers(BYTES, model.vocab - 1, 128).tolist() for _ in range(_ROWS)]
    requests = [partial(request, model, ids, tokens, False) for ids in prompts]
    plain = Side(Engine(model, Policy(max_batch=rows)), requests)
    plain.serve(_ROWS)
    replies = {tuple(ids): reply for ids, reply in zip(prompts, plain.replies, strict=True)}
    profile = CostProfile(tuple((1.0, *[1.01] * _DEPTH) for _ in range(rows)))
    makers = (partial(Rehearsed, replies, rate, _DEPTH),)
    engine = Engine(model, Policy(max_batch=rows), speculation=Speculation(makers, profile, None))
    drafts = Side(engine, requests)
    drafts.serve(_ROWS)
    together = logits_of(model, prompts, plain.replies)
    alone = [logits_of(model, [prompts[row]], [plain.replies[row]]) for row in range(_ROWS)]
    largest = max(mx.abs(one[0] - together[row]).max().item() for row, one in enumerate(alone))
    print(f"{rows} at once: {drafts.accepted} of {drafts.drafted} drafts were accepted")
    if not 0 < drafts.accepted < drafts.drafted:
        return False
    print(f"largest difference of a logit, alone and {_ROWS} together: {largest:.4f}")
    own = alone if rows == 1 else [together[row : row + 1] for row in range(_ROWS)]
    explained = True
    for row, (one, two) in enumerate(zip(plain.replies, drafts.replies, strict=True)):
        place = first_difference(one, two)
        if place is None:
            print(f"row {row}: equal")
            continue
        scores, best = own[row][0, place], own[row][0, place].max()
        gap = (best - mx.minimum(scores[one[place]], scores[two[place]])).item()
        explained &= gap <= largest
        print(f"row {row}: parts at {place}, by a token that scores {gap:.4f} less than the best")
    return explained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="20m", choices=tuple(CONFIGS))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.8, help="of drafts that are right")
    options = parser.parse_args()
    print(f"{about_mlx()}, {options.model}, {options.dtype}")
    model = make(options.model, getattr(mx, options.dtype))
    print(choose_attention(model, "auto"))
    explained = [compare(model, rows, options.tokens, options.rate) for rows in (1, _ROWS)]
    if not all(explained):
        raise SystemExit("drafts made no difference, or one that rounding does not explain")


if __name__ == "__main__":
    main()
