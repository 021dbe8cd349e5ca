"""A model that all threads of a program may ask."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bushel import LLM, BushelError, Event, ModelError, Output, RequestError, SharedLLM
from bushel.models.text_model import TextModel
from tests.engine.late_faults import WORDS, LateFaults
from tests.families import checkpoint_dir

from .request_builders import assert_same, chat, greedy, hot, prompt, solo

LLAMA = str(checkpoint_dir("llama"))
LONG = greedy(3000)


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedLLM]:
    with SharedLLM(LLAMA, prefix_cache=False) as llm:
        yield llm
        assert llm.status()["running"] == 0


def threads_named_engine() -> int:
    return sum(thread.name == "bushel-engine" for thread in threading.enumerate())


# -- answers ----------------------------------------------------------------------------------


def test_threads_get_the_answers_they_get_alone(shared: SharedLLM, llama: LLM) -> None:
    """Sixteen threads at once, greedy and sampled, share batches."""
    asked = [(prompt(5 + seed, seed), (hot if seed % 2 else greedy)(20)) for seed in range(16)]
    start = threading.Barrier(16)

    def ask(pair: Any) -> Output:
        start.wait()
        [output] = shared.generate(*pair)
        return output

    with ThreadPoolExecutor(16) as threads:
        outputs = list(threads.map(ask, asked))
    for pair, output in zip(asked, outputs, strict=True):
        assert_same(output, solo(llama, *pair))
    assert shared.status()["max_decode_batch"] > 1


def test_it_means_the_same_as_an_llm(shared: SharedLLM, llama: LLM) -> None:
    asked: list[Any] = ["Once upon a time", prompt(7), {"promt": "x"}, chat("Hello")]
    for one, two in zip(
        shared.generate(asked, greedy(6)), llama.generate(asked, greedy(6)), strict=True
    ):
        assert_same(one, two)
    turns = [{"role": "user", "content": "Hello"}]
    [talk], [same] = shared.chat(turns, greedy(6)), llama.chat(turns, greedy(6))
    assert_same(talk, same)
    with pytest.raises(RequestError, match="did you mean 'tools'"):
        shared.chat(turns, toolz=[])  # type: ignore[call-arg]
    assert shared.tokenizer.encode("Hello") == llama.tokenizer.encode("Hello")


def test_a_stream_can_be_read_in_any_thread(shared: SharedLLM, llama: LLM) -> None:
    expected = solo(llama, prompt(9), greedy(12))
    with ThreadPoolExecutor(1) as threads:
        events = threads.submit(lambda: list(shared.stream(prompt(9), greedy(12)))).result()
    assert [token for event in events for token in event.token_ids] == expected.token_ids
    assert "".join(event.text for event in events) == expected.text
    assert [event.finish_reason for event in events].count("length") == 1


def test_leaving_a_stream_frees_its_row(shared: SharedLLM) -> None:
    """Nothing runs when the model is asked what does. B47."""
    for event in shared.stream(prompt(9), LONG):
        if event.token_ids:
            assert shared.status()["running"] == 1
            break
    gc.collect()
    assert shared.status()["running"] == 0


def test_many_prompts_have_a_bar(shared: SharedLLM, capsys: pytest.CaptureFixture[str]) -> None:
    shared.generate([prompt(5, seed) for seed in range(40)], greedy(2), progress=True)
    assert "40/40" in capsys.readouterr().err


# -- ends -------------------------------------------------------------------------------------


def pending(llm: SharedLLM, count: int, threads: ThreadPoolExecutor) -> list[Any]:
    """So many threads that wait for an answer, with the engine at work."""
    asked = [threads.submit(llm.generate, prompt(5, seed), LONG) for seed in range(count)]
    while llm.status()["running"] < count:
        pass
    return asked


def test_who_waits_when_it_is_closed_is_told_so() -> None:
    """Each once; and so is everyone who comes later."""
    llm = SharedLLM(LLAMA)
    with ThreadPoolExecutor(4) as threads:
        asked = pending(llm, 4, threads)
        llm.close()
        for each in asked:
            with pytest.raises(BushelError, match="This SharedLLM is closed"):
                each.result()
    uses: list[Callable[[], object]] = [
        lambda: llm.generate(prompt(5)),
        lambda: list(llm.stream(prompt(5))),
        lambda: llm.status(),
    ]
    for use in uses:
        with pytest.raises(BushelError, match="closed"):
            use()
    llm.close()


def test_an_engine_that_fails_tells_everyone_who_waits() -> None:
    """Nobody waits for ever, and the next one hears of it at once."""

    def fail(llm: LLM) -> None:
        def failing() -> None:
            raise RuntimeError("the engine is broken")

        llm.step = failing  # type: ignore[method-assign]

    llm = SharedLLM(LLAMA)
    with ThreadPoolExecutor(3) as threads:
        asked = pending(llm, 3, threads)
        llm._engine.ask(fail).result()
        for each in asked:
            with pytest.raises(BushelError, match="the engine is broken"):
                each.result()
    with pytest.raises(BushelError, match="the engine is broken"):
        llm.generate(prompt(5))
    llm.close()


def test_a_device_that_fails_is_told_to_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an LLM tells it: by the request's error; then it serves on. B65."""
    with SharedLLM(LLAMA, max_batch=4) as llm:
        LateFaults("chunk", range(1, 100), TextModel, monkeypatch.setattr)
        with ThreadPoolExecutor(3) as threads:
            asked = [threads.submit(llm.generate, prompt(9, it), greedy(9)) for it in range(3)]
            outputs = [each.result()[0] for each in asked]
        assert {output.finish_reason for output in outputs} == {"error"}
        assert all(WORDS in (output.error or "") for output in outputs)
        monkeypatch.undo()
        [output] = llm.generate(prompt(9), greedy(9))
        assert output.error is None


def test_a_model_that_cannot_be_loaded_raises_and_leaves_no_thread() -> None:
    before = threads_named_engine()
    with pytest.raises(ModelError):
        SharedLLM("bushel:large")
    assert threads_named_engine() == before


def test_a_model_that_is_let_go_ends_its_thread() -> None:
    before = threads_named_engine()
    llm = SharedLLM(LLAMA)
    assert threads_named_engine() == before + 1
    del llm
    gc.collect()
    assert threads_named_engine() == before


def test_a_reader_that_fails_costs_nobody_else_anything(shared: SharedLLM, llama: LLM) -> None:
    """One thread's exception inside its loop; another's answer beside it. B47."""

    def reader() -> list[Event]:
        for event in shared.stream(prompt(9), LONG):
            if event.token_ids:
                raise OSError("the reader has gone")
        return []

    with ThreadPoolExecutor(2) as threads:
        bad = threads.submit(reader)
        good = threads.submit(shared.generate, prompt(12), greedy(20))
        with pytest.raises(OSError, match="gone"):
            bad.result()
        assert_same(good.result()[0], solo(llama, prompt(12), greedy(20)))
