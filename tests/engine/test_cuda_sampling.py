"""The one-launch chooser against the numpy reference.

Where there is no CUDA, its source is compiled for the CPU (`choose.cpp`), with fewer threads to a
block, so that every line of it runs in every test run.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Decoding
from bushel.engine.sampling import cuda, draw
from bushel.engine.sampling.chooser import SamplingStep
from bushel.engine.sampling.sampler import listed
from bushel.models.device import ON_CUDA
from tests.cpu_blocks import compiled
from tests.depth import often

from .numpy_sampling import ENDS, Settings, allowed, decoding, distribution, penalised

HERE = Path(__file__).parent
THREADS = 64  # two warps
DTYPES = (mx.float32, mx.bfloat16, mx.float16)
ORIGINAL = cuda._kernel
# Read four or eight at a time, or one by one; beyond the sorted list of the best, or inside it.
WIDTHS = (48, 600, 2003)
# Every width and every dtype with two of the other.
BOTH = [(width, DTYPES[(at + n) % 3]) for at, width in enumerate(WIDTHS) for n in range(2)]


# -- a block of threads on the CPU ---------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _on_this_machine() -> Iterator[None]:
    if ON_CUDA:
        yield
        return

    @cache
    def built(dtype: mx.Dtype, vocab: int, uses: cuda.Uses) -> Callable[..., Any]:
        functions, body = cuda.source(mx.float32, vocab, uses, THREADS)
        _, low = cuda._TYPES[dtype]
        functions = functions.replace("#define LOW_BITS 0", f"#define LOW_BITS {low}")
        text = (HERE / "choose.cpp").read_text().replace("FUNCTIONS\n", functions)
        library = compiled(text.replace("      BODY\n", body))
        return called(library.choose, uses)

    patch = pytest.MonkeyPatch()
    patch.setattr(cuda, "_kernel", built)
    yield
    patch.undo()


def called(choose: Any, uses: cuda.Uses) -> Callable[..., Any]:
    """Called as `mx.fast.cuda_kernel` would be."""

    def run(*, inputs: list[mx.array], output_shapes: list[Any], **_: Any) -> list[mx.array]:
        given = iter([inputs[0].astype(mx.float32), *inputs[1:]])

        def take(count: int, there: bool = True) -> list[np.ndarray | None]:
            return [
                np.ascontiguousarray(np.array(next(given))) if there else None for _ in range(count)
            ]

        arrays = [*take(3), *take(2, uses.held), *take(2, uses.penalised), *take(1, uses.biased)]
        assert next(given, None) is None
        outputs = [
            np.zeros(shape, dtype)
            for shape, dtype in zip(output_shapes, (np.uint32, np.uint32, np.uint16), strict=False)
        ]
        arrays += [*outputs[:2], outputs[2] if uses.penalised else None]
        pointers = [
            None if array is None else ctypes.c_void_p(array.ctypes.data) for array in arrays
        ]
        choose(len(outputs[0]), *pointers)
        return [mx.array(output) for output in outputs]

    return run


# -- what it draws ---------------------------------------------------------------------------

SETTINGS = [
    Settings(temperature, top_k, min_p, top_p)
    for temperature, min_p in ((0.7, 0.0), (1.5, 0.05))
    for top_k in (0, 7, 40)
    for top_p in (1.0, 0.8, 0.3)
]
DRAWS = 32


def logits_of(width: int, dtype: mx.Dtype, seed: int = 0) -> mx.array:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=width)
    x[rng.integers(width, size=5)] += 3
    return mx.array(x.astype(np.float32)).astype(dtype)


def row_of(it: Settings, width: int, seed: int = 0) -> Decoding:
    return decoding(width, **asdict(it), seed=seed)


def chooser_of(rows: Sequence[Decoding], width: int) -> cuda.KernelChooser:
    chooser = cuda.KernelChooser(width)
    for row in rows:
        chooser.join(row, [1], [])
    return chooser


def chosen(rows: Sequence[Decoding], logits: mx.array, positions: Sequence[int]) -> list[int]:
    inputs = mx.ones((len(rows), 1), dtype=mx.uint32)
    turn = SamplingStep(inputs, [0] * len(rows), positions)
    return listed(chooser_of(rows, logits.shape[-1]).tokens(logits[:, None], turn))


@cache
def evenly(draws: int) -> list[int]:
    """Positions of seed 0 whose uniform numbers go evenly from 0 to 1."""
    made = draw.uniforms([0] * 20_000, range(20_000), 1)[0, :, 0, 0]
    order = np.argsort(made)
    wanted = (np.arange(draws) + 0.5) / draws
    places = order[np.searchsorted(made[order], wanted)]
    assert np.abs(made[places] - wanted).max() < 1e-3
    return [int(at) for at in places]


def drawn(it: Settings, logits: mx.array, draws: int = DRAWS) -> np.ndarray:
    """How often each token comes up for logits [V] when u goes evenly from 0 to 1."""
    width = logits.shape[-1]
    rows = [row_of(it, width)] * draws
    turn = SamplingStep(mx.ones((draws, 1), dtype=mx.uint32), [0] * draws, evenly(draws))
    tokens = chooser_of(rows, width).tokens(mx.broadcast_to(logits, (draws, 1, width)), turn)
    return np.bincount(listed(tokens), minlength=width)


def off(counts: np.ndarray, exact: np.ndarray, it: Settings) -> float:
    """Each token owns one stretch of u, so its count is its share up to one draw at either end."""
    if counts[~allowed(exact, it, nats=1e-5)].any():
        return float("inf")
    return float(np.abs(counts - distribution(exact, it) * counts.sum()).max())


@pytest.mark.parametrize(("width", "dtype"), often(BOTH, BOTH[0]), ids=str)
def test_each_token_has_its_share(width: int, dtype: mx.Dtype) -> None:
    x = logits_of(width, dtype)
    exact = np.array(x.astype(mx.float32))
    compared = 0
    for it in SETTINGS:
        # Of ties at an edge the reference keeps all, the kernel what fits.
        if (exact == exact[allowed(exact, it)].min()).sum() > 1:
            continue
        compared += 1
        assert off(drawn(it, x), exact, it) < 1.01, it
    assert compared > len(SETTINGS) // 2


def test_control_other_settings_have_other_shares() -> None:
    x = logits_of(600, mx.float32)
    counts = drawn(Settings(1.5, 0, 0.0, 0.9), x)
    for other in (Settings(1.5, 0, 0.0, 0.8), Settings(0.7, 0, 0.0, 0.9), Settings(1.5, 40)):
        assert off(counts, np.array(x), other) > 1.5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_gets_the_same_token_in_any_company(dtype: mx.Dtype) -> None:
    rows = [row_of(it, 600, seed) for seed, it in enumerate(SETTINGS)]
    rows += [decoding(600, temperature=0.0)] * 4
    x = mx.stack([logits_of(600, dtype, seed) for seed in range(len(rows))])
    together = chosen(rows, x, range(len(rows)))
    assert together == [chosen([row], x[at : at + 1], [at])[0] for at, row in enumerate(rows)]


def test_a_row_gets_the_same_token_beside_one_that_is_penalised() -> None:
    """On CUDA this has to be seen with the number of threads that kernels have there. B1."""
    width, count = 4096, 64
    logits = mx.broadcast_to(logits_of(width, mx.float32), (2, width))
    penalised = decoding(width, temperature=1.0, repetition_penalty=1.2, seed=9)
    for seed in range(count):
        row = row_of(Settings(), width, seed)
        assert chosen([row, penalised], logits, [1, 1])[0] == chosen([row], logits[:1], [1])[0]


def test_every_kernel_has_the_same_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's shares are added up thread by thread: who else is there must not change that."""
    made: list[str] = []
    launched: set[Any] = set()

    def recorded(**kernel: Any) -> Callable[..., list[mx.array]]:
        made.append(kernel["header"])

        def launch(*, threadgroup: Any, output_shapes: Any, **_: Any) -> list[mx.array]:
            launched.add(threadgroup)
            return [mx.zeros(shape, dtype=mx.uint32) for shape in output_shapes]

        return launch

    monkeypatch.setattr(mx.fast, "cuda_kernel", recorded)
    monkeypatch.setattr(cuda, "_kernel", ORIGINAL.__wrapped__)
    logits, plain = mx.zeros((1, 4096)), decoding(4096, temperature=1.0)
    for row in (plain, decoding(4096, temperature=1.0, repetition_penalty=1.2)):
        chosen([row], logits, [1])
    assert len(made) == 2
    assert all(f"#define THREADS {cuda.THREADS}\n" in header for header in made)
    assert launched == {(cuda.THREADS, 1, 1)}


