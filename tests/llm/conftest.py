"""One loaded model per worker and family; tests that need other settings load their own.

Nothing is kept for later prompts here, so that a prompt asked twice runs twice: `tests/prefix`.
"""

from collections.abc import Iterator

import pytest

from bushel import LLM
from tests.families import checkpoint_dir


def _idle(llm: LLM) -> Iterator[LLM]:
    yield llm
    assert (llm.status()["running"], llm.status()["waiting"]) == (0, 0)
    llm.check_integrity()


@pytest.fixture(scope="session")
def _llama() -> Iterator[LLM]:
    with LLM(str(checkpoint_dir("llama")), prefix_cache=False) as llm:
        yield llm


@pytest.fixture(scope="session")
def _seeing() -> Iterator[LLM]:
    with LLM(str(checkpoint_dir("qwen3_5_vl")), prefix_cache=False) as llm:
        yield llm


@pytest.fixture
def llama(_llama: LLM) -> Iterator[LLM]:
    """An attention-only text model."""
    yield from _idle(_llama)


@pytest.fixture
def seeing(_seeing: LLM) -> Iterator[LLM]:
    """A hybrid model that takes images."""
    yield from _idle(_seeing)
