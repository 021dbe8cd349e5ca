"""What each prompt gets alone, from a bare mlx-lm loop: replies are held to that.

    equal   the tokens of the solo run
    within  another token, but nowhere one that scores less than the best one by more than rounding
    wrong   anything else: another token, too few, too many
    failed  no reply

What a token scores is asked of the bare model with the reply's own tokens before it, so that a
reply which left the solo run at a tie is checked to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from benchmarks.field.loads import Load
from benchmarks.field.records import Run
from bushel.engine.solo_run import BOUNDS

VERDICTS = ("equal", "within", "wrong", "failed")


def verdict(reply: Sequence[int], new: int, apart: float, bound: float) -> str:
    """apart: by how much a token of the reply scores less than the best one there, at most."""
    if not reply:
        return "failed"
    if len(reply) != new or not apart <= bound:
        return "wrong"
    return "equal" if apart <= 0 else "within"


@dataclass
class Solo:
    """literal: replies are compared with those of a loop, token by token. Without it a reply is
    equal if each of its tokens is the best one after those before it, which is what the loop takes:
    the same but for rounding, at a tenth of the time.
    """

    network: Any
    dtype: mx.Dtype
    literal: bool
    _replies: dict[tuple[tuple[int, ...], int], list[int]] = field(default_factory=dict)
    # Sides and rounds mostly say the same.
    _verdicts: dict[tuple[tuple[int, ...], ...], str] = field(default_factory=dict)

    def reply(self, ids: tuple[int, ...], new: int) -> list[int]:
        if (ids, new) not in self._replies:
            steps = generate_step(mx.array(ids), self.network, max_tokens=new)
            self._replies[ids, new] = [int(token) for token, _ in steps]
        return self._replies[ids, new]

    def apart(self, ids: Sequence[int], reply: Sequence[int]) -> float:
        layers, last = make_prompt_cache(self.network), len(ids) - 1
        for at in range(0, last, 2048):
            self.network(mx.array([list(ids[at : min(at + 2048, last)])]), cache=layers)
            mx.eval([layer.state for layer in layers])
        logits = self.network(mx.array([[ids[-1], *reply[:-1]]]), cache=layers)[0]
        logits = logits.astype(mx.float32)
        chosen = mx.take_along_axis(logits, mx.array(list(reply))[:, None], axis=-1)[:, 0]
        return float((logits.max(axis=-1) - chosen).max())

    def check(self, ids: tuple[int, ...], reply: Sequence[int], new: int) -> str:
        key = ids, tuple(reply), (new,)
        if key not in self._verdicts:
            self._verdicts[key] = self._check(ids, reply, new)
        return self._verdicts[key]

    def _check(self, ids: tuple[int, ...], reply: Sequence[int], new: int) -> str:
        if self.literal and list(reply) == self.reply(ids, new):
            return "equal"
        apart = self.apart(ids, reply) if reply else 0.0
        given = verdict(reply, new, apart, BOUNDS[self.dtype])
        return "within" if self.literal and given == "equal" else given

    def count(self, load: Load, run: Run) -> dict[str, int]:
        """Replies by verdict."""
        counts = dict.fromkeys(VERDICTS, 0)
        for arrival, reply in zip(load, run.replies, strict=True):
            counts[self.check(arrival.ids, reply.tokens, arrival.new)] += 1
        return counts
