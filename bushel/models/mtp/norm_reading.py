"""Whether a head's norms are stored as they are, or as their distance from one.

Qwen publishes distances, and converters add one: to all norms, to the body's alone, or to those
whose names they know. A head that is read wrongly drafts nothing that holds, and says nothing of
it. So where the files do not tell, every reading is tried on a short text, and the one by which
the head foretells best what the body itself would say is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.models.mtp.head_cache import HeadKVCache
from bushel.models.mtp.mtp_head import MTPHead

if TYPE_CHECKING:
    from bushel.models.model import Model

_TEXT = """The quick brown fox jumps over the lazy dog. A list of the days of the week: Monday, \
Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday. What is the capital of France? The capital \
of France is Paris. def add(a, b): return a + b"""
_MOST = 64  # tokens of it
# Norms that a converter knows together.
_GROUPS = (("layer.",), ("embedding_norm.", "hidden_norm."), ("norm.",))
# Nats of each token by which another reading has to be better: right ones are by 2 to 10, and of
# random weights all are alike.
_BETTER = 0.5


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
    """Hidden states of a text, and what the body would say after each of its tokens."""

    def __init__(self, model: Model):
        self._ids = mx.array([model.host.encode(_TEXT)[:_MOST]])
        logits, self._hidden = model.forward_with_hidden(self._ids, [0], model.make_state())
        self._wanted = mx.argmax(logits[:, 1:], axis=-1)[..., None]

    def score(self, head: MTPHead) -> float:
        """How likely, on average, the head finds what the body would say."""
        ahead = head(self._hidden[:, :-1], self._ids[:, 1:], [0], [0], HeadKVCache(1))
        logits = head.logits(ahead).astype(mx.float32)
        chosen = mx.take_along_axis(logits, self._wanted, axis=-1)
        likely: Any = (chosen - mx.logsumexp(logits, axis=-1, keepdims=True)).mean().item()
        return float(likely)


def _weights(head: MTPHead) -> list[tuple[str, mx.array]]:
    leaves: Any = tree_flatten(head.block.parameters())
    return list(leaves)
