"""One row by itself, as the library's own loop runs it: what batched rows are held to.

It has no part in `BatchState`, the decode batch or the scheduler, so that a mistake in any of them
shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.models import Model, Prompt, State, device


class SoloRun:
    """Owned by whoever compares. `run` takes tokens one at a time, the prompt's last one first."""

    def __init__(self, model: Model, prompt: Prompt, state: State | None = None):
        """state: to run in; it is the library's own unless somebody wants another tried."""
        self._model, self._prompt = model, prompt
        self.state = model.make_state() if state is None else state
        self.position = len(prompt.ids) - 1
        if self.position:
            model.prefill(prompt, 0, self.position, self.state)
            mx.eval([layer.state for layer in self.state])

    def run(self, token: int | None = None) -> mx.array:
        """Log-probabilities [V] after one more token; None is the prompt's last one."""
        if token is None:
            logits = self._model.prefill(self._prompt, self.position, self.position + 1, self.state)
        else:
            where = [self.position + self._prompt.delta]
            logits = self._model.forward(mx.array([[token]]), where, self.state)
        self.position += 1
        after = logprobs(logits)[0]
        mx.eval(after)
        return after


def logprobs(logits: mx.array) -> mx.array:
    """[B, V] in float32, of logits [B, n, V] after the last token."""
    last = logits[:, -1].astype(mx.float32)
    return last - mx.logsumexp(last, axis=-1, keepdims=True)


def apart(one: mx.array, two: mx.array) -> float:
    """The largest difference; equal infinities do not differ, and not a number does."""
    return float(mx.where(one == two, 0.0, mx.abs(one - two)).max())


# Largest difference of a log-probability that is rounding, by the coarsest type that the model
# computes in. Measured on small random models, the 64 best tokens of every step:
#   float32    batched against alone: 0.8e-5 to 5.5e-5 (gemma3)
#   bfloat16   batched against alone on a CPU: 0 to 0.06. Against float32 with the same weights,
#              which is all the rounding there is: 0.12 to 0.39, gemmas up to 1.3
#   float16    likewise 0 to 0.015, and 0.02 to 0.04, gemmas up to 0.18
# A row that sees its padding, or a position that is one off, makes whole numbers of nats.
BOUNDS = {mx.bfloat16: 0.5, mx.float16: 0.06, mx.float32: 1e-4}

# The same of numbers that an encoder gives, which are below one. Measured on an encoder of 22M
# weights on a CPU, padded against alone: 0 in half precision, 1e-7 in float32.
VECTORS = {mx.bfloat16: 0.03, mx.float16: 0.004, mx.float32: 1e-4}

# Encoded keys jump by a step where rounding takes them over its edge: up to 0.02 in float32.
ENCODED = 0.1


def bound(model: Model) -> float:
    kind = precision(model)
    if kind == mx.float32 and device.TF32:  # a fraction of ten bits, as float16 has
        kind = mx.float16
    if model.encodes:
        return VECTORS[kind]
    rounding = BOUNDS[kind]
    return rounding if model.kv_bits is None else max(rounding, ENCODED)


def precision(model: Model) -> mx.Dtype:
    """The coarsest type that a token leaves behind: what the model's arithmetic rounds to."""
    if model.encodes:
        weights = {array.dtype for array in _leaves(model.network.parameters())}
        return next((dtype for dtype in BOUNDS if dtype in weights), mx.float32)
    state = model.make_state()
    logits = model.forward(mx.array([[0]]), [0], state)
    kept = {array.dtype for array in (logits, *_arrays(state))}
    return next((dtype for dtype in BOUNDS if dtype in kept), mx.float32)


def _arrays(state: list[Any]) -> Iterator[mx.array]:
    yield from _leaves([layer.state for layer in state])


def _leaves(tree: Any) -> Iterator[mx.array]:
    leaves: Any = tree_flatten(tree)
    yield from (leaf for _, leaf in leaves if isinstance(leaf, mx.array))
