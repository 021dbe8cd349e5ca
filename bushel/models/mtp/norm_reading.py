"""Whether a head's norms are stored as they are, or as their distance from one.

Qwen publishes distances, and converters add one: to all norms, to the body's alone, or to those
whose names they know. A head that is read wrongly drafts nothing that holds, and says nothing of
it. So where the files do not tell, every reading is tried on a short talk, and the one by which the
head foretells best what the body itself would say is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.core import BushelError
from bushel.models.mtp.head_cache import HeadKVCache
from bushel.models.mtp.mtp_head import MTPHead

if TYPE_CHECKING:
    from bushel.models.model import Model

_TALK = (
    "Hello! What is the capital of France?",
    "The capital of France is Paris.",
    "Say this again: a red apple and a green pear",
    "a red apple and a green pear",
    "How much is 2 + 3?",
    "2 + 3 = 5",
)
_SURE, _FEW = 0.9, 8  # tokens that the body itself is sure of tell most, if there are some
# Norms that a converter knows together.
_GROUPS = (("layer.",), ("embedding_norm.", "hidden_norm."), ("norm.",))
# Nats of each token by which another reading has to be better. Of bushel:tiny's head the right one
# is by 0.5 to 10, or others are like it; of random weights readings that differ are within 0.15.
_BETTER = 0.25


def add_one(head: MTPHead, groups: Sequence[tuple[str, ...]] = _GROUPS) -> None:
    """To the norms of these groups."""
    prefixes = tuple(prefix for group in groups for prefix in group)
    head.block.load_weights(
        [
            (name, weight + 1 if weight.ndim == 1 and name.startswith(prefixes) else weight)
            for name, weight in _weights(head)
        ]
    )


def settle_norms(head: MTPHead, model: Model) -> None:
    """Read the norms as the body would have them."""
    stored = _weights(head)
    text = _Text(model)
    readings = [
        groups
        for count in range(len(_GROUPS) + 1)
        for groups in itertools.combinations(_GROUPS, count)
    ]
    scores = []
    for groups in readings:
        add_one(head, groups)
        scores.append(text.score(head))
        head.block.load_weights(stored)
    best = max(range(len(readings)), key=scores.__getitem__)
    if scores[best] > scores[0] + _BETTER:
        add_one(head, readings[best])


class _Text:
    """Hidden states of a short talk, and what the body would say after each of its tokens."""

    def __init__(self, model: Model):
        self._ids = mx.array([model.host.encode(_talk(model))])
        logits, self._hidden = model.forward_with_hidden(self._ids, [0], model.make_state())
        chances = mx.softmax(logits[:, 1:].astype(mx.float32), axis=-1)
        self._wanted = mx.argmax(chances, axis=-1)[..., None]
        sure = chances.max(axis=-1, keepdims=True) > _SURE
        few: Any = (sure.sum() < _FEW).item()
        self._weight = mx.ones_like(sure) if few else sure

    def score(self, head: MTPHead) -> float:
        """How likely, on average, the head finds what the body would say."""
        ahead = head(self._hidden[:, :-1], self._ids[:, 1:], [0], [0], HeadKVCache(1))
        logits = head.logits(ahead).astype(mx.float32)
        likely = mx.take_along_axis(logits, self._wanted, axis=-1)
        likely = likely - mx.logsumexp(logits, axis=-1, keepdims=True)
        mean: Any = ((likely * self._weight).sum() / self._weight.sum()).item()
        return float(mean)


def _talk(model: Model) -> str:
    """As its template writes it, if it has one."""
    turns = [
        {"role": "assistant" if at % 2 else "user", "content": text}
        for at, text in enumerate(_TALK)
    ]
    try:
        return model.tokenizer.render(turns)
    except BushelError:
        return "\n".join(_TALK)


def _weights(head: MTPHead) -> list[tuple[str, mx.array]]:
    leaves: Any = tree_flatten(head.block.parameters())
    return list(leaves)