@pytest.mark.parametrize("top_k", often([9, 300], 300))
def test_exactly_k_of_equal_logits_are_drawn(top_k: int) -> None:
    """Alike logits overflow the list of the best, so this is the way without it."""
    counts = drawn(Settings(1.0, top_k), mx.zeros((600,), dtype=mx.bfloat16), 2 * top_k)
    assert (counts > 0).sum() == top_k


def test_ties_of_greedy_rows_fall_to_the_first_token_alone_and_beside_others() -> None:
    x = mx.zeros((2, 600), dtype=mx.bfloat16)
    greedy, other = decoding(600, temperature=0.0), row_of(Settings(1.0), 600)
    assert chosen([greedy], x[:1], [0])[0] == 0
    assert chosen([greedy, other], x, [0, 1])[0] == 0


def test_a_row_without_any_number_gets_a_token_of_the_vocabulary() -> None:
    x = mx.full((1, 600), mx.nan)
    assert 0 <= chosen([row_of(Settings(1.0, 5, 0.0, 0.5), 600)], x, [0])[0] < 600


def test_penalties_and_bias_follow_what_was_said() -> None:
    width, prompt = 300, [5, 6, 7]
    row = decoding(
        width, temperature=0.0, repetition_penalty=1.3, presence_penalty=0.4,
        frequency_penalty=0.6, min_tokens=3,
    )  # fmt: skip
    plain = decoding(width, temperature=0.0)
    chooser = cuda.KernelChooser(width)
    chooser.join(plain, prompt, [])
    chooser.join(row, prompt, [])
    banned = np.zeros((2, width), np.float32)
    banned[1, list(ENDS)] = -np.inf
    reply: list[int] = []
    for at in range(30):
        x = logits_of(width, mx.float32, at % 3)
        inputs = mx.array([[1], [reply[-1] if reply else prompt[-1]]], dtype=mx.uint32)
        bias = mx.array(banned) if at < 3 else None
        turn = SamplingStep(inputs, [at, at], [at + 3, at + 3], bias)
        first, second = listed(chooser.tokens(mx.stack([x[None], x[None]]), turn))
        chooser.check_integrity()
        exact = np.array(x)
        assert first == int(exact.argmax())
        wanted = int(penalised(exact, row, prompt, reply).argmax())
        assert second == wanted
        reply.append(wanted)
        if at == 15:  # come back in the middle of the reply
            chooser = cuda.KernelChooser(width)
            chooser.join(row, prompt, reply)
            chooser.join(plain, prompt, [])
            chooser.leave([1, 0])
    assert len(set(reply)) > 6  # control: without penalties there would be three at most


def test_its_uniform_numbers_are_those_of_draw() -> None:
    """Among 30 alike tokens the choice tells the number: at every step, and for any seed."""
    width, count, seeds = 600, 30, [0, 1, -1, 1 << 40, (1 << 63) - 5, 0x7FA00001]
    rows = [row_of(Settings(1.0, count), width, seed) for seed in seeds]
    chooser = chooser_of(rows, width)
    x = mx.broadcast_to(mx.arange(width) * -1e-6, (len(rows), 1, width))
    inputs = mx.ones((len(rows), 1), dtype=mx.uint32)
    positions = [5, 900, 17, 3, 0, 1 << 20]
    for at in range(8):
        if at == 5:  # one goes back, as after a fault
            positions[2] = 2
        here = [position + at for position in positions]
        tokens = np.array(listed(chooser.tokens(x, SamplingStep(inputs, [at] * len(rows), here))))
        u = draw.uniforms(seeds, here, 1)[0, :, 0, 0]
        assert np.abs(tokens + 0.5 - u * count).max() < 0.501
