"""Keys and values in 8 or 4 bits: batched as alone, or refused at start by name (B3).

Encoding is a step function: a rounding error of 1e-7 can take a number over an edge, and then
moves log-probabilities by up to 1e-2. mlx-lm's own loop differs from itself by 8e-3 with 8 bits
and by 1e-2 with 4 when its chunks are of 1 or 3 tokens. So equality is shown in float64, where
nothing comes near an edge, and in float32 up to such steps.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx_lm
import mlx_vlm
import pytest
from mlx_lm.models.cache import KVCache
from mlx_vlm.models.qwen3_5 import gated_delta, language

from bushel import LLM, ModelError
from bushel.cache.quantized_kv import QuantizedBatch
from tests.depth import often, one_in
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.variants import known, wide_dir
from tests.models.refused_checkpoints import assert_refused
from tests.parity import run
from tests.parity.run import Result
from tests.parity.scenarios import Scenario, churn, fork, leaves, together
from tests.parity.subject import ROWS, Subject, subject

from .request_builders import greedy, prompt

BITS = (8, 4)
FAMILIES = ("llama", "qwen3", "qwen3_5", "qwen2_5_vl", "qwen3_5_vl")
GROUPS = {"llama": 64}  # the others' heads are 32 wide
LONG, SHORT = 24, 16  # tokens of a reply
# Rounding of the log-softmax, which is float32 always; measured 2e-6 to 6e-6.
EXACT = 1e-5
# A few numbers over an edge; measured up to 7e-3 with 8 bits and 2e-2 with 4.
STEPPED = 0.1

on_cpu = pytest.mark.skipif(mx.default_device() != mx.cpu, reason="only the CPU has float64")


def encode(x: mx.array, *, group_size: int, bits: int) -> tuple[mx.array, ...]:
    return _quantize(x.astype(mx.float32), group_size=group_size, bits=bits)


def multiply(
    x: mx.array, *triple: mx.array, transpose: bool, group_size: int, bits: int
) -> mx.array:
    packed, scales, biases = (mx.contiguous(part) for part in triple)
    narrow = scales.astype(mx.float32), biases.astype(mx.float32)
    plain = mx.dequantize(packed, *narrow, group_size=group_size, bits=bits).astype(x.dtype)
    return x @ (plain.swapaxes(-1, -2) if transpose else plain)


_quantize = mx.quantize
# They compute a recurrent layer in float32 whatever it is given, in a way that depends on how a
# prompt is cut.
NARROWING = (language, gated_delta)


class Wide:
    """mlx.core to a module that asks for float32 and is to get float64."""

    float32 = mx.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)

    def exp(self, x: mx.array) -> mx.array:
        """MLX's own has a float32's accuracy for float64 as well."""
        return mx.power(mx.array(math.e, dtype=mx.float64), x.astype(mx.float64))


@contextmanager
def double() -> Iterator[None]:
    """MLX's two functions for quantized arrays, for float64 too; Bushel and the loops share them.

    Numbers are encoded in float32, so that the codes are those of every day.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(mx, "quantize", encode))
        stack.enter_context(patch.object(mx, "quantized_matmul", multiply))
        for module in NARROWING:
            stack.enter_context(patch.object(module, "mx", Wide()))
        yield


@cache
def alone(family: str, bits: int, *, wide: bool) -> Subject:
    """What the library's own loop makes of each prompt, with its own quantized state."""

    def loading(load: Callable[[str], tuple[Any, Any]]) -> Callable[[str], tuple[Any, Any]]:
        def loaded(path: str) -> tuple[Any, Any]:
            network, rest = load(path)
            if wide:
                network.set_dtype(mx.float64)
            owner = getattr(network, "language_model", network)
            plain = getattr(owner, "make_cache", partial(plain_layers, owner))
            owner.make_cache = partial(quantized, plain, family, bits)
            return network, rest

        return loaded

    name = f"{family}_wide"
    with ExitStack() as stack:
        stack.enter_context(known(name))
        for library, load in ((mlx_lm, loading(mlx_lm.load)), (mlx_vlm, loading(mlx_vlm.load))):
            stack.enter_context(patch.object(library, "load", load))
        if wide:
            stack.enter_context(double())
        tokens = LONG if family == "llama" or family.endswith("_vl") else SHORT
        return replace(subject.__wrapped__(name, tokens), name=family, double=wide)


def plain_layers(network: Any) -> list[Any]:
    """As the libraries' loops do for models that do not say."""
    return [KVCache() for _ in network.layers]


def quantized(make: Callable[[], list[Any]], family: str, bits: int) -> list[Any]:
    group = GROUPS.get(family, 32)
    return [
        layer.to_quantized(group_size=group, bits=bits)
        if type(layer).__name__ == "KVCache"
        else layer
        for layer in make()
    ]


def served(scenario: Scenario, whole: Subject, **settings: Any) -> Result:
    with ExitStack() as stack:
        if whole.double:
            stack.enter_context(double())
        # However slow the machine, prompts run one after the other, so that the same rows meet.
        llm = partial(LLM, start_wait=1e9, **settings)
        stack.enter_context(patch.object(run, "LLM", llm))
        return scenario(whole)


# -- batched as alone -------------------------------------------------------------------------


# Keys alone, and beside recurrent layers and images; all with BUSHEL_TEST_FAMILIES=all.
PAIRS = [(family, bits) for family in FAMILIES for bits in BITS]
SOME = [("llama", 4), ("qwen3", 8), ("qwen3_5_vl", 4)]


