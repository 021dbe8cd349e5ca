"""Whether rows of a model of unknown family may share a batch: found by trying, at load.

    steps    a a | b b b b | c | d          row 0: abc, row 1: ab, row 2: bcd
    rows     0 1 | 0 1 2   | 02| 2          merge, join, leave, alone again

Every row is forced to say what it said alone, so that near-ties of half precision do not
matter: after the same tokens, the log-probabilities have to be the same.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.cache import BatchState, unbatchable
from bushel.core import ModelError, Prepared, public_message
from bushel.engine.prefill_pass import pass_row, run_pass
from bushel.engine.row_state import new_row
from bushel.engine.solo_run import SoloRun, apart, bound, logprobs
from bushel.models import Model, Prompt
from bushel.models.known_families import batches_exactly

# Far enough apart for padding to outweigh a row's own tokens. Sparse attention that begins to
# leave blocks out later than this is not found.
_LENGTHS = (5, 24, 75)
_STEPS = 7  # of the longest-lived row
# Prefilling two windows of 512 takes a few times as long as the check without them; windows
# that are longer are left to `bushel check`.
_WIDEST = 512
# Times as far from alone as padded rows are, what is the same rounding: largest of a few thousand
# log-probabilities, of which one is larger than the other by chance.
_LIKE = 2.0


@dataclass(frozen=True)
class BatchTrial:
    """What came of trying a model with several rows at once."""

    difference: float  # of log-probabilities, the largest; not a number where it raised
    bound: float  # that is rounding
    fault: str | None  # what is wrong


def single_because(model: Model) -> str | None:
    """Why rows of this model are served one at a time, or None; tries if nothing is known."""
    if model.encodes:
        return padding_fault(model)
    return batching_fault(model) if unknown(model) else model.single


def unknown(model: Model) -> bool:
    """Whether only a trial can tell if rows of this model may share a batch."""
    known = model.encodes or model.single or batches_exactly(model.network)
    return not known and unbatchable(model.make_state()) is None


def require_kv_bits(model: Model) -> None:
    """Raise a ModelError, and free the model, unless it runs with encoded keys and values."""
    reason = _encoding_fault(model)
    if reason is None:
        return
    # Raised here, because the trial's own exception would keep the weights alive.
    bits, model.network = model.kv_bits, None
    model.close()
    gc.collect()
    mx.clear_cache()
    setting = f"kv_bits={bits.bits}" if bits else "kv_bits"
    raise ModelError(f"{model.name} cannot be loaded: {setting} does not work with it: {reason}.")


def _encoding_fault(model: Model) -> str | None:
    """How attention reads its state is the model's own code, and a wrong mask raises nothing."""
    try:
        SoloRun(model, _prompt(model, 0, min(_LENGTHS))).run()
    except Exception as error:  # whatever the model's own attention makes of such state
        return f"its attention cannot read such state ({public_message(error)})"
    return None if model.single else batching_fault(model)


def batching_fault(model: Model) -> str | None:
    """What goes wrong when rows of this model share a batch, or None if nothing does."""
    return try_batch(model).fault


def try_batch(model: Model) -> BatchTrial:
    return _trial(model, _largest_difference, "batched rows")


def paging_fault(model: Model) -> str | None:
    """Likewise of a model whose rows are in pages. Some models round by more than the bound, which
    is for all of one precision: those rows are held to what padding does to them.
    """
    trial, pages = try_batch(model), model.pages
    if trial.fault is None or not math.isfinite(trial.difference):
        return trial.fault
    model.pages = None
    try:
        padded = try_batch(model).difference
    finally:
        model.pages = pages
    return None if trial.difference <= _LIKE * padded else trial.fault


def packing_fault(model: Model) -> str | None:
    """What goes wrong when prompts share a forward pass, or None."""
    return _trial(model, _largest_packed_difference, "prompts that share a pass").fault


def padding_fault(model: Model) -> str | None:
    """What goes wrong when texts share a pass of an encoder, or None."""
    return _trial(model, _largest_padded_difference, "padded texts").fault


def _largest_padded_difference(model: Model) -> float:
    """Of numbers that are scores, relative to them: those of a vector are below one."""
    longest = model.context or max(_LENGTHS)
    lengths = [max(1, min(length, longest)) for length in _LENGTHS]
    prompts = [_prompt(model, row, length) for row, length in enumerate(lengths)]
    together = model.encode(prompts)
    alone = mx.concatenate([model.encode([prompt]) for prompt in prompts])
    return apart(together, alone) / max(1.0, float(mx.abs(alone).max()))


