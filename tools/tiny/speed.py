"""Before a run on a new machine: steps a second, waiting for data, memory, and where time goes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from tools.tiny.plan import Plan
from tools.tiny.train import Leg


def measure(plan: Plan, run: Path, tokenizer: Path, workers: int, device: str) -> None:
    run.mkdir(parents=True, exist_ok=True)
    leg = Leg(plan, run / "speed", tokenizer, workers, device)

    def timed(label: str, count: int) -> None:
        begun = time.monotonic()
        for _ in range(count):
            losses = leg.one_step()
        text = float(losses["text"])  # waits for the device
        each = (time.monotonic() - begun) / count
        print(f"{label}: {1000 * each:.1f} ms a step, text loss {text:.3f}", flush=True)

    timed("first short step, with compilation", 1)
    timed("short, with new data", 30)
    leg.pools[False].fresh = 0
    timed("short, without waiting for data", 20)
    if leg.cuda:
        print(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            leg.one_step()
            torch.cuda.synchronize()
        averages = profiler.key_averages()
        print(averages.table(sort_by="self_cuda_time_total", row_limit=15)[:6000], flush=True)
    leg.plan = replace(plan, long_from=0.0, long_every=1)
    timed("first long step, with compilation", 1)
    timed("long, with new data", 6)
