"""The one-launch chooser against the numpy reference. Runs where MLX has CUDA, nowhere else."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Decoding
from bushel.engine import draw, kernel

from .reference import ENDS, Settings, allowed, decoding, distribution, excess, penalised

pytestmark = pytest.mark.skipif(not kernel.AVAILABLE, reason="needs CUDA")

DTYPES = (mx.float32, mx.bfloat16, mx.float16)
WIDTHS = (300, 5000, 50257)
SETTINGS = [
    Settings(temperature, top_k, min_p, top_p)
    for temperature in (0.7, 1.5)
    for top_k in (0, 7, 200, 700)
    for min_p in (0.0, 0.05)
    for top_p in (1.0, 0.9, 0.3)
]


def logits_of(width: int, dtype: mx.Dtype, seed: int = 0) -> mx.array:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=width) * 2
    x[rng.integers(width, size=20)] += 5
    return mx.array(x.astype(np.float32)).astype(dtype)


def row_of(it: Settings, width: int, seed: int = 0) -> Decoding:
    return decoding(
        width, temperature=it.temperature, top_k=it.top_k, min_p=it.min_p, top_p=it.top_p, seed=seed
    )


def chooser_of(rows: Sequence[Decoding], width: int) -> kernel.OneLaunch:
    chooser = kernel.OneLaunch(width)
    for row in rows:
        chooser.join(row, [1], [])
    return chooser


def chosen(rows: Sequence[Decoding], logits: mx.array, positions: Sequence[int]) -> list[int]:
    u = draw.uniforms([row.seed for row in rows], positions, 1)[0]
    inputs = mx.ones((len(rows),), dtype=mx.uint32)
    chooser = chooser_of(rows, logits.shape[-1])
    return chooser.tokens(logits, None, inputs, [0] * len(rows), u).tolist()  # type: ignore[return-value]


def drawn(it: Settings, logits: mx.array, draws: int = 4096, together: int = 256) -> np.ndarray:
    """How often each token comes up for logits [V]."""
    width, counts = logits.shape[-1], np.zeros(logits.shape[-1])
    rows = [row_of(it, width, seed=3)] * together
    chooser, inputs = chooser_of(rows, width), mx.ones((together,), dtype=mx.uint32)
    many = mx.broadcast_to(logits, (together, width))
    for start in range(0, draws, together):
        u = draw.uniforms([3] * together, range(start, start + together), 1)[0]
        tokens = chooser.tokens(many, None, inputs, [0] * together, u)
        counts += np.bincount(np.array(tokens), minlength=width)
    return counts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_tokens_follow_the_distribution_of_their_settings(width: int, dtype: mx.Dtype) -> None:
    x = logits_of(width, dtype)
    exact = np.array(x.astype(mx.float32))
    for it in SETTINGS:
        # Of ties at an edge the reference keeps all, the kernel what fits.
        last = exact[allowed(exact, it)].min()
        if (exact == last).sum() > 1:
            continue
        assert excess(drawn(it, x), distribution(exact, it) * 4096) < 5, it


def test_control_wrong_settings_do_not_fit() -> None:
    x = logits_of(300, mx.float32)
    said, meant = Settings(2.0, 0, 0.0, 0.9), Settings(2.0, 0, 0.0, 0.8)
    assert excess(drawn(said, x), distribution(np.array(x), meant) * 4096) > 5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_gets_the_same_token_in_any_company(dtype: mx.Dtype) -> None:
    rows = [row_of(it, 5000, seed) for seed, it in enumerate(SETTINGS)]
    rows += [decoding(5000, temperature=0.0)] * 4
    x = mx.stack([logits_of(5000, dtype, seed) for seed in range(len(rows))])
    together = chosen(rows, x, range(len(rows)))
    assert together == [chosen([row], x[at : at + 1], [at])[0] for at, row in enumerate(rows)]


def test_exactly_k_of_equal_logits_are_drawn() -> None:
    """Alike logits overflow the list of the best, so this is also the way without it."""
    for top_k in (9, 700):
        counts = drawn(Settings(1.0, top_k), mx.zeros((5000,), dtype=mx.bfloat16), 16384)
        assert (counts > 0).sum() == top_k


def test_ties_of_greedy_rows_fall_to_the_first_token_alone_and_beside_others() -> None:
    x = mx.zeros((2, 5000), dtype=mx.bfloat16)
    greedy, other = decoding(5000, temperature=0.0), row_of(Settings(1.0), 5000)
    assert chosen([greedy], x[:1], [0])[0] == 0
    assert chosen([greedy, other], x, [0, 1])[0] == 0


def test_penalties_and_bias_follow_what_was_said() -> None:
    width, prompt = 300, [5, 6, 7]
    row = decoding(
        width, temperature=0.0, repetition_penalty=1.3, presence_penalty=0.4,
        frequency_penalty=0.6, min_tokens=3,
    )  # fmt: skip
    plain = decoding(width, temperature=0.0)
    chooser = kernel.OneLaunch(width)
    chooser.join(plain, prompt, [])
    chooser.join(row, prompt, [])
    banned = np.zeros((2, width), np.float32)
    banned[1, list(ENDS)] = -np.inf
    reply: list[int] = []
    for at in range(30):
        x = logits_of(width, mx.float32, at % 3)
        inputs = mx.array([1, reply[-1] if reply else prompt[-1]], dtype=mx.uint32)
        bias = mx.array(banned) if at < 3 else None
        tokens = chooser.tokens(mx.stack([x, x]), bias, inputs, [at, at], None)
        exact = np.array(x)
        assert int(tokens[0]) == int(exact.argmax())
        wanted = int(penalised(exact, row, prompt, reply).argmax())
        assert int(tokens[1]) == wanted
        reply.append(wanted)
        if at == 15:  # come back in the middle of the reply, without the neighbour
            chooser = kernel.OneLaunch(width)
            chooser.join(row, prompt, reply)
            chooser.join(plain, prompt, [])
            chooser.leave([1, 0])
    assert len(set(reply)) > 10  # control: without penalties there would be three
