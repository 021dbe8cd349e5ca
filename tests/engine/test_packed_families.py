"""Families whose prompts share a pass without being tried at load were tried here (B1).

A few of them; BUSHEL_TEST_FAMILIES=all tries every one.
"""

import pytest

from bushel.engine.attention_route import choose_attention
from bushel.engine.batching_check import packing_fault
from bushel.models import load
from bushel.models.known_families import single_because
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.text import TEXT
from tests.families.vision import VISION

SOME = ("llama", "gpt2", "deepseek_v3", "qwen3_moe", "qwen2_vl", "qwen3_5_vl", "falcon_h1", "lfm2")


@pytest.mark.parametrize("name", [*TEXT, *VISION] if EVERY else SOME)
def test_prompts_that_share_a_pass_are_as_near_to_themselves_alone_as_rows_are(name: str) -> None:
    model = load(str(checkpoint_dir(name)))
    model.single = single_because(model.network)
    choose_attention(model, "padded")
    shares, fault = model.shares_passes, packing_fault(model) if model.shares_passes else None
    model.close()
    assert fault is None
    assert shares or EVERY


@pytest.mark.parametrize("name", ["afm7", "limite"])
def test_prompts_that_cannot_share_a_pass_do_not_try_to(name: str) -> None:
    """Every such pass would fail, and be run again prompt by prompt."""
    model = load(str(checkpoint_dir(name)))
    choose_attention(model, "padded")
    assert not model.shares_passes
    assert packing_fault(model) is not None
    model.close()
