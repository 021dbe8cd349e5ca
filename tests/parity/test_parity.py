"""Every family, batched, says what it says alone (B1, B2, B4, B5, B6, B7)."""

import mlx.core as mx
import pytest

from .run import WIDER
from .scenarios import scenarios
from .subject import NAMES, ROWS, doubled, subject

# Where all rows meet: the others depend on how fast rows come and go.
FULL = "chunk 512"


@pytest.mark.parametrize(
    ("name", "scenario"), [(name, title) for name in NAMES for title in scenarios(name)]
)
def test_batched_equals_solo(name: str, scenario: str) -> None:
    """B1 and B2 for every mix of kinds, B4 for windows of 16, B5 to B7 for models that see."""
    result = scenarios(name)[scenario](subject(name))
    assert result.ok, str(result)
    assert result.largest_batch == ROWS or scenario != FULL


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="only the CPU computes in float64")
@pytest.mark.parametrize("name", WIDER)
def test_a_wider_bound_is_for_rounding_alone(name: str) -> None:
    """B1: in float64, where nothing rounds but the log-softmax, the family needs none."""
    for title, scenario in scenarios(name).items():
        result = scenario(doubled(name))
        assert not result.faults, f"{title}: {result}"
        assert result.difference < 1e-5, f"{title}: {result}"
