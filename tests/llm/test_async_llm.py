"""A model whose answers are awaited."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from bushel import LLM, AsyncLLM, BushelError, ModelError, Output, RequestError
from tests.families import checkpoint_dir

from .request_builders import assert_same, chat, greedy, hot, prompt, solo

LLAMA = str(checkpoint_dir("llama"))
LONG = greedy(3000)
T = TypeVar("T")


def run(work: Callable[[AsyncLLM], Awaitable[T]], **options: Any) -> T:
    """In an event loop of its own, with a model of its own."""

    async def main() -> T:
        async with AsyncLLM(LLAMA, prefix_cache=False, **options) as llm:
            result = await work(llm)
            assert (await llm.status())["running"] == 0
            return result

    return asyncio.run(main())


async def running(llm: AsyncLLM, count: int) -> None:
    while (await llm.status())["running"] < count:
        await asyncio.sleep(0)


def test_fifty_tasks_are_one_batch_and_get_the_answers_they_get_alone(llama: LLM) -> None:
    asked = [(prompt(5 + seed % 9, seed), (hot if seed % 2 else greedy)(12)) for seed in range(50)]

    async def work(llm: AsyncLLM) -> tuple[list[Output], int]:
        tasks = [asyncio.create_task(llm.generate(*pair)) for pair in asked]
        outputs = [output for [output] in await asyncio.gather(*tasks)]
        return outputs, (await llm.status())["max_decode_batch"]

    outputs, rows = run(work, max_batch=50)
    assert rows > 10
    for pair, output in zip(asked, outputs, strict=True):
        assert_same(output, solo(llama, *pair))


def test_the_event_loop_goes_on_while_the_model_works() -> None:
    async def work(llm: AsyncLLM) -> int:
        turns, task = 0, asyncio.create_task(llm.generate(prompt(5), greedy(50)))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert run(work) > 10


def test_it_means_the_same_as_an_llm(llama: LLM) -> None:
    asked: list[Any] = ["Once upon a time", {"promt": "x"}, chat("Hello")]
    turns = [{"role": "user", "content": "Hello"}]

    async def work(llm: AsyncLLM) -> list[Output]:
        with pytest.raises(RequestError, match="not int"):
            await llm.generate(5)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="did you mean 'tools'"):
            await llm.chat(turns, toolz=[])  # type: ignore[call-arg]
        tokenizer = await llm.get_tokenizer()
        assert tokenizer.encode("Hello") == llama.tokenizer.encode("Hello")
        return [*await llm.generate(asked, greedy(6)), *await llm.chat(turns, greedy(6))]

    expected = [*llama.generate(asked, greedy(6)), *llama.chat(turns, greedy(6))]
    for one, two in zip(run(work), expected, strict=True):
        assert_same(one, two)


# -- streams ----------------------------------------------------------------------------------


def test_streams_are_read_side_by_side(llama: LLM) -> None:
    async def text(llm: AsyncLLM, seed: int) -> str:
        return "".join([event.text async for event in llm.stream(prompt(9, seed), greedy(20))])

    async def work(llm: AsyncLLM) -> list[str]:
        return list(await asyncio.gather(*(text(llm, seed) for seed in range(4))))

    assert run(work) == [solo(llama, prompt(9, seed), greedy(20)).text for seed in range(4)]


def test_a_stream_of_a_request_that_is_refused_says_why() -> None:
    async def work(llm: AsyncLLM) -> list[Any]:
        return [event async for event in llm.stream({"promt": "x"})]

    [event] = run(work)
    assert event.finish_reason == "error"
    assert "did you mean 'prompt'?" in (event.error or "")


def test_leaving_a_stream_frees_its_row() -> None:
    """By `break`, before the loop's next turns are over. B47."""

    async def work(llm: AsyncLLM) -> None:
        async for event in llm.stream(prompt(9), LONG):
            if event.token_ids:
                break
        gc.collect()
        while (await llm.status())["running"]:
            await asyncio.sleep(0)

    run(work)


# -- cancelling -------------------------------------------------------------------------------


