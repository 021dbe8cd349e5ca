"""The closed form of `core.footprint`, by itself and against what the allocator saw."""

import gc
from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import LLM, SamplingParams
from bushel.core.footprint import ONE_CHUNK, STEP, Footprint, LayerFootprint, Memory, alike
from bushel.core.options import Attention
from bushel.engine.footprint import footprint
from bushel.engine.prefill_pass import pass_row, run_pass
from bushel.engine.row_state import new_row
from bushel.models import load
from tests.depth import often
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt

MB = 1 << 20
SIZES = Footprint(
    weights=100 * MB,
    weight_buffers=50,
    layers=(
        LayerFootprint(4096, None, 0, 4, 8),
        LayerFootprint(4096, 512, 0, 4, 8),
        LayerFootprint(0, None, MB, 2, 4),
    ),
    per_token=64 << 10,
    per_score=16,
    per_row=MB,
)


def test_state_grows_with_the_longest_row_and_a_window_stops_growing() -> None:
    per_token, windows, fixed = 8 * 4096, 8 * 4096, 4 * MB
    assert SIZES.state(1, 100) == (per_token + windows) * (100 + STEP) + fixed
    assert SIZES.state(1, 2000) == per_token * (2000 + STEP) + windows * 512 + fixed
    assert SIZES.state(8, STEP) == 8 * SIZES.state(1, STEP)


def test_layers_alike_are_counted() -> None:
    kv, window = LayerFootprint(64, buffers=4), LayerFootprint(64, 16, buffers=4)
    assert alike([kv, window, kv]) == (LayerFootprint(64, buffers=4, count=2), window)


lengths = st.integers(1, 100_000)
limits = st.integers(100, 4000).map(lambda mb: mb * MB)


@given(limits, st.lists(lengths, max_size=8), lengths)
def test_the_longest_row_is_the_longest_that_fits(
    limit: int, rows: Sequence[int], most: int
) -> None:
    memory = Memory(SIZES, limit, 1 << 62)
    for count in (1, 3):
        longest = memory.longest_row(count, 16, most)
        assert longest == 0 or memory.with_rows(count, longest).fits(16)
        assert longest == most or not memory.with_rows(count, longest + 1).fits(16)


@given(limits, st.integers(0, 8), lengths, st.integers(1, 512), lengths)
def test_a_chunk_fits_unless_it_is_the_least_one(
    limit: int, rows: int, longest: int, want: int, context: int
) -> None:
    """Chunks shrink when a long context makes them heavy, down to the least and no further."""
    memory = Memory(SIZES, limit, 1 << 62, rows, longest)
    tokens = memory.chunk(want, 16, context)
    assert min(want, 16) <= tokens <= want
    held = SIZES.weights + SIZES.state(rows, longest) + rows * SIZES.per_row
    room = limit - held - SIZES.gathered(context)
    assert tokens <= 16 or tokens * SIZES.pass_token(context) <= ONE_CHUNK * room
    if tokens < want:
        assert (tokens + 1) * SIZES.pass_token(context) > ONE_CHUNK * room


def test_a_chunk_whose_logits_are_wanted_fits_with_them() -> None:
    room = 2 * 100 * (SIZES.pass_token(0) + SIZES.per_row)  # of which one chunk may take a half
    memory = Memory(SIZES, SIZES.weights + room, 1 << 62)
    assert memory.chunk(1000, 16, 0, logits=True) == 100
    assert memory.chunk(1000, 16, 0) == 1000


def test_rows_that_share_a_pass_have_their_fixed_states_twice() -> None:
    """So a pass that just fits takes no more rows."""
    room = 2 * 100 * SIZES.pass_token(0)  # of which one chunk may take a half
    memory = Memory(SIZES, SIZES.weights + room, 1 << 62)
    assert memory.chunk(100, 1, 0) == 100
    assert memory.chunk(100, 1, 0, rows_packed=2) < 100
    assert replace(memory, limit=memory.limit + 2 * 4 * MB).chunk(100, 1, 0, rows_packed=2) == 100


