"""The last hidden state beside the logits, of families that are a body (`.model`) and a head.

The network computes its logits as ever; what its body gave on the way is kept. So whatever a
family does in its head (tied weights, scaling, soft caps) need not be known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import local
from typing import Any

import mlx.core as mx

from bushel.core import ModelError


def body_of(network: Any) -> Any:
    """The layers up to the last norm, without the head; ModelError where they are not apart."""
    language = getattr(network, "language_model", network)
    body = getattr(language, "model", None)
    if not callable(body):
        raise _none(network)
    return body


@contextmanager
def recorded(body: Any) -> Iterator[list[Any]]:
    """What a module gives whenever it is called in this block; it is as it was behind it."""
    kind: Any = type(body)
    before, outputs = _outputs.now, list[Any]()
    body.__class__, _outputs.now = _recording(kind), outputs
    try:
        yield outputs
    finally:
        body.__class__, _outputs.now = kind, before


class _Outputs(local):
    """Each thread's own."""

    def __init__(self) -> None:
        self.now: list[Any] = []  # of the block that runs


_outputs = _Outputs()


@cache
def _recording(kind: Any) -> Any:
    """Made once: whatever Python knows of a class, it would have to find out anew in every step."""

    class Recorded(kind):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            output = super().__call__(*args, **kwargs)
            _outputs.now.append(output)
            return output

    return Recorded


def hidden_among(outputs: list[Any], logits: mx.array, network: Any) -> mx.array:
    """[B, n, D]; ModelError if what the body gave is something else."""
    last = outputs[-1] if outputs else None
    hidden = last[0] if isinstance(last, tuple | list) and last else last
    if not isinstance(hidden, mx.array) or hidden.shape[:-1] != logits.shape[:-1]:
        raise _none(network)
    if hidden.shape == logits.shape:  # some bodies have their head inside
        raise _none(network)
    return hidden


def _none(network: Any) -> ModelError:
    family = type(network).__module__.removeprefix("mlx_lm.models.").removeprefix("mlx_vlm.models.")
    return ModelError(
        f"The hidden states of {family} cannot be had: it has no body and head apart."
    )
