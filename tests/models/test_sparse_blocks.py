"""Rows of a batch choose the blocks of keys that each chooses alone. B1, B2."""

import io
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.models.base import create_attention_mask
from mlx_vlm.models.minimax_m3_vl.config import TextConfig
from mlx_vlm.models.minimax_m3_vl.language import MiniMaxAttention, MiniMaxM3KVCache

from bushel.cache.kinds import kind_of
from bushel.models.indexed_kv_cache import IndexedKVCache
from bushel.models.row_positions import minimax_m3
from bushel.models.row_positions.sparse_blocks import as_columns, in_blocks

from ..parity.mutations import blocks_from_the_padding

SIZE, COUNT, WIDTH = 4, 3, 32
# On both sides of the ends of blocks, and of what fits: three blocks of four.
LENGTHS = (1, 11, 12, 13, 31, 32, 45)


def attention(**sparse: Any) -> MiniMaxAttention:
    config = {
        "use_sparse_attention": True,
        "sparse_index_dim": 8,
        "sparse_num_index_heads": 2,
        "sparse_topk_blocks": COUNT,
        "sparse_block_size": SIZE,
        "sparse_attention_freq": [1],
        **sparse,
    }
    mx.random.seed(3)
    return MiniMaxAttention(
        TextConfig(
            hidden_size=WIDTH,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_hidden_layers=1,
            sparse_attention_config=config,
        ),
        0,
    )


def mended(own: MiniMaxAttention) -> MiniMaxAttention:
    class Network:
        """As far as `install` looks."""

        def __init__(self) -> None:
            self.language_model = self.model = self
            self.layers = [self]
            self.self_attn = own

    minimax_m3.install(Network())
    return own


def states(tokens: int) -> mx.array:
    return mx.random.normal((1, tokens, WIDTH), key=mx.random.key(tokens))


def run(own: MiniMaxAttention, x: mx.array, state: Any, starts: list[int]) -> mx.array:
    positions = mx.array(starts)[:, None] + mx.arange(x.shape[1])
    mask = create_attention_mask(x, state)
    return own(x, mask, state, position_ids=positions)


def alone(own: MiniMaxAttention, tokens: int, state: Any, new: int = 1) -> mx.array:
    """What the last tokens of so many find; the others have run before them."""
    x, before = states(tokens), tokens - new
    if before:
        run(own, x[:, :before], state, [0])
    return run(own, x[:, before:], state, [before])


def together(own: MiniMaxAttention, new: int = 1) -> mx.array:
    """The same, where the last ones run in a batch."""
    rows, before = [], [tokens - new for tokens in LENGTHS[1:]]
    for tokens, start in zip(LENGTHS[1:], before, strict=True):
        rows.append(IndexedKVCache.of_one_row())
        run(own, states(tokens)[:, :start], rows[-1], [0])
    batch = kind_of(rows[0]).merge(rows)
    x = mx.concatenate([states(tokens)[:, -new:] for tokens in LENGTHS[1:]])
    return run(own, x, batch, before)


def expected(new: int = 1, **sparse: Any) -> mx.array:
    """By the library's own code and state."""
    own = attention(**sparse)
    return mx.concatenate([alone(own, tokens, MiniMaxM3KVCache(), new) for tokens in LENGTHS[1:]])


def apart(one: mx.array, two: mx.array) -> float:
    return float(mx.abs(one - two).max())


SETTINGS = (
    {},
    {"sparse_score_type": "lse"},
    {"sparse_init_block": 1},
    {"sparse_init_block": 1, "sparse_local_block": 2},
    {"sparse_local_block": 0},
)


@pytest.mark.parametrize("sparse", SETTINGS, ids=str)
@pytest.mark.parametrize("gathered", [16, 0])
def test_rows_of_a_batch_look_at_what_each_looks_at_alone(
    sparse: dict[str, Any], gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a mask, or by gathering what was chosen, as where there is much more."""
    monkeypatch.setattr(minimax_m3, "_GATHERED", gathered)
    assert apart(together(mended(attention(**sparse))), expected(**sparse)) < 1e-5


def test_rows_that_run_several_tokens_at_once_look_at_the_same() -> None:
    assert apart(together(mended(attention()), new=3), expected(new=3)) < 1e-5


def test_blocks_counted_from_the_padding_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks_from_the_padding(monkeypatch)
    assert apart(together(mended(attention())), expected()) > 1e-2


@pytest.mark.parametrize("tokens", LENGTHS)
def test_a_row_alone_is_as_with_the_librarys_own_state(tokens: int) -> None:
    mine = alone(mended(attention()), tokens, IndexedKVCache.of_one_row())
    assert mx.array_equal(mine, alone(attention(), tokens, MiniMaxM3KVCache()))


def test_index_keys_that_nobody_reads_yet_hold_no_steps_alive() -> None:
    """As long as all blocks fit; otherwise a reply keeps what each of its steps computed."""

    def graph(steps: int) -> int:
        own, state = mended(attention()), IndexedKVCache.of_one_row()
        for at in range(steps):
            mx.eval(run(own, states(1), state, [at]))
        told = io.StringIO()
        mx.export_to_dot(told, state.caches[1].keys)
        return len(told.getvalue())

    assert graph(SIZE * COUNT) == graph(2)


def test_a_token_is_in_the_block_of_its_place_in_its_row() -> None:
    """Row 1 has three columns of padding; its first block begins behind them."""
    columns = mx.broadcast_to(mx.arange(10.0), (2, 1, 1, 10))
    padding = mx.array([0, 3])
    blocks = np.array(in_blocks(columns, padding, SIZE))[:, 0, 0]
    assert blocks[0, 0].tolist() == [0, 1, 2, 3]
    assert blocks[1, 0].tolist() == [3, 4, 5, 6]
    assert blocks[1, 1].tolist() == [7, 8, 9, -np.inf]
    seen = as_columns(mx.array([[[[1]]], [[[1]]]]), padding, SIZE, 10)
    assert np.flatnonzero(np.array(seen[0])).tolist() == [4, 5, 6, 7]
    assert np.flatnonzero(np.array(seen[1])).tolist() == [7, 8, 9]
    assert not np.array(as_columns(mx.array([[[[-1]]]] * 2), padding, SIZE, 10)).any()
