"""`embed` and `score` in Python: one meaning, whichever of the three doors they are asked by."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from bushel import LLM, AsyncLLM, RequestError, SharedLLM
from tests.depth import one_in
from tests.families import checkpoint_dir
from tests.llm.test_examples import examples, failures

TEXTS = ["a bushel", "of grain and apples", "fills eight gallons of dry goods", "a bushel"]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    with LLM(str(checkpoint_dir("bert"))) as llm:
        return np.array(llm.embed(TEXTS))


@pytest.mark.parametrize("method", one_in(2, [LLM.embed, LLM.score]), ids=["embed", "score"])
def test_what_its_docstring_shows_is_so(method: Any) -> None:
    assert failures(examples("method", inspect.getdoc(method))) == 0


def test_vectors_have_length_one_and_the_same_text_has_the_same(expected: np.ndarray) -> None:
    assert np.allclose(np.linalg.norm(expected, axis=1), 1)
    assert np.allclose(expected[0], expected[3])
    assert not np.allclose(expected[0], expected[1], atol=1e-2)


def test_threads_ask_a_shared_one(expected: np.ndarray) -> None:
    with SharedLLM(str(checkpoint_dir("bert"))) as llm, ThreadPoolExecutor() as threads:
        found = [vector for [vector] in threads.map(llm.embed, TEXTS)]
        assert np.allclose(found, expected, atol=1e-5)
        assert len(llm.embed("a", dimensions=8)[0]) == 8
        with pytest.raises(RequestError, match=r"Text 1: .* token ids"):
            llm.embed([[5], [-1]])


def test_tasks_ask_an_async_one(expected: np.ndarray) -> None:
    async def ask() -> list[Any]:
        async with AsyncLLM(str(checkpoint_dir("bert"))) as llm:
            return [*await asyncio.gather(*(llm.embed([text]) for text in TEXTS))]

    assert np.allclose([vector for [vector] in asyncio.run(ask())], expected, atol=1e-5)


@pytest.mark.parametrize("documents", ["a text", None, [1], [None], {"text": "a"}], ids=str)
def test_documents_are_texts(documents: Any) -> None:
    with (
        LLM(str(checkpoint_dir("bert"))) as llm,
        pytest.raises(RequestError, match="documents must be a list of strings"),
    ):
        llm.score("a", documents)


def test_a_query_is_a_text() -> None:
    with LLM(str(checkpoint_dir("bert_cross"))) as llm, pytest.raises(RequestError):
        llm.score(7, ["a"])  # type: ignore[arg-type]
