"""Which frames of a video are looked at, and in which size: what a request asks for, under caps.

    frames    0 . . . . . . . . . . . . . . . . . . . 20     of a file, `fps` a second
    wanted    0         5         10        15        20     evenly, the first and the last included

Names are those of Qwen's clients, whose parts of a message hold them beside the video.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from bushel.chat.media.media_source import UnusableMedia
from bushel.core.video import FrameSampling

_MOST = 1e12  # of anything that a request asks for
_MOST_RATE = 1000.0  # frames a second; more are a container's unit of time, and not a rate
_USUAL_RATE = 24.0
_PAIR = 2  # frames that most models see as one


@dataclass(frozen=True)
class VideoOptions:
    """What one part of a message says about its video. Seconds, and pixels of one frame."""

    fps: float | None = None
    sample_fps: float | None = None  # of a list: how many of its frames stand for a second
    nframes: int | None = None
    min_frames: int | None = None
    max_frames: int | None = None
    video_start: float | None = None
    video_end: float | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    total_pixels: int | None = None  # of all frames
    resized_height: int | None = None
    resized_width: int | None = None

    @property
    def list_rate(self) -> float | None:
        return self.sample_fps or self.fps

    def refine(self, sampling: FrameSampling) -> FrameSampling:
        """What the model wants, unless the request says otherwise; it never takes more."""
        return replace(
            sampling,
            fps=self.fps or sampling.fps,
            min_frames=self.min_frames or sampling.min_frames,
            max_frames=_least(self.max_frames, sampling.max_frames),
        )

    def fitted(self, width: int, height: int, count: int) -> tuple[int, int]:
        """The size in which each of `count` frames is looked at."""
        if self.resized_width is not None and self.resized_height is not None:
            return self.resized_width, self.resized_height
        pixels, scale = width * height, 1.0
        shared = self.total_pixels and self.total_pixels * _PAIR // count
        limit = _least(self.max_pixels, shared)
        if limit is not None and pixels > limit:
            scale = math.sqrt(limit / pixels)
        elif self.min_pixels is not None and pixels < self.min_pixels:
            scale = math.sqrt(self.min_pixels / pixels)
        return max(1, round(width * scale)), max(1, round(height * scale))


OPTIONS = tuple(field.name for field in fields(VideoOptions))
_WHOLE = ("nframes", "min_frames", "max_frames", "min_pixels", "max_pixels", "total_pixels",
          "resized_height", "resized_width")  # fmt: skip
_MAY_BE_ZERO = ("video_start", "video_end")


def options_of(*told: Mapping[str, Any]) -> VideoOptions:
    """Of a part, and of the object that holds its URL; what else they hold is not about frames."""
    options: dict[str, Any] = {}
    for owner in told:
        for name in OPTIONS:
            if (value := owner.get(name)) is not None:
                options[name] = _number(name, value)
    sides = {"resized_height", "resized_width"} & options.keys()
    if len(sides) == 1:
        raise UnusableMedia("resized_height and resized_width must be given together.")
    if options.get("video_end", math.inf) <= options.get("video_start", 0):
        raise UnusableMedia("video_end must be after video_start.")
    return VideoOptions(**options)


def _number(name: str, value: Any) -> float:
    whole = name in _WHOLE
    good = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if good and (0 < value < _MOST or (value == 0 and name in _MAY_BE_ZERO)):
        return value
    raise UnusableMedia(f"{name} must be a {'whole ' if whole else ''}number above 0.")


def known_rate(fps: float) -> float:
    """What a file says of its rate, or what films usually have if that is none."""
    return fps if math.isfinite(fps) and 0 < fps <= _MOST_RATE else _USUAL_RATE


def wanted_frames(
    count: int, fps: float, most: int, sampling: FrameSampling, options: VideoOptions
) -> list[int]:
    """Indices among `count` frames, as mlx-vlm takes them from a file; never more than `most`."""
    first = math.ceil((options.video_start or 0.0) * fps)
    last = count - 1 if options.video_end is None else min(count - 1, int(options.video_end * fps))
    if first > last:
        raise UnusableMedia("video_start is after the end of the video.")
    count = last - first + 1
    most = _least(most, count, sampling.max_frames) or most
    number = float(count)
    if options.nframes is not None:
        number = options.nframes
    elif sampling.fps is not None:
        least = -(-sampling.min_frames // sampling.factor) * sampling.factor
        number = max(count / fps * sampling.fps, least)
    return [first + at for at in _spread(count, int(min(number, most)), sampling.factor)]


def wanted_of_list(
    count: int, most: int, sampling: FrameSampling, options: VideoOptions
) -> list[int]:
    """Of frames that the client chose itself: all that may be."""
    number = _least(options.nframes, options.max_frames, sampling.max_frames, most) or most
    return list(range(count)) if count <= number else _spread(count, number, sampling.factor)


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _spread(count: int, number: int, factor: int) -> list[int]:
    number -= number % factor if number > factor else 0
    if number <= 1:
        return [0]
    step = (count - 1) / (number - 1)
    return [round(at * step) for at in range(number)]
