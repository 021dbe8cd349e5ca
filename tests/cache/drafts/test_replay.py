"""A recurrent state after a draft is, to the bit, that of the kept tokens one by one."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import gated_delta as of_mlx_lm
from mlx_lm.models import ssm
from mlx_vlm.models import gated_delta as of_mlx_vlm
from mlx_vlm.models.qwen3_5 import gated_delta as of_qwen3_5

from bushel import LLM
from bushel.cache import BatchState
from bushel.models import recurrent_rollback
from bushel.models.recurrent_rollback import Recording
from tests.families import checkpoint_dir

ROWS, HEADS, DIM, WIDTH, WINDOW = 3, 4, 32, 6, 3
KEPT = ([1, 4, 2], [6, 1, 6], [3, 3, 3], [6, 6, 6], [1, 1, 1])


def some(rng: np.random.Generator, *shape: int) -> mx.array:
    return mx.array(rng.normal(size=shape).astype(np.float32))


def gated_delta(rng: np.random.Generator, **gates: int) -> tuple[dict[str, Any], mx.array]:
    by_head = {name: some(rng, ROWS, WIDTH, HEADS, DIM) / 8 for name in ("q", "k", "v")}
    a = some(rng, ROWS, WIDTH, HEADS, *gates.values())
    given = {
        **by_head,
        "a": a,
        "b": some(rng, ROWS, WIDTH, HEADS),
        "A_log": some(rng, HEADS, *[1] * len(gates)),
        "dt_bias": some(rng, HEADS, *gates.values()),
    }
    return given, some(rng, ROWS, HEADS, DIM, DIM)


def mamba(rng: np.random.Generator) -> tuple[dict[str, Any], mx.array]:
    given = {
        "hidden_states": some(rng, ROWS, WIDTH, HEADS, DIM),
        "A_log": some(rng, HEADS),
        "B": some(rng, ROWS, WIDTH, 2, DIM),
        "C": some(rng, ROWS, WIDTH, 2, DIM),
        "D": some(rng, HEADS),
        "dt": some(rng, ROWS, WIDTH, HEADS),
        "dt_bias": some(rng, HEADS),
    }
    return given, some(rng, ROWS, HEADS, DIM, DIM)


UPDATES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gated delta of mlx-lm": (of_mlx_lm.gated_delta_update, gated_delta),
    "gated delta of mlx-vlm": (of_mlx_vlm.gated_delta_update, gated_delta),
    "gated delta of mlx-vlm's qwen3_5": (of_qwen3_5.gated_delta_update, gated_delta),
    "a gate for every number": (
        of_mlx_lm.gated_delta_update,
        lambda rng: gated_delta(rng, gates=DIM),
    ),
    "mamba2": (ssm.ssm_update, mamba),
}


@pytest.fixture(params=UPDATES)
def update(request: pytest.FixtureRequest) -> tuple[Callable[..., Any], dict[str, Any], mx.array]:
    update, make = UPDATES[request.param]
    given, state = make(np.random.default_rng(1))
    # As it is, where a test before has loaded a model of such a family.
    return getattr(update, "__wrapped__", update), given, state


def by_token(given: dict[str, Any], row: int, at: int) -> dict[str, Any]:
    return {
        name: value[row : row + 1, at : at + 1] if value.shape[:2] == (ROWS, WIDTH) else value
        for name, value in given.items()
    }


@pytest.mark.parametrize("kept", KEPT, ids=str)
@pytest.mark.parametrize("states", [0, 1 << 30], ids=["again", "chosen"])
def test_what_is_kept_of_a_draft_equals_stepping_to_the_bit(
    update: Any, kept: list[int], states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent_rollback, "KEPT_STATES", states)
    library, given, state = update
    recording = Recording([[state]])
    noted = recurrent_rollback._noted(library)
    y, after = noted(**given, state=state)
    recording.end()
    assert bool(recording.tapes[0].states) == bool(states)
    (found,) = recording.tapes[0].after([after], WIDTH, recurrent_rollback.KeptTokens(kept))
    assert found is not None
    for row, count in enumerate(kept):
        alone = state[row : row + 1]
        for at in range(count):
            said, alone = library(**by_token(given, row, at), state=alone)
            np.testing.assert_array_equal(np.array(said[:, 0]), np.array(y[row : row + 1, at]))
        np.testing.assert_array_equal(np.array(alone), np.array(found[row : row + 1]))


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_a_convolution_sees_the_kept_tokens_alone(kept: list[int]) -> None:
    window, inputs = mx.zeros((ROWS, WINDOW, 2)), mx.arange(ROWS * WIDTH * 2) + 1.0
    source = mx.concatenate([window, inputs.reshape(ROWS, WIDTH, 2)], axis=1)
    recording = Recording([[window]])
    convolution = nn.Conv1d(2, 2, WINDOW + 1)
    convolution.__class__ = recurrent_rollback._NotedConv1d
    convolution(source)
    recording.end()
    (found,) = recording.tapes[0].after(
        [source[:, -WINDOW:]], WIDTH, recurrent_rollback.KeptTokens(kept)
    )
    assert found is not None
    for row, count in enumerate(kept):
        np.testing.assert_array_equal(
            np.array(found[row]), np.array(source[row, count : count + WINDOW])
        )


def test_nothing_is_noted_without_a_draft(update: Any) -> None:
    """And the library's own function is what runs."""
    library, given, state = update
    y, after = library(**given, state=state)
    for made, expected in zip(
        recurrent_rollback._noted(library)(**given, state=state), (y, after), strict=True
    ):
        np.testing.assert_array_equal(np.array(made), np.array(expected))


def test_what_runs_before_a_draft_ends_is_none_of_it() -> None:
    """Prompts run beside a round; noting them would hold on to all that they pass through."""
    llm = LLM(str(checkpoint_dir("qwen3_5")), speculate="off")
    model = llm._engine.model  # type: ignore[union-attr]
    rows = BatchState(model.make_state, drafts=True)
    state = model.make_state()
    model.forward(mx.array([[3, 4, 5]]), [0], state)
    rows.join(state, 3)
    rows.begin_draft([3])
    model.forward(mx.array([[6, 7, 8]]), rows.positions, rows.layers)
    rows.draft_ran()
    assert recurrent_rollback._open.recording is None
    model.forward(mx.array([[9] * 16]), [0], model.make_state())
    rows.end_draft([2])
    rows.check_integrity()
    alone = model.make_state()
    model.forward(mx.array([[3, 4, 5, 6, 7]]), [0], alone)
    ours = model.forward(mx.array([[2]]), rows.positions, rows.layers)
    assert mx.abs(ours - model.forward(mx.array([[2]]), [5], alone)).max().item() < 1e-4
    llm.close()
