"""Every family, batched, says what it says alone (B1, B2, B4, B5, B6, B7)."""

import pytest

from .scenarios import scenarios
from .subject import NAMES, ROWS, subject

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