def test_a_cancelled_task_frees_its_row(llama: LLM) -> None:
    """In a batch of one row, the next request gets it; its answer is as it is alone. B47."""

    async def work(llm: AsyncLLM) -> Output:
        task = asyncio.create_task(llm.generate([prompt(5), prompt(6)], LONG))
        await running(llm, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        status = await llm.status()
        assert (status["running"], status["waiting"]) == (0, 0)
        [output] = await llm.generate(prompt(7), greedy(5))
        return output

    assert_same(run(work, max_batch=1), solo(llama, prompt(7), greedy(5)))


def test_control_a_task_that_is_not_cancelled_keeps_its_row() -> None:
    async def work(llm: AsyncLLM) -> None:
        task = asyncio.create_task(llm.generate(prompt(5), LONG))
        await running(llm, 1)
        assert (await llm.status())["running"] == 1
        task.cancel()
        await asyncio.wait([task])

    run(work)


def test_a_cancelled_task_changes_nobody_elses_answer(llama: LLM) -> None:
    """Four of eight leave; the others get the answers they get alone. B47."""

    async def work(llm: AsyncLLM) -> list[Output]:
        tasks = [asyncio.create_task(llm.generate(prompt(9, it), greedy(40))) for it in range(8)]
        await running(llm, 8)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done[::2])
        return [each[0] for each in done[1::2] if not isinstance(each, BaseException)]

    outputs = run(work)
    for seed, output in zip(range(1, 8, 2), outputs, strict=True):
        assert_same(output, solo(llama, prompt(9, seed), greedy(40)))


def test_a_loop_that_ended_with_work_to_do_does_not_end_the_model(llama: LLM) -> None:
    """One `asyncio.run` is left in the middle of a stream; the next one is served."""
    llm = AsyncLLM(LLAMA, prefix_cache=False)
    left: list[Any] = []

    async def first() -> None:
        stream = llm.stream(prompt(9), LONG)
        left.append(stream)
        await anext(stream)

    async def second() -> Output:
        [output] = await llm.generate(prompt(7), greedy(5))
        await llm.close()
        return output

    loop = asyncio.new_event_loop()
    loop.run_until_complete(first())
    loop.close()
    assert_same(asyncio.run(second()), solo(llama, prompt(7), greedy(5)))


# -- ends -------------------------------------------------------------------------------------


def test_who_waits_when_it_is_closed_is_told_so() -> None:
    """Tasks and streams, each once; and so is everyone who comes later."""

    async def read(llm: AsyncLLM) -> None:
        async for _ in llm.stream(prompt(5), LONG):
            pass

    async def main() -> None:
        llm = AsyncLLM(LLAMA)
        tasks = [asyncio.create_task(llm.generate(prompt(5, it), LONG)) for it in range(3)]
        tasks.append(asyncio.create_task(read(llm)))  # type: ignore[arg-type]
        await running(llm, 4)
        await llm.close()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, BushelError)
            assert "This AsyncLLM is closed" in str(error)
        with pytest.raises(BushelError, match="closed"):
            await llm.generate(prompt(5))
        await llm.close()

    asyncio.run(main())


def test_an_engine_that_fails_tells_everyone_who_waits() -> None:
    def fail(llm: LLM) -> None:
        def failing() -> None:
            raise RuntimeError("the engine is broken")

        llm.step = failing  # type: ignore[method-assign]

    async def main() -> None:
        llm = AsyncLLM(LLAMA)
        tasks = [asyncio.create_task(llm.generate(prompt(5, it), LONG)) for it in range(3)]
        await running(llm, 3)
        await asyncio.wrap_future(llm._engine.ask(fail))
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, BushelError)
            assert "the engine is broken" in str(error)
        await llm.close()

    asyncio.run(main())


def test_a_model_that_cannot_be_loaded_says_so_to_whoever_waits() -> None:
    async def main() -> None:
        llm = AsyncLLM("bushel:large")
        with pytest.raises(ModelError):
            await llm.ready()
        with pytest.raises(ModelError):
            await llm.generate("Hello")
        await llm.close()

    asyncio.run(main())


def test_requests_may_be_made_before_the_model_is_there(llama: LLM) -> None:
    async def main() -> Output:
        llm = AsyncLLM(LLAMA, prefix_cache=False)
        [output] = await llm.generate(prompt(7), greedy(5))
        await llm.close()
        return output

    assert_same(asyncio.run(main()), solo(llama, prompt(7), greedy(5)))
