"""A device that fails late and tells the wrong one: no answer is wrong, then or later (B65)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, Output
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.prefix import prefix_cache
from bushel.core import DeviceFault
from bushel.engine import engine, prompt_runner
from bushel.engine.decode_batch import Step
from bushel.models import device
from bushel.models.text_model import TextModel
from bushel.models.vision.vision_model import VisionModel
from tests.depth import often, one_in, rarely
from tests.engine.late_faults import WORDS, LateFaults
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, greedy, hot, prompt

CLASSES = {"llama": TextModel, "qwen3_5_vl": VisionModel}
FAMILIES = [*CLASSES]
PLACES = {"chunk": 5, "step": 12, "join": 3, "kept": 3, "write": 3}  # with a moment of each
# Two that decode while the third one's prompt runs; all are asked for twice.
ASKED = [(prompt(20, 1), greedy(24)), (prompt(33, 2), hot(24)), (prompt(60, 3), greedy(12))]


def served(llm: LLM, again: bool = True) -> list[Output]:
    """All requests, the last one late; then all of them again, from what was kept."""
    first = [llm.submit(*pair) for pair in ASKED[:2]]
    for _ in range(6):
        llm.step()
    handles = [*first, llm.submit(*ASKED[2])]
    while not all(handle.done for handle in handles):
        llm.step()
        llm.check_integrity()
    outputs = [handle.output for handle in handles]
    return [*outputs, *llm.generate(*map(list, zip(*ASKED, strict=True)))] if again else outputs


def opened(family: str, folder: Path | None = None) -> LLM:
    path = None if folder is None else str(folder)
    return LLM(str(checkpoint_dir(family)), max_batch=4, prefill_chunk=16, cache_dir=path)


@pytest.fixture(scope="module", params=rarely(FAMILIES, lambda family: family != "llama"))
def clean(request: pytest.FixtureRequest) -> tuple[str, list[Output]]:
    with opened(request.param) as llm:
        return request.param, served(llm)


def alike(outputs: list[Output], expected: list[Output]) -> None:
    for output, right in zip(outputs, expected, strict=True):
        assert output.error is None
        assert_same(output, right)


@pytest.mark.parametrize("place", one_in(2, PLACES))
def test_a_late_fault_spoils_no_answer_then_or_later(
    clean: tuple[str, list[Output]], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of those who ran, not of those who come after, and not of another process. B65."""
    family, expected = clean
    with opened(family, tmp_path) as llm:
        planted = LateFaults(place, [PLACES[place]], CLASSES[family], monkeypatch.setattr)
        alike(served(llm), expected)
        assert planted.told == 1
    monkeypatch.undo()
    with opened(family, tmp_path) as llm:
        alike(served(llm), expected)
        assert llm.cache_stats()["hits"].get("disk", 0) > 0


def test_a_fault_that_is_told_while_rows_are_rebuilt_loses_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step fails by itself, and the device's fault is heard of when pages are looked at. B65."""
    left, read, computable = {"step", "pages"}, Step.read, PagePool.computable

    def fail_once(self: Step) -> Any:
        if "step" in left:
            left.remove("step")
            raise RuntimeError("[malloc] planted")
        return read(self)

    def told_late(self: PagePool) -> bool:
        if "pages" in left:
            left.remove("pages")
            raise DeviceFault("planted")
        return computable(self)

    asked = [(prompt(length, length), greedy(12)) for length in (7, 9, 12)]
    with LLM(str(checkpoint_dir("llama")), attention="pages", speculate="off") as llm:
        right = [llm.generate(*each)[0] for each in asked]
        llm.clear_cache()
        handles = [llm.submit(*each) for each in asked]
        while not all(len(handle.output.token_ids) > 2 for handle in handles):
            llm.step()
        monkeypatch.setattr(Step, "read", fail_once)
        monkeypatch.setattr(PagePool, "computable", told_late)
        for _ in range(100):  # of an engine that gets on
            llm.step()
            llm.check_integrity()
        assert not left
        alike([handle.output for handle in handles], right)


