"""Whether a model, with the state it makes, runs batches as it runs rows alone.

Asked at start-up where rules cannot tell: how attention reads its state is the model's own
code, and a wrong mask raises nothing.
"""

from __future__ import annotations

import gc

import mlx.core as mx

from bushel.cache.rows import Rows, take_snapshot
from bushel.core import ModelError
from bushel.models import Model

# Two rows of very different lengths, so that padding would outweigh the shorter one's tokens.
_LENGTHS = (48, 2)
_STEPS = 2
_LONGEST_REASON = 200
# Distance of logits, relative to their size. On small random models with keys in 8 or 4 bits:
# 1e-6 in float32, or 1e-3 where rounding takes an encoded number over an edge; positions that
# are one off make 4e-2 to 3e-1, a lost token 2e-1 and more, padding that is seen 5e-1 and more.
_BOUND, _NARROW_BOUND = 1e-2, 1e-1


def require_exact(model: Model, setting: str) -> None:
    """Raise a ModelError that names the setting, and free the model, unless all is equal."""
    reason = _trial(model)
    if reason is None:
        return
    # Raised here, because the trial's own exception would keep the weights alive.
    model.close()
    gc.collect()
    mx.clear_cache()
    raise ModelError(f"{model.name} cannot be loaded: {setting} does not work with it: {reason}.")


def _trial(model: Model) -> str | None:
    """What went wrong, or None."""
    rows = Rows(model.make_state)
    try:
        alone = [_alone(model, length, rows) for length in _LENGTHS[: 1 if model.single else None]]
    except Exception as error:  # whatever the model's own attention makes of such state
        return f"its attention cannot read such state ({_one_line(error)})"
    if model.single:
        return None
    try:
        together = _decode(model, rows)
    except Exception as error:
        return f"it does not run in batches ({_one_line(error)})"
    apart = [_distance(together[at], only[0]) for at, only in enumerate(alone)]
    bound = _BOUND if together.dtype == mx.float32 else _NARROW_BOUND
    if all(it <= bound for it in apart):  # not so if one is not a number
        return None
    return f"in a batch its logits are off by {max(apart):.1%}"


def _alone(model: Model, length: int, rows: Rows) -> mx.array:
    """Logits that follow a prompt, from a copy of the state with which it joins `rows`."""
    state, copy = model.make_state(), Rows(model.make_state)
    model.forward(_tokens(model, 1, length), [0], state)
    copy.join(take_snapshot(state, length).restore(model.make_state()), length)
    rows.join(state, length)
    return _decode(model, copy)


def _decode(model: Model, rows: Rows) -> mx.array:
    """Logits [B, steps, V] of a few tokens, whatever the model would have said."""
    found = []
    for _ in range(_STEPS):
        inputs = _tokens(model, len(rows), 1)
        found.append(model.forward(inputs, rows.positions, rows.layers)[:, -1])
        rows.advance()
    rows.check_integrity()
    logits = mx.stack(found, axis=1)
    mx.eval(logits)
    return logits


def _tokens(model: Model, rows: int, count: int) -> mx.array:
    return mx.array([[(7 + 31 * at) % model.vocab for at in range(count)]] * rows)


def _distance(one: mx.array, two: mx.array) -> float:
    one, two = one.astype(mx.float32), two.astype(mx.float32)
    return float(mx.linalg.norm(one - two) / mx.linalg.norm(two))


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}…"
