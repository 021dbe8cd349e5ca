"""A request from submit to done, a model from load to close, and what either leaves behind."""

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, BushelError, Handle, Output
from bushel.core import ThreadError
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.images import MEDIUM, picture

from .request_builders import assert_same, chat, greedy, hot, image, prompt, solo, text

# Allocations come in pages, and the library keeps a few scalars: far below one row's state.
SLACK = 16 * 1024


def phases(llm: LLM) -> list[str]:
    return [request["phase"] for request in llm.status()["requests"]]


def finish(llm: LLM, *handles: Handle) -> None:
    while not all(handle.done for handle in handles):
        llm.step()


def until(llm: LLM, handle: Handle, tokens: int) -> None:
    while len(handle.output.token_ids) < tokens:
        assert not handle.done
        llm.step()


def settled() -> int:
    """Bytes that are still in use when nobody needs to be waited for."""
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()


@pytest.fixture
def slow() -> Iterator[LLM]:
    """Prompts take many steps, and two rows fill the batch."""
    path = str(checkpoint_dir("qwen3_5"))
    with LLM(path, max_batch=2, prefill_chunk=8, prefix_cache=False) as llm:
        yield llm


# -- a request --------------------------------------------------------------------------------


def test_a_submitted_request_grows_step_by_step(llama: LLM) -> None:
    handle = llama.submit(prompt(20), greedy(6))
    assert handle.output.token_ids == []
    seen = [0]
    while not handle.done:
        llama.step()
        seen.append(len(handle.output.token_ids))
    assert seen == sorted(seen)
    assert set(range(7)) <= set(seen)
    assert_same(handle.output, solo(llama, prompt(20), greedy(6)))


def test_stepping_an_idle_engine_does_nothing(llama: LLM) -> None:
    before = settled()
    status = llama.status()
    for _ in range(20):
        llama.step()
    assert {**llama.status(), "memory": None} == {**status, "memory": None}
    assert settled() == before


def test_status_tells_every_phase(slow: LLM) -> None:
    keys = {"running", "waiting", "lane", "max_decode_batch", "memory", "requests"}
    assert keys <= slow.status().keys()
    assert (slow.status()["lane"], slow.status()["max_decode_batch"]) == ("batch", 0)
    first, second, third = (slow.submit(prompt(30, seed), greedy(30)) for seed in range(3))
    assert phases(slow) == ["waiting"] * 3
    slow.step()
    assert phases(slow).count("waiting") == 1
    assert phases(slow).count("prefill") == 2
    assert (slow.status()["running"], slow.status()["waiting"]) == (2, 1)
    until(slow, first, 3)
    told = {request["id"]: request for request in slow.status()["requests"]}
    assert told[first.id]["phase"] == "decode"
    assert told[first.id]["prompt_tokens"] == 30
    assert told[first.id]["completion_tokens"] == len(first.output.token_ids)
    assert told[third.id]["phase"] == "waiting"
    assert slow.status()["memory"]["state_bytes"] > 0
    assert slow.status()["memory"]["state_buffers"] > 0
    finish(slow, first, second, third)
    status = slow.status()
    assert (status["running"], status["waiting"], status["requests"]) == (0, 0, [])
    assert status["max_decode_batch"] == 2
    assert status["memory"]["state_bytes"] == 0
    assert status["memory"]["state_buffers"] == 0
    assert status["memory"]["active_bytes"] > 0


def at_once(llm: LLM, handle: Handle) -> None:
    del llm, handle


def in_prefill(llm: LLM, handle: Handle) -> None:
    for _ in range(2):
        llm.step()
    assert phases(llm) == ["prefill"]
    assert not handle.output.token_ids


def in_decode(llm: LLM, handle: Handle) -> None:
    until(llm, handle, 4)
    assert phases(llm) == ["decode"]


@pytest.mark.parametrize("moment", often([at_once, in_prefill, in_decode], in_decode))
def test_an_abort_ends_a_request_at_once(slow: LLM, moment: Callable[[LLM, Handle], None]) -> None:
    """It is over when abort() returns, and what it held is free. B47."""
    solo(slow, prompt(60), greedy(2))
    before = settled()
    handle = slow.submit(prompt(60), greedy(50))
    moment(slow, handle)
    tokens = list(handle.output.token_ids)
    handle.abort()
    assert handle.done
    assert (handle.output.finish_reason, handle.output.error) == ("abort", None)
    assert handle.output.token_ids == tokens
    assert (slow.status()["running"], slow.status()["waiting"]) == (0, 0)
    assert slow.status()["memory"]["state_bytes"] == 0
    assert settled() - before < SLACK
    slow.check_integrity()
    slow.step()
    assert handle.output.token_ids == tokens
    assert handle.output.finish_reason == "abort"


