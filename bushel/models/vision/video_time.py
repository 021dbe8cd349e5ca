"""Positions of a video's frames in time, for the family that counts them by the second.

tokens     text [frame 1] [frame 2] [frame 3] text
positions  0…3  4 4 4 4   5 5 5 5   6 6 6 6   7 …        as mlx-vlm has it, one step a frame
in time    0…3  4 4 4 4   8 8 8 8   12 …      13 …       two seconds apart, two positions a second

Qwen2.5-VL was taught so; mlx-vlm leaves the seconds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core.video import Video
from bushel.models.vision.image_spans import Span

# One number for each video, by the name it has in transformers: how many seconds a step stands for.
SECONDS = "second_per_grid_ts"
_FAMILIES = ("qwen2_5_vl",)


def seconds_of(config: Any, videos: Sequence[Video]) -> dict[str, np.ndarray]:
    """As a tensor beside a processor's own; nothing for families that do not ask."""
    if not videos or getattr(config, "model_type", None) not in _FAMILIES:
        return {}
    frames = config.vision_config.temporal_patch_size
    return {SECONDS: np.array([frames / video.sampled_fps for video in videos], np.float32)}


def in_time(
    config: Any, runs: Sequence[Span], seconds: Any, positions: mx.array, delta: int
) -> tuple[mx.array, int]:
    """Positions [3, 1, L] with the first axis of each video's run in time, and everything behind it
    moved; `delta` with what that adds."""
    moved = np.array(positions)
    steps = np.asarray(seconds, np.float32) * np.float32(config.vision_config.tokens_per_second)
    for (low, high), step in zip(runs, steps, strict=True):
        frames = moved[:, :, low:high]
        first, last = frames[0, 0, 0], frames.max()
        frames[0] = first + ((frames[0] - first).astype(np.float32) * step).astype(moved.dtype)
        longer = frames.max() - last
        moved[:, :, high:] += longer
        delta += int(longer)
    return mx.array(moved), delta
