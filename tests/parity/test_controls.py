"""Controls: the comparison fails when the mechanism it watches is broken."""

import logging

import pytest

from .mutations import MUTATIONS, Mutation
from .run import BOUND
from .scenarios import scenarios
from .subject import subject

# Far from the bound, so that no rounding is taken for a mistake.
NOTICED = 10 * BOUND


@pytest.mark.parametrize(
    ("mutation", "name"),
    [
        pytest.param(mutation, name, id=f"{mutation.name}-{name}")
        for mutation in MUTATIONS
        for name in mutation.families
    ],
)
def test_a_mistake_is_noticed(
    mutation: Mutation,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B1, B4, B5, B7: without the line that keeps it, the promise does not hold."""
    whole = subject(name)
    mutation.apply(monkeypatch)
    with caplog.at_level(logging.WARNING, "bushel"):
        result = scenarios(name)[mutation.scenario](whole)
    assert not result.ok
    assert result.difference > NOTICED, str(result)
    raised = [it.getMessage() for it in caplog.records if it.name.startswith("bushel")]
    assert not raised, "the engine noticed it, not the comparison"
