"""Every family, batched, says what it says alone (B1, B2, B4, B5, B6, B7)."""

import mlx.core as mx
import pytest

from .run import WIDER
from .scenarios import scenarios, selected, short, shortened
from .subject import NAMES, ROWS, Subject, doubled, subject

# Where all rows meet: the others depend on how fast rows come and go.
FULL = "chunk 512"


def check(whole: Subject, title: str) -> None:
    result = scenarios(whole.name)[title](whole)
    assert result.ok, f"{title}: {result}"
    if whole.single:
        assert result.largest_batch == 1
    elif title == FULL:
        assert result.largest_batch == ROWS


# One test for each, so that its solo results are made once however many processes there are.
@pytest.mark.parametrize("name", NAMES)
def test_batched_equals_solo(name: str) -> None:
    """Any mix of kinds, windows of 16, and images for models that see. B1, B2, B4, B5, B6, B7."""
    whole = shortened(name) if short(name) else subject(name)
    for title in selected(name):
        check(whole, title)


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="only the CPU computes in float64")
@pytest.mark.parametrize("name", WIDER)
def test_a_wider_bound_is_for_rounding_alone(name: str) -> None:
    """In float64, where nothing rounds but the log-softmax, the family needs none. B1."""
    for title in selected(name):
        result = scenarios(name)[title](doubled(name))
        assert not result.faults, f"{title}: {result}"
        assert result.difference < 1e-5, f"{title}: {result}"
