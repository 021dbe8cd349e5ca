"""Records a draft's inputs to recurrent layers, so that rejected tokens can be rolled back.

A recurrent state holds every token it has run, and none can be taken out: to roll back is to start
from the state before the draft and run the accepted tokens again, in one call with a mask. Where a
draft computes the state after each of its tokens, and all of them are small, they are kept instead,
and a row's is chosen.

Both libraries' layers hand what they feed to their state to one function, with the state itself,
and what they feed to a convolution to a module. Where a draft is open on this thread, both are
recorded; nothing is recorded, or done otherwise, anywhere else.

A draft runs token by token, as decoding does: what is computed of several tokens at once rounds
otherwise, and mlx-vlm's qwen3_5 computes more than one in chunks of 64, which costs more than all
the rest of a small model. Where a kernel does that, running accepted tokens again is as quick: no
state is kept but the first.
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

from bushel.models.device import ON_CPU, ON_CUDA
from bushel.models.known_families import family_of

Arrays = list[mx.array | None]
# Goes on from a state by a draft's tokens, or by what is kept of them: outputs, and the state.
Advance = Callable[[mx.array, "KeptTokens | None"], tuple[mx.array, mx.array]]

# Bytes of states that a draft may keep. Going on from the state before costs a quarter of a draft's
# pass where there is no kernel for it (`bushel:tiny`, CPU); a model of 122B would keep 147 MB for
# each row and token.
KEPT_STATES = 1 << 30
# Functions that recurrent layers call, and what these are given for every token.
_BY_TOKEN = {
    "gated_delta_update": ("q", "k", "v", "a", "b"),
    "ssm_update": ("hidden_states", "B", "C", "dt"),
}
# By module of either library: which of them its layers call. None: they have convolutions alone.
_FAMILIES: dict[str, str | None] = {
    **dict.fromkeys(
        (
            *("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"),
            *("prism_hadamard_qwen35", "minicpmv4_6", "minicpmv4_7", "kimi_linear", "kimi_k3"),
            *("bailing_moe_v3", "olmo_hybrid"),
        ),
        "gated_delta_update",
    ),
    **dict.fromkeys(
        ("mamba2", "falcon_h1", "granitemoehybrid", "nemotron_h", "nemotron_h_nano_omni", "plamo2"),
        "ssm_update",
    ),
    **dict.fromkeys(("lfm2", "lfm2-vl", "lfm2_moe", "lfm2_vl")),
}


class KeptTokens:
    """Of each row, how many of a draft's tokens are; as arrays, made once for all layers."""

    def __init__(self, counts: Sequence[int]):
        self.counts = list(counts)
        self._array: mx.array | None = None
        self._masks: dict[int, mx.array] = {}
        self._places: dict[int, mx.array] = {}

    def mask(self, count: int) -> mx.array | None:
        """Of so many tokens, those that are kept: [B, count]; None if all are."""
        if min(self.counts) >= count:
            return None
        if count not in self._masks:
            self._masks[count] = mx.arange(count) < self._column()
        return self._masks[count]

    def places(self, size: int) -> mx.array:
        """Of the last tokens that a window of this size sees: [B, size, 1]."""
        if size not in self._places:
            self._places[size] = (self._column() + mx.arange(size))[..., None]
        return self._places[size]

    def _column(self) -> mx.array:
        if self._array is None:
            self._array = mx.array(self.counts)[:, None]
        return self._array


