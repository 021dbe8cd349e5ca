"""What MLX is told of a Mac's memory, with a stand-in that gives a Mac's answers (B51, B58)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.core import GenerationDefaults
from bushel.core.params import resolve
from bushel.engine import device_memory
from bushel.engine.footprint import PER_LOGIT
from bushel.engine.sampling.sampler import Sampler
from tests.families import checkpoint_dir
from tests.llm.request_builders import greedy, prompt

GB = 1 << 30


class Mac:
    """Of so many gigabytes; records what MLX is told, in order, and what it then says."""

    def __init__(self, memory: int, recommended: float):
        self.total = memory * GB
        self.info = {
            "max_recommended_working_set_size": int(recommended * GB),
            "memory_size": self.total,
            "resource_limit": 499_000,
        }
        self.now = {"memory": int(1.5 * recommended * GB), "cache": 0, "wired": 0}
        self.told: list[tuple[str, int]] = []

    def setting(self, name: str) -> Callable[[int], int]:
        def set(value: int) -> int:
            before, self.now[name] = self.now[name], value
            self.told.append((name, value))
            return before

        return set


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Mac]]:
    def stand_in(memory: int, recommended: float) -> Mac:
        mac = Mac(memory, recommended)
        monkeypatch.setattr(device_memory, "ON_CPU", False)
        monkeypatch.setattr(device_memory, "total_memory", lambda: mac.total)
        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        monkeypatch.setattr(mx, "device_info", lambda: mac.info)
        monkeypatch.setattr(mx, "get_memory_limit", lambda: mac.now["memory"])
        for name in mac.now:
            monkeypatch.setattr(mx, f"set_{name}_limit", mac.setting(name))
        return mac

    return stand_in


@pytest.mark.parametrize(
    ("memory", "recommended", "limit"),
    [
        (8, 5.3, 4),  # half of it: 4 GB are macOS's
        (16, 10.7, 10.7),
        (36, 27, 27),
        (64, 48, 48),
        (128, 120, 96),  # somebody raised iogpu.wired_limit_mb
    ],
)
def test_a_mac_keeps_a_quarter_of_its_memory_or_four_gigabytes(
    mac: Callable[..., Mac], memory: int, recommended: float, limit: float
) -> None:
    mac(memory, recommended)
    assert device_memory.memory_limit() == int(limit * GB)


def test_what_the_other_processes_may_take_is_left_to_them(mac: Callable[..., Mac]) -> None:
    mac(64, 48)
    assert device_memory.memory_limit(beside=40 * GB) == 32 * GB
    assert device_memory.memory_limit(beside=20 * GB) == 44 * GB


def test_buffers_are_as_many_as_the_device_says(mac: Callable[..., Mac]) -> None:
    mac(16, 10.7).info["resource_limit"] = 123_456
    assert device_memory.buffer_limit() == 123_456


@pytest.mark.parametrize(("limit", "kept"), [(2, 0.5), (10, 1), (27, 27 / 16), (96, 6)])
def test_freed_memory_that_is_kept_is_bounded(limit: float, kept: float) -> None:
    assert device_memory.cache_limit(int(limit * GB)) == int(kept * GB)


def test_a_loaded_model_is_wired_and_a_closed_one_leaves_nothing_set(
    mac: Callable[..., Mac],
) -> None:
    stand_in = mac(64, 48)
    before = dict(stand_in.now)
    with LLM(str(checkpoint_dir("llama")), memory_limit=20 * GB, headroom=GB) as llm:
        assert stand_in.now == {"memory": 20 * GB, "cache": int(1.25 * GB), "wired": 19 * GB}
        assert llm.generate(prompt(5), greedy(3))[0].error is None
        assert [name for name, _ in stand_in.told] == ["memory", "cache", "wired"]  # at load only
    assert stand_in.now == before


def test_no_more_is_wired_than_a_mac_can_spare(mac: Callable[..., Mac]) -> None:
    """Whatever somebody asks for: Macs froze with everything wired."""
    stand_in = mac(64, 60)
    with LLM(str(checkpoint_dir("llama")), memory_limit=63 * GB, headroom=0):
        assert stand_in.now["wired"] == 48 * GB


def test_other_devices_wire_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    for name in ("memory", "cache", "wired"):
        setting = lambda value, name=name: told.append(name) or 7  # noqa: E731
        monkeypatch.setattr(mx, f"set_{name}_limit", setting)
    assert device_memory.claim(GB, GB).before == ()
    monkeypatch.setattr(device_memory, "ON_CPU", False)  # as CUDA
    device_memory.claim(GB, GB).release()
    assert told == ["memory", "cache", "cache", "memory"]


# -- what a draw takes -------------------------------------------------------------------------


SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "temperature": {},
    "top_p": {"top_p": 0.9},
    "low top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.05},
    "penalties": {"top_p": 0.9, "repetition_penalty": 1.1, "presence_penalty": 0.5},
}


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_row_is_promised_what_choosing_its_token_takes(kind: str, rows: int) -> None:
    """Beside the logits themselves and the tokens it is penalised for. B51."""
    vocab = 50_000
    sampler = Sampler(vocab)
    for row in range(rows):
        params = SamplingParams(max_tokens=9, seed=row, **SAMPLERS[kind])
        decoding = resolve(params, GenerationDefaults(), vocab=vocab, end_ids=frozenset())
        sampler.join(decoding, [1, 2, 3], [5])
    logits = mx.random.normal((rows, 1, vocab), key=mx.random.key(0))
    inputs = mx.array([[5]] * rows)
    mx.eval(logits, inputs)
    for step in range(2):  # the first one makes what stays
        mx.synchronize()
        start = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(*sampler.sample(logits, inputs, [step + 1] * rows, [step] * rows).arrays())
        mx.synchronize()
    assert mx.get_peak_memory() - start <= PER_LOGIT * rows * vocab
