"""Choosing every row's token in one kernel launch, on CUDA.

A decode step of a small model is bound by launches there, at 12 to 15 us an operation, and
`vectorised` needs some fifty of them. Here one block of threads serves one row and does what the
row's settings ask for, nothing else:

    best     the largest logit, after penalties and bias; for a greedy row, the answer
    few      the best tokens, sorted: enough for a usual top_k, and for a nucleus inside them
    many     otherwise, the last value that top_k and top_p keep, two bits of it per pass
    pick     where u times the weight of what is left falls

Every sum is taken in a fixed order, so that a row's token is a function of its own logits,
settings and uniform number. What it means is `draw`'s, which is the reference.

Nothing is sent to the device while rows stay the same: uniform numbers are made there, and where
each row stands is counted there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NewType, get_type_hints

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine.sampling import draw
from bushel.engine.sampling.chooser import Masks, SamplingStep

# Of every kernel: each thread has its share of a row, and they are gone through in turn, so that
# with another number of them another token would be drawn. A block has 65,536 registers, and a
# kernel with penalties needs up to 72 a thread, by vocabulary (nvcc 13.4 for sm_90).
THREADS = 512
_PROMPT = 1 << 15  # of a row's marks: the token is in the prompt; below it, its count

_LOW_WORD = 0xFFFFFFFF

_SOURCE = Path(__file__).with_name("choose.cu")

# What logits are there, and the low bits of a float32 that they never set, to an even number.
_TYPES = {mx.float32: ("float", 0), mx.float16: ("__half", 12), mx.bfloat16: ("__nv_bfloat16", 16)}


class Uses(NamedTuple):
    """What some row of a batch asks for; without it the kernel neither takes nor looks at it."""

    held: bool  # by a mask
    penalised: bool
    biased: bool


Word = NewType("Word", int)  # 32 bits, unsigned


class RowSettings(NamedTuple):
    """One row's, as the kernel reads them: its struct is made of these fields."""

    temperature: float  # 0: greedy
    min_p: float
    top_p: float
    top_k: int
    repetition: float
    presence: float
    frequency: float
    slot: int  # of its marks; -1: it has none
    seed_low: Word
    seed_high: Word


# The types of these fields, in C and in numpy. All are of one size: they travel as float32.
_FIELD_TYPES = {float: ("float", np.float32), int: ("int", np.int32), Word: ("unsigned", np.uint32)}
_FIELDS = [(name, *_FIELD_TYPES[kind]) for name, kind in get_type_hints(RowSettings).items()]
_ROW = np.dtype([(name, kind) for name, _, kind in _FIELDS])
_STRUCT = "struct Settings { " + " ".join(f"{kind} {name};" for name, kind, _ in _FIELDS) + " };"


def source(dtype: mx.Dtype, vocab: int, uses: Uses, threads: int) -> tuple[str, str]:
    """The functions of `choose.cu`, with its constants before them, and the kernel's body."""
    logit, low = _TYPES[dtype]
    constants = {
        "THREADS": threads,
        "VOCAB": vocab,
        "TOGETHER": _together(dtype, vocab),
        "LOGIT": logit,
        "LOW_BITS": low,
        "HELD": int(uses.held),
        "PENALISED": int(uses.penalised),
        "BIASED": int(uses.biased),
    }
    functions, body = _SOURCE.read_text().split("// ---- the kernel's body\n")
    defined = "".join(f"#define {key} {value}\n" for key, value in constants.items())
    return f"{defined}{_STRUCT}\n{functions}", body


def _together(dtype: mx.Dtype, vocab: int) -> int:
    """Logits that are read at once."""
    most = 16 // dtype.size
    return most if vocab % most == 0 else 1


@cache
def _kernel(dtype: mx.Dtype, vocab: int, uses: Uses) -> Any:
    header, body = source(dtype, vocab, uses, THREADS)
    # MLX may keep what it compiles on disk, by name.
    digest = hashlib.sha256((header + body).encode()).hexdigest()[:12]
    return mx.fast.cuda_kernel(
        name=f"bushel_choose_{digest}",
        input_names=["logits", "settings", "places"]
        + ["slots", "words"] * uses.held
        + ["inputs", "marks"] * uses.penalised
        + ["bias"] * uses.biased,
        output_names=["tokens", "moved"] + ["marked"] * uses.penalised,
        header=header,
        source=body,
    )