@pytest.mark.parametrize(
    ("name", "attention"),
    [("llama", "pages"), ("llama", "padded"), ("deepseek_v3", "padded"), ("kimi_linear", "padded")],
)
def test_what_rows_that_share_a_pass_look_back_at_is_in_the_plan(
    name: str, attention: Attention
) -> None:
    """It is put together for each of them. B62."""
    start = 1000 if attention == "pages" else 250
    with LLM(str(checkpoint_dir(name)), attention=attention) as llm:
        model = llm._engine.model  # type: ignore[union-attr]
        sizes, rows = footprint(model), 8
        states = [new_row(model) for _ in range(rows)]
        for state in states:
            model.forward(mx.zeros((1, start), mx.int32), [0], state)
            mx.eval([layer.state for layer in state])
        gc.collect()
        mx.synchronize()
        mx.reset_peak_memory()
        tokens = [0] * (start + 2)
        run_pass(model, [pass_row(model, tokens, start, start + 2, each) for each in states])
        mx.eval([layer.state for state in states for layer in state])
        mx.synchronize()
        above = mx.get_peak_memory() - mx.get_active_memory()
    memory = Memory(sizes, sizes.weights + above - 1, 1 << 62)
    assert memory.chunk(2 * rows, 1, start + 2, rows) < 2 * rows


def test_keys_and_values_that_a_chunk_makes_of_latents_are_in_the_plan() -> None:
    """Of all tokens that it looks at, for each row of a pass. B62."""
    latent = replace(SIZES, per_seen=1000)
    assert latent.forward(16, 5000) == SIZES.forward(16, 5000) + 5000 * 1000
    assert latent.packed(3, 5000) == SIZES.packed(3, 5000) + 3 * 5000 * 1000
    model = load(str(checkpoint_dir("deepseek_v3")))
    attention = model.network.layers[0].self_attn
    latents = mx.zeros((1, 1, 7, attention.kv_lora_rank))
    made = attention.embed_q.make(latents, transpose=False), attention.unembed_out.make(latents)
    assert footprint(model).per_seen == sum(each.nbytes for each in made) // 7
    model.close()


def test_more_rows_or_longer_ones_never_need_less() -> None:
    peaks = [SIZES.peak(rows, 1000 * rows, 16) for rows in range(1, 9)]
    assert peaks == sorted(peaks)
    assert SIZES.buffers(2) > SIZES.buffers(1)


def test_too_many_buffers_do_not_fit() -> None:
    assert Memory(SIZES, 1 << 62, SIZES.buffers(2)).with_rows(2, 10).fits(16)
    assert not Memory(SIZES, 1 << 62, SIZES.buffers(2) - 1).with_rows(2, 10).fits(16)


FAMILIES = [
    "llama", "llama_sliding", "qwen3_5", "gemma3_text", "gemma4_text", "gpt_oss", "mamba2",
    "falcon_h1", "deepseek_v3", "recurrent_gemma", "qwen2_5_vl", "qwen3_5_vl",
    "qwen4_exp",
]  # fmt: skip


@pytest.mark.parametrize("name", often(FAMILIES, *FAMILIES[1::4], "falcon_h1", "qwen4_exp"))
def test_the_state_of_real_rows_is_as_predicted(name: str) -> None:
    """Within one step of 256 tokens, for every kind of layer."""
    with LLM(str(checkpoint_dir(name))) as llm:
        sizes = footprint(llm._engine.model)  # type: ignore[union-attr]
        rows = [llm.submit(prompt(length), SamplingParams(max_tokens=40, ignore_eos=True))
                for length in (300, 40, 170)]  # fmt: skip
        while llm.status()["max_decode_batch"] < 3:
            llm.step()
        for _ in range(8):
            llm.step()
        real = llm.status()["memory"]["state_bytes"]
        small = 1024  # offsets and paddings
        assert sizes.state(3, 300 - STEP) <= real <= sizes.state(3, 340) + small
        assert real > sizes.state(2, 340) + small  # control: two rows would be less
        for row in rows:
            row.abort()


def test_measuring_leaves_nothing_behind() -> None:
    model = load(str(checkpoint_dir("qwen3_5")))
    mx.synchronize()
    before = mx.get_active_memory()
    first, second = footprint(model), footprint(model)
    assert mx.get_active_memory() == before
    assert first.weights == second.weights > 0
    assert first.layers == second.layers
    model.close()


def test_tokens_in_pages_are_counted_once_however_many_rows_hold_them() -> None:
    """And padded layers of the same rows by the longest. B62."""
    paged = replace(
        SIZES,
        layers=(LayerFootprint(100, count=4, paged=True), LayerFootprint(10, window=50, count=2)),
    )
    memory = replace(Memory(paged, 1 << 40, 1 << 30), rows=8, longest=1000, tokens=3000)
    assert memory.peak(16) - replace(memory, tokens=0).peak(16) == 3000 * (4 + 1) * 100
    assert replace(memory, rows=9).peak(16) - memory.peak(16) == 2 * 500 + SIZES.per_row
    limit = memory.peak(16)
    assert replace(memory, limit=limit).paged_tokens(16) == 3000
    assert replace(memory, limit=limit).fits(16)
    assert not replace(memory, limit=limit, tokens=3001).fits(16)
