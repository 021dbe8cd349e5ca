"""Gated delta in a kernel, compiled for the CPU, beside the libraries' own operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import gated_delta as of_mlx_lm
from mlx_vlm.models import gated_delta as newer_of_mlx_vlm
from mlx_vlm.models.qwen3_5 import gated_delta as of_mlx_vlm

from bushel.models import gated_delta_kernel, load, recurrent_rollback
from bushel.models.gated_delta_kernel import DeltaShape, in_a_kernel
from tests.cpu_blocks import called, compiled, filled
from tests.depth import often

ROWS, TOKENS = 3, 5
SIZES = {
    "plain": (2, 2, 32, 8),
    "grouped": (2, 6, 64, 4),
}  # heads of keys and values, and their dims
TYPES = {"float32": 1e-6, "bfloat16": 8e-3}

LIBRARIES = {
    "mlx-lm": of_mlx_lm,
    "mlx-vlm": newer_of_mlx_vlm,
    "mlx-vlm, Qwen3.5": of_mlx_vlm,
}

Given = dict[str, mx.array]


@pytest.fixture(autouse=True)
def on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[list[DeltaShape]]:
    """Where kernels run; those that were made, of which none is given up for the library."""
    made: list[DeltaShape] = []

    @cache
    def kernel(shape: DeltaShape) -> Callable[..., list[mx.array]]:
        made.append(shape)
        header, body = gated_delta_kernel.source(shape, "")
        library = compiled(filled(Path(__file__).with_name("delta.cpp"), header, BODY=body))
        return called(library.delta, shapes=(0,))

    monkeypatch.setattr(gated_delta_kernel, "_kernel", kernel)
    monkeypatch.setattr(gated_delta_kernel, "_works", cache(gated_delta_kernel._works.__wrapped__))
    yield made
    assert not given_up(caplog)


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.get_records("call") if "without a kernel" in one.message]


def drawn(
    sizes: str = "plain", dtype: str = "float32", *, tokens: int = TOKENS, by_key: bool = False
) -> Given:
    rng = np.random.default_rng(tokens)

    def some(*shape: int, kind: mx.Dtype = mx.float32) -> mx.array:
        return mx.array(rng.normal(size=(ROWS, *shape)).astype(np.float32)).astype(kind)

    kind = {"float32": mx.float32, "bfloat16": mx.bfloat16}[dtype]
    key_heads, heads, key_dim, value_dim = SIZES[sizes]
    q, k = (some(tokens, key_heads, key_dim) for _ in range(2))
    q, k = ((x / mx.linalg.norm(x, axis=-1, keepdims=True)).astype(kind) for x in (q, k))
    return {
        "q": q,
        "k": k,
        "v": some(tokens, heads, value_dim, kind=kind),
        "g": mx.sigmoid(some(tokens, heads, *[key_dim] * by_key)),
        "beta": mx.sigmoid(some(tokens, heads)).astype(kind),
        "state": some(heads, value_dim, key_dim),
    }


def same(one: mx.array, two: mx.array) -> bool:
    return bool(mx.array_equal(one, two))


def far(one: mx.array, two: mx.array) -> float:
    """From each other, of the largest number."""
    one, two = one.astype(mx.float32), two.astype(mx.float32)
    return float(mx.abs(one - two).max() / mx.abs(two).max())


@pytest.mark.parametrize("by_key", [False, True], ids=["gates", "gates by key"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_it_makes_what_the_operations_make(
    sizes: str, dtype: str, by_key: bool, on_the_cpu: list[DeltaShape]
) -> None:
    given = drawn(sizes, dtype, by_key=by_key)
    y, state = in_a_kernel(of_mlx_lm.gated_delta_ops)(**given)
    assert len(on_the_cpu) == 1
    expected_y, expected = of_mlx_lm.gated_delta_ops(**given)
    assert y.dtype == expected_y.dtype
    assert far(y, expected_y) < TYPES[dtype]
    assert far(state, expected) < 1e-6


def test_a_prompt_becomes_what_it_does_in_chunks() -> None:
    given = drawn("grouped", tokens=100)
    for mine, theirs in zip(
        in_a_kernel(of_mlx_vlm.gated_delta_chunked)(**given),
        of_mlx_vlm.gated_delta_chunked(**given),
        strict=True,
    ):
        assert far(mine, theirs) < 1e-4


@pytest.mark.parametrize("dtype", TYPES)
def test_many_tokens_are_one_after_the_other_to_the_bit(dtype: str) -> None:
    """So a draft leaves what decoding would have left."""
    given, update = drawn("grouped", dtype), in_a_kernel(of_mlx_lm.gated_delta_ops)
    y, state = update(**given)
    alone = given["state"]
    for at in range(TOKENS):
        token = {name: array[:, at : at + 1] for name, array in given.items() if name != "state"}
        said, alone = update(**token, state=alone)
        assert same(said[:, 0], y[:, at])
    assert same(alone, state)


def test_a_row_alone_is_what_it_is_among_others_to_the_bit() -> None:
    given, update = drawn("grouped"), in_a_kernel(of_mlx_lm.gated_delta_ops)
    y, state = update(**given)
    for row in range(ROWS):
        alone = {name: array[row : row + 1] for name, array in given.items()}
        for mine, among in zip(update(**alone), (y, state), strict=True):
            assert same(mine, among[row : row + 1])


def test_a_state_is_not_told_of_tokens_that_are_masked() -> None:
    given, update = drawn(), in_a_kernel(of_mlx_lm.gated_delta_ops)
    mask = mx.array(
        [[True] * 5, [False, False, True, True, True], [True, False, True, False, False]]
    )
    y, state = update(**given, mask=mask)
    expected_y, expected = of_mlx_lm.gated_delta_ops(**given, mask=mask)
    assert far(state, expected) < 1e-6
    assert (
        far(mx.where(mask[..., None, None], y, 0), mx.where(mask[..., None, None], expected_y, 0))
        < 1e-6
    )
    third = [given[name][2:] for name in ("q", "k", "v", "g", "beta")]
    kept = mx.array([0, 2])
    _, alone = update(*(array[:, kept] for array in third), given["state"][2:])
    assert same(alone, state[2:])


def test_a_draft_goes_back_to_what_is_kept_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no state kept but the first, and nothing cut."""
    monkeypatch.setattr(of_mlx_vlm, "gated_delta_ops", in_a_kernel(of_mlx_vlm.gated_delta_ops))
    given = drawn("grouped")
    gates = {
        "a": given.pop("g"),
        "b": given.pop("beta"),
        "dt_bias": mx.zeros(6),
        "A_log": mx.zeros(6),
    }
    state = given.pop("state")
    given |= gates
    update = of_mlx_vlm.gated_delta_update
    recording = recurrent_rollback.Recording([[state]])
    _, after = recurrent_rollback._noted(update)(**given, state=state)
    recording.end()
    tape = recording.tapes[0]
    assert not tape.states
    kept = [1, 5, 3]
    (found,) = tape.after([after], TOKENS, recurrent_rollback.KeptTokens(kept))
    assert found is not None
    for row, count in enumerate(kept):
        alone = state[row : row + 1]
        for at in range(count):
            token = {
                name: array if array.ndim == 1 else array[row : row + 1, at : at + 1]
                for name, array in given.items()
            }
            _, alone = update(**token, state=alone)
        assert same(alone, found[row : row + 1])