def _trial(model: Model, difference: Callable[[Model], float], who: str) -> BatchTrial:
    try:
        allowed = bound(model)
        worst = difference(model)
    except Exception as error:  # unknown families fail in ways of their own
        why = f"{type(error).__name__}: {public_message(error)}"
        return BatchTrial(math.nan, math.nan, f"the self-check of batching failed: {why}")
    if worst <= allowed:
        return BatchTrial(worst, allowed, None)
    fault = (
        f"the self-check found {who} {worst:.1e} away from the same rows alone, "
        f"where {allowed:.0e} is rounding"
    )
    return BatchTrial(worst, allowed, fault)


def _largest_packed_difference(model: Model) -> float:
    """Two passes: in the second some look at what the first has left, and one begins. Then all
    decode.
    """
    prompts = [_prompt(model, row, length) for row, length in enumerate(_LENGTHS)]
    states = [new_row(model) for _ in prompts]
    rows, done = BatchState(model.make_state, model.pages), [0] * len(prompts)
    halves = [len(prompt.ids) // 2 for prompt in prompts[1:]]
    for ends in ([0, *halves], [len(prompt.ids) - 1 for prompt in prompts]):
        parts = zip(prompts, done, ends, states, strict=True)
        run_pass(model, [pass_row(model, p.ids, at, to, state) for p, at, to, state in parts if to])
        done = ends
    for state, position in zip(states, done, strict=True):
        rows.join(state, position)
    rows.reserve(1)
    logits = logprobs(model.forward(mx.array([p.ids[-1:] for p in prompts]), done, rows.layers))
    alone = (SoloRun(model, prompt).run() for prompt in prompts)
    return float(np.max([apart(logits[at], expected) for at, expected in enumerate(alone)]))


def _largest_difference(model: Model) -> float:
    prompts = [_prompt(model, row, length) for row, length in enumerate(_lengths(model))]
    spoken, expected = zip(*(_alone(model, prompt) for prompt in prompts), strict=True)
    rows, live, differences = BatchState(model.make_state, model.pages), [0, 1], [0.0]
    at = [0] * len(prompts)  # steps that each row has run

    def join(row: int) -> None:
        solo = SoloRun(model, prompts[row], new_row(model))
        rows.join(solo.state, solo.position)

    def run(steps: int) -> None:
        for _ in range(steps):
            tokens = mx.array([[spoken[row][at[row]]] for row in live])
            pairs = zip(live, rows.positions, strict=True)
            where = [position + prompts[row].delta for row, position in pairs]
            rows.reserve(1)
            logits = logprobs(model.forward(tokens, where, rows.layers))
            rows.advance([1] * len(live))
            differences.extend(
                apart(logits[n], expected[row][at[row]]) for n, row in enumerate(live)
            )
            for row in live:
                at[row] += 1

    def leave(row: int) -> None:
        rows.leave([n for n, other in enumerate(live) if other != row])
        live.remove(row)

    for row in (0, 1):
        join(row)
    run(2)
    join(2)
    live.append(2)
    run(4)
    leave(1)
    run(1)
    leave(0)
    run(1)
    return float(np.max(differences))  # not a number stays one


def _alone(model: Model, prompt: Prompt) -> tuple[list[int], list[mx.array]]:
    """The tokens that a row runs after its prompt, and what it finds after each."""
    solo = SoloRun(model, prompt)
    tokens, logprobs_after = [prompt.ids[-1]], [solo.run()]
    for _ in range(_STEPS - 1):
        tokens.append(int(mx.argmax(logprobs_after[-1])))
        logprobs_after.append(solo.run(tokens[-1]))
    return tokens, logprobs_after


def _lengths(model: Model) -> list[int]:
    """In no order; one crosses the end of a sliding window as it decodes, if one is near."""
    short, middle, long = _LENGTHS
    window = max((width for width in windows(model.make_state()) if width <= _WIDEST), default=0)
    if window > 2:
        middle, long = window - 2, max(long, window + _STEPS)
    longest = (model.context or long + _STEPS) - _STEPS
    return [max(1, min(length, longest)) for length in (short, middle, long)]


def windows(state: Iterable[Any]) -> Iterator[int]:
    """Sizes of the sliding windows and of the chunks among layers of state."""
    for layer in state:
        yield from windows(getattr(layer, "caches", ()))
        for name in ("max_size", "chunk_size"):
            if isinstance(size := getattr(layer, name, None), int):
                yield size


def _prompt(model: Model, seed: int, length: int) -> Prompt:
    return model.embed(Prepared(words(model, seed, length)))


def words(model: Model, seed: int, length: int) -> tuple[int, ...]:
    """Arbitrary ordinary tokens: none ends a reply or stands for an image. The same every time."""
    hf = model.tokenizer.hf
    kept = {*hf.all_special_ids, *getattr(hf, "added_tokens_decoder", ()), *model.tokenizer.end_ids}
    count = min(model.vocab, len(hf))
    ordinary = np.setdiff1d(np.arange(count), np.array(sorted(kept), dtype=int))
    chosen = np.random.default_rng(seed).choice(ordinary, length)
    return tuple(chosen.tolist())