def test_a_request_is_aborted_while_it_waits_for_a_row(slow: LLM) -> None:
    """It ends as aborted, and running replies are as without it. B47."""
    running = [slow.submit(prompt(30, seed), greedy(20)) for seed in range(2)]
    waiting = slow.submit(prompt(30, 2), greedy(20))
    until(slow, running[0], 2)
    assert phases(slow).count("waiting") == 1
    waiting.abort()
    assert waiting.done
    assert waiting.output.finish_reason == "abort"
    assert phases(slow).count("waiting") == 0
    finish(slow, *running)
    for seed, handle in enumerate(running):
        assert_same(handle.output, solo(slow, prompt(30, seed), greedy(20)))


def test_an_abort_leaves_the_other_rows_unchanged(llama: LLM) -> None:
    """The aborted reply keeps what it had; the others are as they are alone. B47."""
    handles = [llama.submit(prompt(20 + seed, seed), greedy(20)) for seed in range(4)]
    until(llama, handles[1], 5)
    handles[1].abort()
    llama.check_integrity()
    finish(llama, *handles)
    for seed, handle in enumerate(handles):
        whole = solo(llama, prompt(20 + seed, seed), greedy(20))
        if seed == 1:
            assert handle.output.token_ids == whole.token_ids[: len(handle.output.token_ids)]
            assert handle.output.finish_reason == "abort"
        else:
            assert_same(handle.output, whole)


def test_an_abort_after_the_end_changes_nothing(llama: LLM) -> None:
    handle = llama.submit(prompt(20), greedy(4))
    finish(llama, handle)
    before = (list(handle.output.token_ids), handle.output.text, handle.output.finish_reason)
    handle.abort()
    handle.abort()
    assert handle.done
    assert (handle.output.token_ids, handle.output.text, handle.output.finish_reason) == before


def test_an_abort_of_a_refused_request_changes_nothing(llama: LLM) -> None:
    handle = llama.submit({"prompt_token_ids": []}, greedy(4))
    assert handle.done
    handle.abort()
    assert handle.output.finish_reason == "error"


def test_an_abort_ends_all_choices_that_still_run(llama: LLM) -> None:
    """One choice is over before the others; it keeps its own ending."""
    whole = solo(llama, prompt(20), hot(40, n=3))
    stop = whole.choices[1].token_ids[3]
    handle = llama.submit(prompt(20), hot(40, n=3, stop_token_ids=[stop]))
    while handle.output.choices[1].finish_reason is None:
        llama.step()
    handle.abort()
    assert handle.done
    reasons = [choice.finish_reason for choice in handle.output.choices]
    assert reasons[1] == "stop"
    assert "abort" in (reasons[0], reasons[2])


def test_text_held_back_for_a_stop_string_is_shown_on_abort(llama: LLM) -> None:
    """What was generated is not lost, however the reply ends."""
    whole = solo(llama, prompt(20), greedy(20))
    handle = llama.submit(prompt(20), greedy(20, stop=whole.text + "☂"))
    until(llama, handle, 12)
    assert handle.output.text == ""
    handle.abort()
    assert handle.output.text != ""
    assert whole.text.startswith(handle.output.text.rstrip("\ufffd"))


def test_leaving_a_stream_early_aborts_it(slow: LLM) -> None:
    """`break` in the loop frees its row and its state. B47."""
    for event in slow.stream(prompt(20), greedy(50)):
        if event.token_ids:
            break
    gc.collect()
    assert (slow.status()["running"], slow.status()["waiting"]) == (0, 0)
    assert slow.status()["memory"]["state_bytes"] == 0


def test_a_closed_stream_aborts_before_its_first_token(slow: LLM) -> None:
    """Closing the iterator ends the request in its prefill. B47."""
    events: Any = slow.stream(prompt(60), greedy(50, prompt_logprobs=0))
    next(events)
    assert slow.status()["running"] == 1
    events.close()
    assert slow.status()["running"] == 0


def test_an_exception_in_a_streams_loop_aborts_it(slow: LLM) -> None:
    """The caller's error comes through, and the row is free. B47."""

    def reader() -> None:
        for event in slow.stream(prompt(20), greedy(50)):
            if event.token_ids:
                raise RuntimeError("reader went away")

    with pytest.raises(RuntimeError, match="went away"):
        reader()
    gc.collect()
    assert slow.status()["running"] == 0


