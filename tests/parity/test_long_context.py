"""A context far beyond every chunk, and what it was predicted to need."""

import pytest

from .long_context import compare

pytestmark = pytest.mark.long


def test_a_long_row_beside_short_ones_equals_solo_within_the_predicted_memory() -> None:
    found = compare(5000)
    assert found.equal
    assert found.difference <= 1e-4
    assert found.batch == 3
    assert 0.5 * found.predicted < found.real <= found.predicted
