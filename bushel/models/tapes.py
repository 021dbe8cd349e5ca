"""Tapes of what recurrent layers are given in a draft, so that they can go back to a part of it.

A recurrent state has eaten every token: the only way back is the state before the draft, and the
kept tokens again. Both libraries' layers hand what they feed to their state to one function, with
the state itself; what they feed to a convolution they hand to a module. Where a draft is open on
this thread, both are noted; nothing is noted, or done otherwise, anywhere else.

A draft runs token by token: mlx-vlm's qwen3_5 computes more than one token in chunks of 64, which
costs more than all the rest of a small model and rounds otherwise than decoding does.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from bushel.models.known_families import family_of

# By module of either library: those whose layers hand tokens to a function of this name.
_FAMILIES = dict.fromkeys(
    ("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"),
    "gated_delta_update",
)
# Of that function: what it is given for every token.
_BY_TOKEN = ("q", "k", "v", "a", "b")

Advance = Callable[[mx.array, int, mx.array | None], tuple[mx.array, mx.array]]


class Tape:
    """Of one layer: its state before the draft, and what it was given in it."""

    def __init__(self, before: Sequence[mx.array | None]):
        self.before = list(before)
        self.convolved: list[mx.array] = []  # windows and inputs [B, window + W, D], in order
        self.state: mx.array | None = None  # the one that `advance` goes on from
        self.advance: Advance | None = None

    def after(self, now: Sequence[mx.array | None], width: int, kept: Sequence[int]) -> list[Any]:
        """The layer's arrays when row i has run kept[i] of the draft's tokens.

        now: when every row has run all of them.
        """
        if all(count == width for count in kept):
            return list(now)
        windows, after = iter(self.convolved), list(now)
        for slot, (before, array) in enumerate(zip(self.before, now, strict=True)):
            if before is None or array is before:
                continue
            if before is self.state:
                after[slot] = self._replayed(kept)
            else:
                after[slot] = _window(next(windows), before.shape[1], kept)
        return after

    def _replayed(self, kept: Sequence[int]) -> mx.array:
        assert self.state is not None
        assert self.advance is not None
        count = max(kept)
        mask = None
        if min(kept) < count:
            mask = mx.arange(count) < mx.array(list(kept))[:, None]
        _, state = self.advance(self.state, count, mask)
        return state


def _window(source: mx.array, size: int, kept: Sequence[int]) -> mx.array:
    """What a convolution still sees when row i has run kept[i] tokens: [B, size, D]."""
    if len(set(kept)) == 1:
        return mx.contiguous(source[:, kept[0] : kept[0] + size])
    places = mx.array(list(kept))[:, None] + mx.arange(size)
    return mx.take_along_axis(source, places[..., None], axis=1)


class _Open(threading.local):
    """The tapes of the draft that is open on this thread, by their layers' arrays."""

    tapes: dict[int, Tape] | None = None
    convolved: tuple[mx.array, ...] = ()  # since the last state


_open = _Open()


def record(layers: Sequence[Sequence[mx.array | None]]) -> list[Tape]:
    """Begin to note what layers with these arrays are given, and forget any draft before."""
    tapes = [Tape(arrays) for arrays in layers]
    _open.tapes = {id(array): tape for tape in tapes for array in tape.before if array is not None}
    _open.convolved = ()
    return tapes


def stop() -> None:
    _open.tapes, _open.convolved = None, ()


def install(network: Any) -> None:
    """Let a network's recurrent layers be noted, where it is of a family that can be."""
    name = _FAMILIES.get(family_of(network))
    if name is None:
        return
    for _, module in network.named_modules():
        if type(module) is nn.Conv1d:
            module.__class__ = _NotedConv1d
        where = sys.modules[type(module).__module__]
        update = getattr(where, name, None)
        if update is not None and not hasattr(update, "noted"):
            setattr(where, name, _noted(update))


def can_record(network: Any) -> bool:
    """Whether the recurrent layers of this network can go back."""
    return family_of(network) in _FAMILIES


class _NotedConv1d(nn.Conv1d):
    def __call__(self, x: mx.array) -> mx.array:
        if _open.tapes is not None:
            _open.convolved = (*_open.convolved, x)
        convolved: mx.array = super().__call__(x)
        return convolved


def _noted(update: Callable[..., Any]) -> Callable[..., Any]:
    names = tuple(inspect.signature(update).parameters)
    step = _in_steps(update)

    @wraps(update)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if _open.tapes is None:
            return update(*args, **kwargs)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        cache, slot = given.pop("cache", None), given.pop("cache_index", 1)
        state = given.pop("state", None) if cache is None else cache[slot]
        tape = _open.tapes.get(id(state))
        if tape is None or state is None:
            return update(*args, **kwargs)
        given.pop("mask", None)  # rows of a batch have no padding
        tape.state, tape.advance = state, _advance(step, given)
        tape.convolved, _open.convolved = list(_open.convolved), ()
        y, after = tape.advance(state, given["q"].shape[1], None)
        if cache is not None:
            cache[slot] = after
        return y, after

    noted.noted = True  # type: ignore[attr-defined]
    return noted


def _advance(step: Callable[..., Any], given: Mapping[str, Any]) -> Advance:
    def advance(state: mx.array, count: int, mask: mx.array | None) -> tuple[mx.array, mx.array]:
        cut = {name: given[name][:, :count] for name in _BY_TOKEN}
        y, after = step(**{**given, **cut}, state=state, mask=mask)
        return y, after

    return advance


def _in_steps(update: Callable[..., Any]) -> Callable[..., Any]:
    """The same, token by token."""
    where = sys.modules[update.__module__]
    if not hasattr(where, "gated_delta_chunked"):
        return update

    def step(
        q: mx.array,
        k: mx.array,
        v: mx.array,
        a: mx.array,
        b: mx.array,
        A_log: mx.array,
        dt_bias: mx.array,
        state: mx.array,
        mask: mx.array | None,
        use_kernel: bool = True,
    ) -> Any:
        if use_kernel and mx.default_device() == mx.gpu and mx.metal.is_available():
            return update(q, k, v, a, b, A_log, dt_bias, state, mask)
        g, beta = where._compute_g_beta(A_log, a, b, dt_bias)
        return where.gated_delta_ops(q, k, v, g, beta, state, mask)

    return step
