"""Every family, batched, says what it says alone (B1, B2, B4, B5, B6, B7).

Here is one of each sort, half of them in `make test`; all with BUSHEL_TEST_FAMILIES=all.
"""

import mlx.core as mx
import numpy as np
import pytest

from bushel.models.library_fixes import _CHANGES
from tests.depth import rarely

from ..families.family import EVERY
from ..families.text import TEXT
from ..families.vision import VISION
from .double_precision import float64
from .run import BOUND, WIDER
from .scenarios import scenarios, selected, short, shortened, tried
from .subject import NAMES, ROWS, Subject, doubled, subject

# Where all rows meet: the others depend on how fast rows come and go.
FULL = "leaves"
# In float64: 2e-13 is measured, and 2e-6 to 1e-4 where convolutions and norms are float32's.
EXACT = 1e-9
# Where every weight moves by 1e-11: up to 2.5e-8 is measured, and 1.5e-7 to 9e-6 where
# attention, a norm, a convolution or a sigmoid is float32's.
SMOOTH = 1e-7


def check(whole: Subject, title: str) -> None:
    result = scenarios(whole.name)[title](whole)
    assert result.ok, f"{title}: {result}"
    if whole.single:
        assert result.largest_batch == 1
    elif title == FULL:
        assert result.largest_batch == ROWS


# What they have of their own is tried of others: the second of two generations or of two sizes.
# And phi3_v_long, whose pictures are large, as text by test_equal_pieces.
LIKE_ANOTHER = (
    *("gemma4_vl", "minicpmv4_7", "ernie4_5_moe_vl", "glm_ocr", "granite4_vision", "phi4mm"),
    *("mamba", "nemotron_h", "hunyuan", "phimoe", "internlm3", "afm7", "nanbeige"),
    *("gpt_bigcode", "nemotron-nas-linear", "prism_hadamard_qwen35", "idefics2", "phi3_v_long"),
)
# Each has something of its own, but the kinds of its states and its way to place pictures are
# tried of another: `make test-long` has them.
KINDS_OF_ANOTHER = (
    *("gemma3n", "gemma4_text", "iquestloopcoder", "mimo_v2_flash", "plamo3", "qwen3_moe"),
    *("baichuan_m1", "gear", "plamo2", "deepseek_v32", "longcat_flash_ngram"),
    *("hy_v4", "minimax_m3_vl-text", "z1t", "nemotron-nas", "kimi_linear", "llama_sliding"),
    *("cohere_compass", "minicpmv4_6", "minimax_m3_vl", "glm4v"),
    *("llama4_vl", "molmo", "step3p7", "zaya1_vl", "qwen3_vl", "gemma4_bidir"),
    *("pixtral", "qwen3", "lfm2_vl", "qwen2_5_vl", "gemma2", "lfm2", "gemma3_text"),
)


def sort_of(name: str) -> tuple[object, ...]:
    """What makes a family another case: its states, its lane, and how it places pictures."""
    if name in TEXT:
        return TEXT[name].kinds, TEXT[name].single
    it = VISION[name]
    return it.kinds, it.single, it.cuts, it.positions, it.most_images > 1


def parts_of(name: str) -> set[object]:
    """Each of these alone."""
    it = TEXT[name] if name in TEXT else VISION[name]
    parts: set[object] = {*it.kinds, ("alone", it.single)}
    if name in VISION:
        seen = VISION[name]
        parts |= {("cuts", seen.cuts), ("positions", seen.positions), seen.most_images > 1}
    return parts


def test_every_sort_of_family_is_tried() -> None:
    """And every family that is served in a way of its own, for whatever reason.

    Here or in `make test-long`; each kind of state and each way to place pictures already here.
    """
    both = {*tried()} - {*LIKE_ANOTHER}
    assert {sort_of(name) for name in both} == {sort_of(name) for name in NAMES}
    families = {**TEXT, **VISION}
    own = {name for name, it in families.items() if it.single or it.equal_chunks}
    own |= {name for name, it in families.items() if it.config["model_type"] in _CHANGES}
    assert own <= both | {"phi3_v_long"}
    here = both - {*KINDS_OF_ANOTHER}
    assert set().union(*map(parts_of, here)) == set().union(*map(parts_of, NAMES))


# One test for each, so that its solo results are made once however many processes there are.
@pytest.mark.parametrize(
    "name", tried() if EVERY else rarely(tried(), (*LIKE_ANOTHER, *KINDS_OF_ANOTHER).__contains__)
)
def test_batched_equals_solo(name: str) -> None:
    """Any mix of kinds, windows of 16, and images for models that see. B1, B2, B4, B5, B6, B7."""
    whole = shortened(name) if short(name) else subject(name)
    for title in selected(name):
        check(whole, title)


in_float64 = pytest.mark.skipif(
    mx.default_device() != mx.cpu, reason="only the CPU computes in float64"
)


@in_float64
@pytest.mark.long
@pytest.mark.parametrize("name", WIDER)
def test_a_wider_bound_is_for_rounding_alone(name: str) -> None:
    """In float64 the family is exact: 2e-13 apart, for whatever BLAS and number of threads. B1."""
    whole = doubled(name)
    for title in selected(name) if EVERY else ["again"]:
        with float64():
            result = scenarios(name)[title](whole)
        assert not result.faults, f"{title}: {result}"
        assert result.difference < EXACT, f"{title}: {result}"


@in_float64
@pytest.mark.long
@pytest.mark.parametrize("name", WIDER)
def test_float64_is_the_same_network_without_rounding(name: str) -> None:
    """It says what float32 does, up to rounding; and what moves a little moves it a little."""
    for row, near, narrow in zip(
        doubled(name).rows, doubled(name, 1e-11).rows, subject(name).rows, strict=True
    ):
        assert row.tokens == near.tokens == narrow.tokens
        assert np.abs(row.logprobs - narrow.logprobs).max() < 10 * BOUND
        assert 0 < np.abs(row.logprobs - near.logprobs).max() < SMOOTH


@in_float64
@pytest.mark.long
@pytest.mark.parametrize("name", WIDER)
def test_float64_notices_the_last_bit_of_float32(name: str) -> None:
    """The control: weights that differ by so much are far over what is exact."""
    whole = doubled(name, 2.0**-24)
    with float64():
        result = scenarios(name)["churn"](whole)
    assert result.difference > 100 * EXACT, str(result)
