"""Rows whose replies are known beforehand, as a drafter of hidden states is told of them."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from bushel.core import GenerationDefaults, Prepared, Request, SamplingParams
from bushel.core.params import resolve
from bushel.engine.drafts.drafter import KeptRound
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply
from bushel.models import Model, Prompt
from bushel.models.mtp import HeadKVCache

END = 1


class KnownRow:
    """hidden: [T, D], of every token of prompt and reply."""

    def __init__(
        self, model: Model, prompt: Sequence[int], reply: Sequence[int], hidden: np.ndarray
    ):
        self.model, self.prompt, self.ids = model, list(prompt), [*prompt, *reply]
        self.hidden = hidden
        params = SamplingParams(max_tokens=len(reply), temperature=0.0)
        ends = frozenset({END})
        decoding = resolve(params, GenerationDefaults(), vocab=model.vocab, end_ids=ends)
        request = Request("r", Prepared(tuple(prompt)), (decoding,))
        self.sequence = Reply.start(request, 0, lambda *_: "", None)
        self.known: list[int] = []  # tokens whose hidden states the head was given

    @property
    def position(self) -> int:
        """Tokens that have been run."""
        return len(self.prompt) - 1 + len(self.sequence.tokens)

    @property
    def left(self) -> int:
        """Tokens that it has still to say."""
        return len(self.ids) - 1 - self.position

    def ready(self, read: int, chunk: int = 16) -> PrefilledRow:
        """Prefilled; the head was given the last `read` tokens of its prompt."""
        context = HeadContext()
        prompt = Prompt(tuple(self.prompt))
        self.known = list(range(len(self.prompt) - 1 - read, len(self.prompt) - 1))
        for at in range(0, read, chunk):
            start = self.known[at]
            hidden = mx.array(self.hidden[None, start : self.known[at : at + chunk][-1] + 1])
            context.add(self.model, prompt, self.ids, start, hidden)
        return PrefilledRow(self.sequence, prompt, self.position, [], None, context)

    def holds(self, drafts: Sequence[int]) -> int:
        """How many of these drafts are what it says next."""
        following = self.ids[self.position + 1 :]
        pairs = zip(drafts, following, strict=False)
        return next((at for at, (draft, token) in enumerate(pairs) if draft != token), len(drafts))

    def say(self, count: int, *, read: bool = True) -> None:
        before = self.position
        self.sequence.tokens += self.ids[before + 1 : before + 1 + count]
        self.sequence.launched = len(self.sequence.tokens)
        if read:
            self.known += range(before, before + count)

    def expected(self, depth: int) -> list[int]:
        """What the head drafts now, from all it was given, by itself and from the beginning."""
        head, cache = self.model.mtp, HeadKVCache(1)
        assert head is not None
        for run in _runs(self.known):
            hidden = mx.array(self.hidden[None, run])
            following = mx.array([[self.ids[at + 1] for at in run]])
            ahead = head(hidden, following, [run[0]], cache.lengths, cache)
            cache.lengths = [cache.lengths[0] + len(run)]
        state, drafts = ahead[:, -1:], list[int]()
        for at in range(depth):
            token = mx.argmax(head.logits(state), axis=-1)
            drafts.append(int(token.item()))
            starts = [cache.lengths[0] + at]
            state = head(state, token, [self.position + at], starts, cache)
        return drafts


def _runs(known: Sequence[int]) -> list[list[int]]:
    """Tokens that follow each other, together."""
    runs: list[list[int]] = []
    for at in known:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def keep(
    drafter: MTPDrafter, rows: Sequence[KnownRow], kept: Sequence[int], *, hidden: bool = True
) -> None:
    """A pass that keeps so many inputs of each row; what it gave for others is noise."""
    width = max(kept)
    states = np.random.default_rng(9).standard_normal((len(rows), width, rows[0].hidden.shape[1]))
    for at, (row, count) in enumerate(zip(rows, kept, strict=True)):
        states[at, :count] = row.hidden[row.position : row.position + count]
        row.say(count, read=hidden)
    given = mx.array(states.astype(np.float32)) if hidden else None
    drafter.kept(KeptRound(kept, given))