def test_two_streams_can_be_read_in_turn(llama: LLM) -> None:
    """Reading one also moves the other; nothing of it is lost."""
    expected = [solo(llama, prompt(20, seed), greedy(10)) for seed in range(2)]
    streams = [llama.stream(prompt(20, seed), greedy(10)) for seed in range(2)]
    tokens: list[list[int]] = [[], []]
    alive = {0, 1}
    while alive:
        for at in sorted(alive):
            event = next(streams[at], None)
            if event is None:
                alive.remove(at)
            else:
                tokens[at] += event.token_ids
    assert tokens == [output.token_ids for output in expected]


def test_a_request_submitted_earlier_survives_a_generate_call(llama: LLM) -> None:
    early = llama.submit(prompt(20, 1), greedy(30))
    until(llama, early, 2)
    [late] = llama.generate([prompt(20, 2)], greedy(5))
    assert_same(late, solo(llama, prompt(20, 2), greedy(5)))
    finish(llama, early)
    assert_same(early.output, solo(llama, prompt(20, 1), greedy(30)))


def test_a_clients_title_and_main_request_both_succeed(seeing: LLM) -> None:
    """They arrive together, with the same conversation inside. B10."""
    said = "What is the weather like in the valley?"
    title = chat(f"Write a short title for this conversation: {said}")
    main = chat(image(picture(MEDIUM)), text(said))
    handles = [seeing.submit(main, hot(30)), seeing.submit(title, greedy(8))]
    finish(seeing, *handles)
    assert_same(handles[0].output, solo(seeing, main, hot(30)))
    assert_same(handles[1].output, solo(seeing, title, greedy(8)))


# -- memory -----------------------------------------------------------------------------------


@pytest.mark.long
def test_many_requests_and_aborts_leave_no_memory_behind() -> None:
    """Text, images, choices, errors and aborts on a hybrid model. B47, B55."""
    asked: list[Any] = [
        prompt(30),
        chat(image(picture(MEDIUM)), text("What is it?")),
        {"prompt": ""},
        prompt(75, seed=2),
        prompt(1),
    ]
    settings = [greedy(9), hot(5), greedy(4), hot(7, n=2, presence_penalty=0.5), greedy(20)]
    with LLM(str(checkpoint_dir("qwen3_5_vl")), max_batch=4, prefill_chunk=16) as llm:

        def wave(turn: int) -> None:
            pairs = list(zip(asked, settings, strict=True))
            handles = [llm.submit(*pairs[(turn + at) % 5]) for at in range(6)]
            for step in range(4 + turn % 9):
                llm.step()
                if step % 3 == turn % 3:
                    handles[(turn + step) % 6].abort()
            finish(llm, *handles)
            llm.clear_cache()

        for turn in range(5):
            wave(turn)
        before = settled()
        for turn in range(9):
            wave(turn)
        after = settled()
        memory = llm.status()["memory"]
        assert abs(after - before) < SLACK
        assert abs(memory["active_bytes"] - before) < SLACK
        assert (memory["state_bytes"], memory["state_buffers"]) == (0, 0)
        # The measure is no constant: a request that runs is seen in it.
        handle = llm.submit(asked[3], greedy(20))
        until(llm, handle, 2)
        mx.synchronize()
        assert mx.get_active_memory() - before > 4 * SLACK
        handle.abort()


def weights(path: str) -> int:
    return (checkpoint_dir(path) / "model.safetensors").stat().st_size


def close(llm: LLM) -> None:
    llm.close()


def leave(llm: LLM) -> None:
    with llm:
        pass


@pytest.mark.parametrize("name", often(["llama", "qwen3_5_vl"], "qwen3_5_vl"))
@pytest.mark.parametrize("let_go", [None, close, leave])
def test_a_model_that_is_let_go_frees_its_memory(
    name: str, let_go: Callable[[LLM], None] | None
) -> None:
    """By deletion, by close(), and at the end of a with block; with work still going on."""
    LLM(str(checkpoint_dir(name))).close()
    before = settled()
    llm = LLM(str(checkpoint_dir(name)))
    solo(llm, prompt(20), greedy(4))
    handle = llm.submit(prompt(20), greedy(50))
    until(llm, handle, 3)
    assert mx.get_active_memory() - before > 0.9 * weights(name)
    if let_go is not None:
        let_go(llm)
        assert settled() - before < SLACK
        assert handle.done
        assert handle.output.finish_reason == "abort"
    del llm, handle
    assert settled() - before < SLACK


