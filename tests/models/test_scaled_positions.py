"""Rotary factors and query scales that change with a row's own length."""

from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_vlm.models.rope_utils import SuScaledRoPE

from bushel.models.known_families import cuts_matter
from bushel.models.library_fixes import mend
from bushel.models.row_positions import long_rope, mistral3
from tests.families.text import TEXT, network

BORDER = 16


class OneRope(nn.Module):
    def __init__(self, dims: int):
        super().__init__()
        pairs = [1.0 + pair for pair in range(dims // 2)]
        self.rope = SuScaledRoPE(
            dims,
            max_position_embeddings=64,
            original_max_position_embeddings=BORDER,
            long_factor=pairs,
            long_mscale=2.0,
        )


@pytest.mark.parametrize("dims", [16, 8], ids=["all", "half"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_a_row_before_the_border_keeps_its_factors_beside_a_longer_one(
    dims: int, tokens: int
) -> None:
    """Phi-4 rotates a part of each head."""
    whole = OneRope(dims)
    x = mx.random.normal((4, 2, tokens, 16), key=mx.random.key(1))
    offsets = [2, BORDER - tokens, BORDER - tokens + 1, 40]
    alone = [whole.rope(x[at : at + 1], offset) for at, offset in enumerate(offsets)]
    long_rope.install(whole)
    together = whole.rope(x, mx.array(offsets))
    np.testing.assert_allclose(np.array(together), np.array(mx.concatenate(alone)), atol=1e-6)


def test_cuts_matter_to_any_network_with_two_sets_of_factors() -> None:
    """And it says so after it has been mended, too."""
    whole = OneRope(16)
    assert cuts_matter(whole)
    long_rope.install(whole)
    assert cuts_matter(whole)
    assert cuts_matter(nn.Linear(2, 2)) is None


def test_mlx_lms_class_of_the_same_name_stays_its_own() -> None:
    """mlx-lm's Mistral 4 scales by row, and keeps its settings elsewhere."""
    config: dict[str, Any] = TEXT["mistral3-text"].config
    inner = TEXT["mistral4"].config
    model = network(replace(TEXT["mistral3-text"], config={**config, "text_config": inner}))
    own = type(model.language_model.model)
    assert own.__name__ in mistral3._SCALED
    mend(model, config)
    assert type(model.language_model.model) is own
