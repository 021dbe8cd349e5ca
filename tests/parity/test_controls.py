"""Controls: the comparison fails when the mechanism it watches is broken.

A mistake is made in the first of the families that have what it breaks; BUSHEL_TEST_FAMILIES=all
makes it in all of them.
"""

import logging

import pytest

from ..families.family import EVERY
from .mutations import MUTATIONS, Mutation
from .run import BOUND, loaded
from .scenarios import scenarios
from .subject import subject

pytestmark = pytest.mark.long

# Far from the bound, so that no rounding is taken for a mistake.
NOTICED = 10 * BOUND


def places() -> set[tuple[str, int]]:
    """Which mutations are made in which families."""
    # Every family that has a lane or a mend of its own has it for another reason.
    return {
        (name, at)
        for at, it in enumerate(MUTATIONS)
        for name in (it.families if EVERY or it.name in ("lane", "mends") else it.families[:1])
    }


PLACES = sorted(places())  # so that a family's solo results and its model are made once


def test_every_mistake_is_made() -> None:
    assert {at for _, at in PLACES} == {*range(len(MUTATIONS))}


@pytest.mark.parametrize(
    ("mutation", "name"),
    [pytest.param(MUTATIONS[at], name, id=f"{MUTATIONS[at].name}-{name}") for name, at in PLACES],
)
def test_a_mistake_is_noticed(
    mutation: Mutation,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    """Without the line that keeps it, the promise does not hold. B1, B4, B5, B7."""
    whole = subject(name)
    mutation.apply(monkeypatch)
    if mutation.at_load:
        loaded.cache_clear()
        request.addfinalizer(loaded.cache_clear)
    with caplog.at_level(logging.WARNING, "bushel"):
        result = scenarios(name)[mutation.scenario](whole)
    assert not result.ok
    assert result.difference > NOTICED, str(result)
    raised = [record.getMessage() for record in caplog.records if record.name.startswith("bushel")]
    assert not raised, "the engine noticed it, not the comparison"
