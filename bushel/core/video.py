"""A video as it was sampled: its pictures, and when in it they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Video:
    """`indices` say which of its `total` frames were taken; `fps` is how many it shows a second."""

    frames: tuple[Any, ...]  # pictures, in order
    indices: tuple[int, ...]
    total: int
    fps: float

    @property
    def sampled_fps(self) -> float:
        """How many of the frames that were taken stand for a second.

        They span the part of the video that was asked for, or that could be read. One alone is at
        no distance from another, and stands for all.
        """
        first, last = self.indices[0], self.indices[-1]
        spanned = last - first + 1 if len(self.indices) > 1 else self.total
        return len(self.indices) / spanned * self.fps


@dataclass(frozen=True)
class FrameSampling:
    """Which frames of a video a model wants to see: `fps` of every second, but at least
    `min_frames` and at most `max_frames`, in multiples of `factor`. None: no such wish.
    """

    fps: float | None = None
    min_frames: int = 1
    max_frames: int | None = None
    factor: int = 1