@pytest.mark.parametrize("place", often(["chunk", "kept"], "kept"))
def test_control_if_a_row_is_blamed_for_it_another_one_answers_wrongly(
    clean: tuple[str, list[Output]], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, expected = clean
    for module in (engine, prompt_runner, prefix_cache):
        monkeypatch.setattr(module, "raise_device_fault", lambda error: None)
    monkeypatch.setattr(engine, "device_fault", lambda error: None)
    with opened(family, tmp_path) as llm:
        LateFaults(place, [PLACES[place]], CLASSES[family], monkeypatch.setattr)
        with pytest.raises(AssertionError):
            alike(served(llm), expected)


def test_it_may_fail_again_while_everything_is_computed_again(
    clean: tuple[str, list[Output]], monkeypatch: pytest.MonkeyPatch
) -> None:
    family, expected = clean
    with opened(family) as llm:
        planted = LateFaults("chunk", [5, 6, 9], CLASSES[family], monkeypatch.setattr)
        alike(served(llm), expected)
        assert planted.told == 3


def test_a_device_that_always_fails_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("llama") as llm:
        planted = LateFaults("chunk", range(1, 100), TextModel, monkeypatch.setattr)
        outputs = served(llm, again=False)
        assert {output.finish_reason for output in outputs} == {"error"}
        assert all(WORDS in (output.error or "") for output in outputs)
        assert planted.told < 20
        monkeypatch.undo()
        [output] = llm.generate(*ASKED[0])
        assert output.error is None


def test_who_leaves_may_be_the_one_that_is_told(
    clean: tuple[str, list[Output]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of a reply that is given up may be what a fault is found at."""
    family, expected = clean
    with opened(family) as llm:
        stays, leaves = (llm.submit(*pair) for pair in ASKED[:2])
        for _ in range(12):
            llm.step()
        monkeypatch.setattr(llm._engine, "_drop_done", failing)
        leaves.abort()
        monkeypatch.undo()
        while not stays.done:
            llm.step()
        assert leaves.output.finish_reason == "abort"
        alike([stays.output], expected[:1])


def failing() -> None:
    raise RuntimeError(WORDS)


# -- which errors are the device's -----------------------------------------------------------


def raised(raising: Any) -> Exception:
    try:
        raising()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def python() -> None:
    raise RuntimeError("a library's own words")


def outside() -> None:
    mx.load("/nowhere/at/all.safetensors")  # raised by MLX itself


def test_what_mlx_raises_on_a_gpu_is_the_device_s_and_what_python_raises_is_not() -> None:
    assert device.is_late(raised(failing), on_cpu=True)
    assert not device.is_late(raised(python), on_cpu=False)
    assert device.is_late(raised(outside), on_cpu=False)
    assert not device.is_late(raised(outside), on_cpu=True)


def test_an_array_that_is_too_large_is_the_fault_of_who_asked() -> None:
    too_large = RuntimeError("[metal::malloc] Attempting to allocate 9 bytes which is greater")
    assert not device.is_late(too_large, on_cpu=False)
    assert device.device_fault(too_large) is None


@pytest.mark.parametrize("words", ["Failed to compile kernel: error", "Failed to load kernel"])
def test_a_kernel_that_a_machine_cannot_have_is_no_fault_of_the_device(words: str) -> None:
    """Whoever tried it does without."""
    by_mlx = RuntimeError(words).with_traceback(raised(outside).__traceback__)
    assert not device.is_late(by_mlx, on_cpu=False)


def test_a_fault_stays_what_it_is() -> None:
    fault = DeviceFault("gone")
    assert device.device_fault(fault) is fault
    with pytest.raises(DeviceFault):
        device.raise_device_fault(fault)
    device.raise_device_fault(ValueError("anybody's"))