@on_cpu
@pytest.mark.parametrize(("family", "bits"), PAIRS if EVERY else often(SOME, ("qwen3_5_vl", 4)))
def test_batched_equals_solo(family: str, bits: int) -> None:
    """Eight prompts, with images where the model sees, that come in chunks and go. B3."""
    result = served(churn, alone(family, bits, wide=True), kv_bits=bits)
    assert not result.faults, str(result)
    assert result.difference < EXACT
    assert result.largest_batch > 4


WAYS: dict[str, Scenario] = {
    "chunk 64": partial(together, chunk=64),
    "leaves": leaves,
    "fork": fork,
}


@on_cpu
@pytest.mark.parametrize("way", often(WAYS, "fork"))
def test_every_way_rows_meet_is_equal(way: str) -> None:
    """Any chunk size, joins, leaves down to one row, and copies of state. B3."""
    result = served(WAYS[way], alone("llama", 4, wide=True), kv_bits=4)
    assert not result.faults, str(result)
    assert result.difference < EXACT
    assert result.largest_batch == ROWS


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "bits"), often([("qwen3", 8), ("qwen2_5_vl", 4)], ("qwen2_5_vl", 4))
)
def test_float32_says_the_same_tokens(family: str, bits: int) -> None:
    result = served(churn, alone(family, bits, wide=False), kv_bits=bits)
    assert not result.faults, str(result)
    assert result.difference < STEPPED


# -- controls ---------------------------------------------------------------------------------


@on_cpu
def test_plain_keys_are_noticed() -> None:
    result = served(churn, alone("llama", 4, wide=True), kv_bits=None)
    assert result.faults
    assert result.difference > 10 * STEPPED


def padding_seen(batch: QuantizedBatch) -> None:
    batch._first = mx.zeros_like(batch._first)


def token_lost(batch: QuantizedBatch) -> None:
    batch._first = batch._first + 1


def position_late(batch: QuantizedBatch) -> None:
    batch.offset = batch.offset + 1


def padding_as_an_array(batch: QuantizedBatch) -> None:
    batch.left_padding = mx.array(batch.left_padding)  # type: ignore[assignment]


MISTAKES = [
    ("llama", padding_seen),
    ("llama", token_lost),
    ("llama", position_late),
    ("qwen2_5_vl", padding_seen),
    ("qwen3_5_vl", padding_as_an_array),  # as mlx-vlm's own batch form has it
]


def make(mistake: Callable[[QuantizedBatch], None], patch: pytest.MonkeyPatch) -> None:
    """In every batch that rows join or leave; values change, and nothing raises."""
    place = QuantizedBatch._place

    def wrong(self: QuantizedBatch, *args: Any) -> None:
        place(self, *args)
        mistake(self)

    patch.setattr(QuantizedBatch, "_place", wrong)
    patch.setattr("bushel.cache.quantized_kv.Quantized.check", lambda *_: None)


@pytest.mark.parametrize(("family", "mistake"), one_in(2, MISTAKES))
def test_a_mistake_in_batches_is_refused_at_start(
    family: str, mistake: Callable[[QuantizedBatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-check notices, before anybody is served. B3."""
    make(mistake, monkeypatch)
    reason = f"{family}_wide cannot be loaded: kv_bits=8 does not work with it: the self-check"
    assert_refused(str(wide_dir(f"{family}_wide")), reason, kv_bits=8)


@on_cpu
def test_a_mistake_in_batches_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison notices what the self-check would. B3."""
    make(padding_seen, monkeypatch)
    monkeypatch.setattr("bushel.engine.build.require_kv_bits", lambda *_: None)
    result = served(churn, alone("llama", 4, wide=True), kv_bits=4)
    assert result.difference > 10 * STEPPED


# -- what cannot work -------------------------------------------------------------------------

REFUSED = {
    "llama": "16 wide",
    "deepseek_v3": "MLA",
    "gpt_oss": "sliding windows",
    "gemma3_text": "sliding windows",
    "gemma3_vl": "sliding windows",
    "gemma2": "attention by itself",
    "falcon_h1": "several states",
    "deepseek_v32": "several states",
    "mamba2": "no keys and values",
}


@pytest.mark.parametrize("name", one_in(3, REFUSED))
def test_a_family_without_quantized_form_is_refused_by_name(name: str) -> None:
    """The message tells what its state is. B3."""
    path = str(checkpoint_dir(name))
    assert_refused(path, REFUSED[name], kv_bits=8)
    assert_refused(path, f"{name} cannot be loaded: kv_bits=4", kv_bits=4)


def test_attention_that_cannot_read_it_is_refused_by_name() -> None:
    """A trial finds it, because only the model's own code knows. Its state is plain. B3."""
    path = str(wide_dir("stablelm_wide"))
    reason = "stablelm_wide cannot be loaded: kv_bits=8 does not work with it: its attention"
    assert_refused(path, reason, kv_bits=8)
    with LLM(path) as llm:
        assert llm.generate(prompt(5), greedy(2))[0].error is None


@pytest.mark.parametrize("bits", [0, 2, 16, True, "8", 8.5])
def test_other_numbers_of_bits_are_refused(bits: Any) -> None:
    with pytest.raises(ModelError, match="kv_bits must be 8 or 4"):
        LLM(str(wide_dir("llama_wide")), kv_bits=bits)
