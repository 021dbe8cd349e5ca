"""Controls: the comparison fails when the mechanism it watches is broken.

A mistake is made in two of the families that have what it breaks; BUSHEL_FAMILIES=all makes it in
all of them.
"""

import logging

import pytest

from ..families.family import EVERY
from .mutations import MUTATIONS, Mutation
from .run import BOUND, loaded
from .scenarios import scenarios
from .subject import subject

# Far from the bound, so that no rounding is taken for a mistake.
NOTICED = 10 * BOUND


def made_in(at: int) -> tuple[str, ...]:
    """In which families mutation `at` is made: others for each, so that all have their turn."""
    names = MUTATIONS[at].families
    # Every family that has a lane of its own has it for another reason.
    if EVERY or MUTATIONS[at].name == "lane":
        return names
    return tuple({names[(at + n) % len(names)]: n for n in range(2)})


PLACES = sorted(  # family by family, so that its solo results and its model are made once
    (name, at) for at in range(len(MUTATIONS)) for name in made_in(at)
)


def test_every_family_of_the_table_has_its_turn() -> None:
    assert {name for name, _ in PLACES} == {name for it in MUTATIONS for name in it.families}


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
    """B1, B4, B5, B7: without the line that keeps it, the promise does not hold."""
    whole = subject(name)
    mutation.apply(monkeypatch)
    if mutation.at_load:
        loaded.cache_clear()
        request.addfinalizer(loaded.cache_clear)
    with caplog.at_level(logging.WARNING, "bushel"):
        result = scenarios(name)[mutation.scenario](whole)
    assert not result.ok
    assert result.difference > NOTICED, str(result)
    raised = [it.getMessage() for it in caplog.records if it.name.startswith("bushel")]
    assert not raised, "the engine noticed it, not the comparison"