class KernelChooser:
    """A `Chooser` (see `chooser`) for CUDA."""

    def __init__(self, vocab: int):
        self._vocab = vocab
        self._rows: list[Decoding] = []
        self._slots: list[int] = []  # a row's place in _marks, or -1
        self._marks: mx.array | None = None  # [P, V] of the penalised rows
        self._draft: list[mx.array] | None = None  # marks along it, from those before it
        self._arrange()

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        self._rows.append(row)
        slot = -1
        if row.penalised:
            marks = np.zeros((1, self._vocab), np.uint16)
            np.add.at(marks[0], list(reply[:-1]), np.uint16(1))
            marks[0, list(prompt)] |= np.uint16(_PROMPT)
            held, added = self._marks, mx.array(marks)
            slot = 0 if held is None else held.shape[0]
            self._marks = added if held is None else mx.concatenate([held, added])
        self._slots.append(slot)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[at] for at in keep]
        kept = [self._slots[at] for at in keep]
        left = [slot for slot in kept if slot >= 0]
        if self._marks is not None:
            self._marks = self._marks[mx.array(left)] if left else None
        self._slots = [left.index(slot) if slot >= 0 else -1 for slot in kept]
        self._arrange()

    def _arrange(self) -> None:
        rows = zip(self._rows, self._slots, strict=True)
        settings = np.array([self._settings_of(row, slot) for row, slot in rows], _ROW)
        # As bits: as numbers, some of them would become others.
        self._settings = mx.array(settings.view(np.float32).reshape(-1, len(_FIELDS)))
        self._calls: dict[tuple[mx.Dtype, bool, bool, int], Callable[..., list[mx.array]]] = {}
        self._stand: list[int] = []  # positions and indices that _places holds, end to end

    def _settings_of(self, row: Decoding, slot: int) -> RowSettings:
        return RowSettings(
            temperature=0.0 if draw.route(row) == "greedy" else row.temperature,
            min_p=row.min_p,
            top_p=row.top_p,
            top_k=min(row.top_k, self._vocab),
            repetition=row.repetition_penalty,
            presence=row.presence_penalty,
            frequency=row.frequency_penalty,
            slot=slot,
            seed_low=Word(row.seed & _LOW_WORD),
            seed_high=Word(row.seed >> 32 & _LOW_WORD),
        )

    def tokens(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        return self._next(logits, turn)

    def tokens_along(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        """In one launch, unless some row's marks change on the way."""
        width = logits.shape[1]
        if self._marks is None:
            settings = mx.repeat(self._settings, width, axis=0)
            drawn, _ = self._launch(logits, turn, settings, _places_along(turn, width))
            return drawn.reshape(-1, width)
        marks, tokens = [self._marks], list[mx.array]()
        for column in range(width):
            tokens.append(self._next(logits[:, column], _at_column(turn, column)))
            marks.append(self._marks)
        self._marks, self._draft = marks[0], marks
        return mx.concatenate(tokens, axis=1)

    def keep(self, kept: Sequence[int]) -> None:
        if self._marks is None:
            return
        assert self._draft is not None
        mine = [many for many, slot in zip(kept, self._slots, strict=True) if slot >= 0]
        self._marks = mx.stack(self._draft)[mx.array(mine), mx.arange(len(mine))]
        self._draft = None

    def _next(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        drawn, self._places = self._launch(logits, turn, self._settings, self._places_at(turn))
        return drawn

    def _launch(
        self, logits: mx.array, turn: SamplingStep, settings: mx.array, places: mx.array
    ) -> tuple[mx.array, mx.array]:
        """A token [N, 1] for each place [N, 2], and the next places. Marks are moved on."""
        marks, bias, masks = self._marks, turn.bias, turn.masks
        arrays = [logits, settings, places]
        if masks is not None:
            arrays += masks.slots, masks.words
        if marks is not None:
            arrays += turn.inputs, marks
        if bias is not None:
            arrays.append(bias)
        call = self._call(logits.dtype, masks is not None, bias is not None, places.shape[0])
        tokens, moved, *marked = call(inputs=arrays)
        if marked:
            self._marks = marked[0]
        return tokens, moved

    def _call(
        self, dtype: mx.Dtype, held: bool, biased: bool, count: int
    ) -> Callable[..., list[mx.array]]:
        """The kernel for so many tokens, with what stays the same from step to step."""
        known = self._calls.get((dtype, held, biased, count))
        if known is not None:
            return known
        marks = self._marks
        shapes: list[tuple[int, ...]] = [(count, 1), (count, 2)]
        shapes += [] if marks is None else [marks.shape]
        call = self._calls[dtype, held, biased, count] = partial(
            _kernel(dtype, self._vocab, Uses(held, marks is not None, biased)),
            grid=(THREADS * count, 1, 1),
            threadgroup=(THREADS, 1, 1),
            output_shapes=shapes,
            output_dtypes=[mx.uint32, mx.uint32, mx.uint16][: len(shapes)],
        )
        return call

    def _places_at(self, turn: SamplingStep) -> mx.array:
        """[B, 2] position and index of the new tokens: there already, if all went on by one."""
        stand = [*turn.positions, *turn.indices]
        if stand != self._stand:
            self._places = mx.array(np.array(stand, np.uint32).reshape(2, -1).T)
        self._stand = [at + 1 for at in stand]
        return self._places

    def check_integrity(self) -> None:
        held = 0 if self._marks is None else self._marks.shape[0]
        wanted = [at for at, row in enumerate(self._rows) if row.penalised]
        having = [at for at, slot in enumerate(self._slots) if slot >= 0]
        if wanted != having or held != len(wanted):
            raise IntegrityError(f"{held} rows of marks at {having}, not {wanted}")


def _places_along(turn: SamplingStep, width: int) -> mx.array:
    """[B * W, 2] position and index of the tokens along a draft."""
    first = np.array([turn.positions, turn.indices], np.uint32).T
    ahead = np.arange(width, dtype=np.uint32)[:, None]
    return mx.array((first[:, None] + ahead).reshape(-1, 2))


def _at_column(turn: SamplingStep, column: int) -> SamplingStep:
    """The step that chooses the tokens of one column of a draft."""
    width, bias, masks = turn.inputs.shape[1], turn.bias, turn.masks
    return SamplingStep(
        turn.inputs[:, column : column + 1],
        [index + column for index in turn.indices],
        [position + column for position in turn.positions],
        None if bias is None else bias[column::width],
        masks and Masks(masks.slots[column::width], masks.words),
    )