class Tape:
    """Of one layer: its arrays before the draft, and what it was given in it."""

    def __init__(self, before: Sequence[mx.array | None]):
        self.before = list(before)
        self.convolved: list[mx.array] = []  # windows and inputs [B, window + W, D], in order
        self.state: mx.array | None = None  # the one that `advance` goes on from
        self.advance: Advance | None = None
        self.states: list[mx.array] = []  # after each token, where they are kept

    def after(self, now: Sequence[mx.array | None], width: int, kept: KeptTokens) -> Arrays:
        """The layer's arrays when each row has run what is kept of the draft's tokens.

        now: when every row has run all of them.
        """
        after = list(now)
        if min(kept.counts) == width:
            return after
        windows = iter(self.convolved)
        for slot, (before, array) in enumerate(zip(self.before, now, strict=True)):
            if before is None or array is before:
                continue
            if before is self.state:
                after[slot] = self._chosen(kept) if self.states else self._replayed(kept)
            else:
                after[slot] = _window(next(windows), before.shape[1], kept)
        return after

    def _chosen(self, kept: KeptTokens) -> mx.array:
        assert self.state is not None
        states = [self.state, *self.states]
        if len(set(kept.counts)) == 1:
            return states[kept.counts[0]]
        rows = enumerate(kept.counts)
        return mx.concatenate([states[count][row : row + 1] for row, count in rows])

    def _replayed(self, kept: KeptTokens) -> mx.array:
        assert self.state is not None
        assert self.advance is not None
        return self.advance(self.state, kept)[1]


def _window(source: mx.array, size: int, kept: KeptTokens) -> mx.array:
    """What a convolution still sees when each row has run what is kept: [B, size, D]."""
    if len(set(kept.counts)) == 1:
        first = kept.counts[0]
        return mx.contiguous(source[:, first : first + size])
    return mx.take_along_axis(source, kept.places(size), axis=1)


class Recording:
    """Of one draft: a tape for every recurrent layer, in the order in which they run."""

    def __init__(self, layers: Sequence[Sequence[mx.array | None]]):
        """Begins now, and ends any other on this thread."""
        self.tapes = [Tape(arrays) for arrays in layers]
        self._by_array = {id(array): tape for tape in self.tapes for array in tape.before}
        self._convolved: list[mx.array] = []  # by a layer whose state has not come yet
        self._states: list[mx.array] = []  # that it has come to, token by token
        _open.recording = self

    def end(self) -> None:
        """What runs from now on is none of the draft. Once it has ended, it may end again."""
        if _open.recording is self:
            _open.recording = None
        stateless = iter(self._convolved)
        for tape in self.tapes:
            if tape.state is None:
                tape.convolved = [source for _, source in zip(tape.before, stateless, strict=False)]

    def convolve(self, source: mx.array) -> None:
        self._convolved.append(source)

    def step(self, state: mx.array) -> None:
        self._states.append(state)

    def tape_of(self, state: mx.array | None) -> Tape | None:
        return None if state is None else self._by_array.get(id(state))

    def run(
        self, tape: Tape, state: mx.array, advance: Advance, width: int, *, keep: bool = True
    ) -> Any:
        """What the layer of this tape, whose state this is, makes of it. keep: its states."""
        tape.state, tape.advance = state, advance
        tape.convolved, self._convolved = self._convolved, []
        self._states = []
        made = advance(state, None)
        if keep and state.nbytes * len(self.tapes) * (width - 1) <= KEPT_STATES:
            tape.states = self._states
        self._states = []
        return made


class _Open(threading.local):
    recording: Recording | None = None


_open = _Open()


def can_record(network: Any) -> bool:
    """Whether the recurrent layers of this network can go back."""
    return family_of(network) in _FAMILIES


def install(network: Any) -> None:
    """Let a network's recurrent layers be noted, where it is of a family that can be."""
    if not can_record(network):
        return
    name = _FAMILIES[family_of(network)]
    for _, module in network.named_modules():
        if type(module) is nn.Conv1d:
            module.__class__ = _NotedConv1d
        where = sys.modules[type(module).__module__]
        update = None if name is None else getattr(where, name, None)
        if update is not None and not hasattr(update, "noted"):
            setattr(where, str(name), _noted(update))


class _NotedConv1d(nn.Conv1d):
    def __call__(self, x: mx.array) -> mx.array:
        if _open.recording is not None:
            _open.recording.convolve(x)
        convolved: mx.array = super().__call__(x)
        return convolved