def spied(called: list[str]) -> Any:
    def update(*given: Any, **more: Any) -> Any:
        called.append("library")
        return of_mlx_lm.gated_delta_ops(*given, **more)

    return update


def unfit(change: str) -> Given:
    given = drawn()
    if change == "an odd key":
        return {**given, **{name: given[name][..., :24] for name in ("q", "k", "state")}}
    if change == "a rounded state":
        return {**given, "state": given["state"].astype(mx.bfloat16)}
    return {**given, "k": given["k"].astype(mx.bfloat16)}


@pytest.mark.parametrize("change", ["an odd key", "a rounded state", "rounded keys"])
def test_what_does_not_fit_is_left_to_the_library(
    change: str, on_the_cpu: list[DeltaShape]
) -> None:
    called: list[str] = []
    in_a_kernel(spied(called))(**unfit(change))
    assert called == ["library"]
    assert not on_the_cpu


@pytest.mark.parametrize("wrong", ["it raises", "it differs"])
def test_a_kernel_that_does_not_work_here_is_not_used(
    wrong: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    def differing(shape: DeltaShape, q: mx.array, k: mx.array, v: mx.array, *rest: Any) -> Any:
        y, state = right(shape, q, k, v, *rest)
        return y, state * 1.01

    right = gated_delta_kernel.run
    monkeypatch.setattr(gated_delta_kernel, "run", failing if wrong == "it raises" else differing)
    given, called = drawn(), list[str]()
    update = in_a_kernel(spied(called))
    for _ in range(3):
        _, state = update(**given)
    assert same(state, of_mlx_lm.gated_delta_ops(**given)[1])
    assert called.count("library") >= 3
    assert len(given_up(caplog)) == 1
    caplog.clear()


def test_the_libraries_use_it_on_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = ModuleType("mlx_lm.models.gated_delta")
    library.gated_delta_ops = of_mlx_lm.gated_delta_ops
    monkeypatch.setitem(sys.modules, library.__name__, library)
    gated_delta_kernel.install()
    assert library.gated_delta_ops is of_mlx_lm.gated_delta_ops
    monkeypatch.setattr(gated_delta_kernel, "ON_CUDA", True)
    monkeypatch.setattr(gated_delta_kernel, "_LIBRARIES", (library.__name__, "nobody.has.loaded"))
    gated_delta_kernel.install()
    assert library.gated_delta_ops is not of_mlx_lm.gated_delta_ops
    once = library.gated_delta_ops
    gated_delta_kernel.install()
    assert library.gated_delta_ops is once


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the libraries use it until the end of the test."""
    for library in LIBRARIES.values():
        for name in ("gated_delta_ops", "gated_delta_chunked"):
            if hasattr(library, name):
                monkeypatch.setattr(library, name, getattr(library, name))
    monkeypatch.setattr(gated_delta_kernel, "ON_CUDA", True)
    return gated_delta_kernel.install


@pytest.mark.parametrize("tokens", often([TOKENS, 100], 100))
@pytest.mark.parametrize(
    ("library", "more"),
    [
        (library, more)
        for library, module in LIBRARIES.items()
        for more in ({}, {"lower_bound": -5.0}, {"state_steps": 3})
        if signature(module.gated_delta_update).parameters.keys() >= more.keys()
    ],
    ids=str,
)
def test_layers_of_all_libraries_work_with_it(
    library: str,
    tokens: int,
    more: dict[str, float],
    installed: Callable[[], None],
    on_the_cpu: list[DeltaShape],
) -> None:
    """As their layers call it, states that are kept on the way among it: the library does those."""
    update: Any = LIBRARIES[library].gated_delta_update
    by_key = more.keys() == {"lower_bound"}
    given = {**drawn("grouped", tokens=tokens, by_key=by_key), **more}
    g, beta = given.pop("g"), given.pop("beta")
    given |= {"a": g, "b": beta, "A_log": mx.zeros(6), "dt_bias": mx.zeros(6)}
    if by_key:
        given |= {"A_log": mx.zeros((6, 1)), "dt_bias": mx.zeros((6, 64))}
    expected = update(**given)
    installed()
    found = update(**given)
    assert bool(on_the_cpu) == ("state_steps" not in more)
    for mine, theirs in zip(found, expected, strict=True):
        assert far(mine, theirs) < 1e-4


def test_a_model_that_is_loaded_lets_its_library_use_it(installed: Callable[[], None]) -> None:
    load("bushel:tiny").close()
    assert hasattr(of_mlx_vlm.gated_delta_ops, "in_a_kernel")
    assert hasattr(of_mlx_vlm.gated_delta_chunked, "in_a_kernel")
