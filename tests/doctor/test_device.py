"""Lines about the device: a kernel or a sampler that is wrong is seen."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from bushel.doctor import device, kernels, samplers
from bushel.doctor.finding import DoctorOptions


def test_kernels_are_equal_to_numpy() -> None:
    (finding,) = kernels.correct()
    assert finding.status == "ok"
    assert all(name in finding.words for name in kernels.KERNELS)


def shifted(function: Any) -> Any:
    return lambda *arrays, **more: mx.roll(function(*arrays, **more), 1)


@pytest.mark.parametrize(
    ("patched", "names"),
    [
        ("matmul", {"matmul float32", "matmul bfloat16", "matmul float16"}),
        ("quantized_matmul", {"matmul of 4 bits"}),
        ("argmax", {"argmax"}),
        ("sort", {"sort"}),
    ],
)
def test_a_wrong_kernel_is_wrong(
    patched: str, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx, patched, shifted(getattr(mx, patched)))
    wrong = [finding for finding in kernels.correct() if finding.status == "wrong"]
    assert {finding.name.partition(",")[0] for finding in wrong} == names
    assert all("BUSHEL_DEVICE=cpu" in finding.advice for finding in wrong)


def test_a_kernel_that_raises_is_wrong_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raising(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such kernel on this device")

    monkeypatch.setattr(mx, "argmax", raising)
    wrong, right = kernels.correct()
    assert (wrong.name, wrong.status, right.status) == ("argmax", "wrong", "ok")
    assert "no such kernel" in wrong.words


def test_not_a_number_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = mx.softmax
    monkeypatch.setattr(
        mx, "softmax", lambda *given, **more: original(*given, **more) * float("nan")
    )
    assert [it.name for it in kernels.correct() if it.status == "wrong"] == ["softmax"]


def test_samplers_choose_right() -> None:
    for probe in (samplers.greedy, samplers.top_k, samplers.seeded):
        (finding,) = probe()
        assert finding.status == "ok", finding


def test_a_sampler_that_chooses_another_token_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = mx.argmax
    monkeypatch.setattr(mx, "argmax", lambda *given, **more: original(*given, **more) ^ 1)
    (finding,) = samplers.greedy()
    assert finding.status == "wrong"
    assert finding.words.startswith("right in 0 of 8")


def test_draws_that_depend_on_their_company_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = samplers.sampler_of

    def seeds_shared(rows: samplers.Rows, vocab: int) -> Any:
        return original([{**row, "seed": len(rows)} for row in rows], vocab)

    monkeypatch.setattr(samplers, "sampler_of", seeds_shared)
    (finding,) = samplers.seeded()
    assert finding.status == "wrong"


def test_the_device_is_told() -> None:
    probes = device.section(DoctorOptions()).probes[:4]
    found = [finding for probe in probes for finding in probe.run()]
    assert [it.name for it in found] == ["backend", "device", "memory limits", "operations"]
    assert found[0].words.startswith("CPU, mlx 0.")


def test_a_device_that_is_not_there_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_DEVICE", "gpu")
    (finding,) = device.backend()
    assert finding.status == "wrong"
    assert "BUSHEL_DEVICE" in finding.advice