def _noted(update: Callable[..., Any]) -> Callable[..., Any]:
    names = tuple(inspect.signature(update).parameters)
    _note_steps(sys.modules[update.__module__])
    step = _in_steps(update)

    @wraps(update)
    def noted(*args: Any, **kwargs: Any) -> Any:
        recording = _open.recording
        if recording is None:
            return update(*args, **kwargs)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        cache, slot = given.pop("cache", None), given.pop("cache_index", 1)
        state = given.pop("state", None) if cache is None else cache[slot]
        tape = recording.tape_of(state)
        if tape is None:
            return update(*args, **kwargs)
        for absent in ("mask", "lengths"):  # rows of a batch have no padding
            given.pop(absent, None)
        advance, width = _advance(step, step.prepared(given))
        y, after = recording.run(tape, state, advance, width, keep=not step.in_a_kernel)
        if cache is not None:
            cache[slot] = after
        return y, after

    noted.noted = True  # type: ignore[attr-defined]
    return noted


def _note_steps(library: Any) -> None:
    """Of gated delta, where it goes token by token outside a kernel."""
    step = getattr(library, "_gated_delta_step_ops", None)
    if step is None or hasattr(step, "noted"):
        return

    def noted(*args: Any) -> tuple[mx.array, mx.array]:
        y, state = step(*args)
        if _open.recording is not None:
            _open.recording.step(state)
        return y, state

    noted.noted = True  # type: ignore[attr-defined]
    library._gated_delta_step_ops = noted


class _Step:
    """What goes on from a state by some tokens, one by one, where a mask [B, tokens] allows it."""

    def __init__(self, library: Any, run: Callable[..., Any], by_token: Sequence[str]):
        self._library = library
        self.run = run
        self.by_token = by_token

    def prepared(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What it is given beside the state and the mask, from what the library's own is."""
        return given

    @property
    def in_a_kernel(self) -> bool:
        """Then tokens that are not kept cost less than to cut them off."""
        return hasattr(getattr(self._library, "gated_delta_ops", None), "in_a_kernel")


class _UnchunkedStep(_Step):
    """mlx-vlm's qwen3_5: its kernel goes token by token, and so do its operations for one."""

    def __init__(self, library: Any):
        super().__init__(library, self._run, ("q", "k", "v", "g", "beta"))

    def prepared(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        gates = {name: given[name] for name in ("A_log", "a", "b", "dt_bias")}
        g, beta = self._library._compute_g_beta(**gates)
        return {**{name: given[name] for name in ("q", "k", "v")}, "g": g, "beta": beta}

    def _run(self, **given: Any) -> Any:
        if ON_CPU or ON_CUDA:
            return self._library.gated_delta_ops(**given)
        return self._library.gated_delta_kernel(**given)


def _advance(step: _Step, given: Mapping[str, Any]) -> tuple[Advance, int]:
    """How to go on by these tokens, and how many they are."""
    width = given[step.by_token[0]].shape[1]

    def advance(state: mx.array, kept: KeptTokens | None) -> tuple[mx.array, mx.array]:
        count = width if kept is None or step.in_a_kernel else max(kept.counts)
        cut = {} if count == width else {name: given[name][:, :count] for name in step.by_token}
        mask = None if kept is None else kept.mask(count)
        y, after = step.run(**{**given, **cut}, state=state, mask=mask)
        return y, after

    return advance, width


def _in_steps(update: Callable[..., Any]) -> _Step:
    """The same, token by token, and with a mask."""
    by_token, library = _BY_TOKEN[update.__name__], sys.modules[update.__module__]
    if update.__name__ == "ssm_update":
        return _Step(library, _one_by_one(update, by_token), by_token)
    if hasattr(library, "gated_delta_chunked"):
        return _UnchunkedStep(library)
    return _Step(library, update, by_token)


def _one_by_one(update: Callable[..., Any], by_token: Sequence[str]) -> Callable[..., Any]:
    def step(state: mx.array, mask: mx.array | None, **given: Any) -> tuple[mx.array, mx.array]:
        outputs = []
        for at in range(given[by_token[0]].shape[1]):
            token = {name: given[name][:, at : at + 1] for name in by_token}
            y, after = update(**{**given, **token}, state=state)
            if mask is not None:
                allowed = mask[:, at].reshape(-1, *[1] * (after.ndim - 1))
                after = mx.where(allowed, after, state)
            outputs.append(y)
            state = after
            if _open.recording is not None:
                _open.recording.step(state)
        return mx.concatenate(outputs, axis=1), state

    return step