def test_close_may_be_called_again() -> None:
    llm = LLM(str(checkpoint_dir("llama")))
    llm.close()
    llm.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda llm: llm.generate([prompt(5)], greedy(2)),
        lambda llm: llm.submit(prompt(5)),
        lambda llm: llm.step(),
        lambda llm: llm.status(),
        lambda llm: list(llm.stream(prompt(5))),
        lambda llm: llm.check_integrity(),
    ],
    ids=["generate", "submit", "step", "status", "stream", "check_integrity"],
)
def test_a_closed_model_says_so(use: Callable[[LLM], object]) -> None:
    llm = LLM(str(checkpoint_dir("llama")))
    llm.close()
    with pytest.raises(BushelError, match="closed"):
        use(llm)


def test_a_handle_of_a_closed_model_may_still_be_aborted() -> None:
    """Cleaning up after close() needs no care: there is nothing left to stop."""
    llm = LLM(str(checkpoint_dir("llama")))
    handle = llm.submit(prompt(20), greedy(50))
    llm.close()
    handle.abort()
    assert handle.output.finish_reason == "abort"


# -- threads and neighbours -------------------------------------------------------------------


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """What a call raises in another thread."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_another_thread_is_refused(llama: LLM) -> None:
    """And is told which classes are for it."""
    handle = llama.submit(prompt(20), greedy(6))
    calls: list[Callable[[], object]] = [
        lambda: llama.generate([prompt(5)], greedy(2)),
        lambda: llama.submit(prompt(5)),
        lambda: llama.step(),
        lambda: llama.status(),
        lambda: list(llama.stream(prompt(5))),
        lambda: llama.chat([{"role": "user", "content": "Hello"}]),
        lambda: llama.tokenizer,
        lambda: handle.abort(),
    ]
    for call in calls:
        error = elsewhere(call)
        assert isinstance(error, ThreadError)
        assert "SharedLLM" in str(error)
        assert "AsyncLLM" in str(error)
    finish(llama, handle)
    assert_same(handle.output, solo(llama, prompt(20), greedy(6)))


def test_a_model_can_live_in_another_thread(llama: LLM) -> None:
    """The thread that makes it owns it, whichever that is."""
    found: list[Output] = []

    def work() -> None:
        with LLM(str(checkpoint_dir("llama"))) as llm:
            found.extend(llm.generate([prompt(20), prompt(30)], greedy(6)))
        mx.synchronize()
        mx.clear_streams()

    assert elsewhere(work) is None
    for output, length in zip(found, (20, 30), strict=True):
        assert_same(output, solo(llama, prompt(length), greedy(6)))


def test_two_models_side_by_side_keep_apart(llama: LLM, seeing: LLM) -> None:
    shown = chat(image(picture(MEDIUM)), text("What is it?"))
    expected = [solo(llama, prompt(20), hot(12)), solo(seeing, shown, hot(12))]
    one, two = llama.submit(prompt(20), hot(12)), seeing.submit(shown, hot(12))
    while not (one.done and two.done):
        llama.step()
        seeing.step()
    assert_same(one.output, expected[0])
    assert_same(two.output, expected[1])


def test_closing_one_model_leaves_the_other_alone(llama: LLM) -> None:
    handle = llama.submit(prompt(20), greedy(12))
    until(llama, handle, 3)
    with LLM(str(checkpoint_dir("llama"))) as other:
        other.submit(prompt(20), greedy(50))
        other.step()
    finish(llama, handle)
    assert_same(handle.output, solo(llama, prompt(20), greedy(12)))


def test_the_two_bounds_of_the_scheduler_are_settings() -> None:
    """With no gap allowed, a long prompt runs in the smallest pieces beside a stream. B61."""
    lengths = []
    for gap in (0.0, 1e9):
        with LLM(str(checkpoint_dir("llama")), prefill_chunk=64, token_gap=gap) as llm:
            running = llm.submit(prompt(20), greedy(60))
            while not running.output.token_ids:
                llm.step()
            waiting, steps = llm.submit(prompt(200), greedy(1)), 0
            while not waiting.done:
                llm.step()
                steps += 1
            lengths.append(steps)
    small, large = lengths
    assert small >= 200 // 16 > large
    for bad in (-1.0, float("nan"), "soon"):
        with pytest.raises(BushelError, match="token_gap"):
            LLM(str(checkpoint_dir("llama")), token_gap=bad)  # type: ignore[arg-type]
