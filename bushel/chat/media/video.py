"""Videos as clients send them, to frames sampled under caps.

What is one file is a film, which OpenCV decodes, or a moving picture (GIF, WebP, APNG), which
Pillow does. As for images, headers are read first and believed only as far as they are harmless.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from PIL import Image, UnidentifiedImageError

from bushel.chat.media.frame_sampling import VideoOptions, known_rate, wanted_frames
from bushel.chat.media.image import BOMB, check_size, coloured, most_held
from bushel.chat.media.media_source import UnusableMedia
from bushel.core.video import FrameSampling, Video
from bushel.core.wire import MediaRules

_MOVING = ("GIF", "WEBP", "PNG")
_MOVING_RATE = 10.0  # a second, of moving pictures that tell none, as browsers show them
# How films begin that are one file; playlists and the like would make the decoder open others.
_FILMS: tuple[dict[int, bytes], ...] = (
    {4: b"ftyp"},  # MP4, QuickTime, 3GP
    {0: b"\x1a\x45\xdf\xa3"},  # WebM, Matroska
    {0: b"RIFF", 8: b"AVI "},
)
# To reach the last frame that is used all before it are decoded: 20 minutes of 1080p at the
# default, which is more than a minute's work.
_MOST_DECODED = 1024

ALL = FrameSampling()
NO_OPTIONS = VideoOptions()


class FrameChoice:
    """Of a video's `count` frames, those that are looked at, and their size; nothing is decoded."""

    def __init__(
        self,
        count: int,
        fps: float,
        size: tuple[int, int],
        rules: MediaRules,
        sampling: FrameSampling = ALL,
        options: VideoOptions = NO_OPTIONS,
    ):
        check_size(*size, rules)
        check_length(count, fps, size, rules)
        self.count, self.fps, self._rules = count, fps, rules
        most = most_frames(size, rules)
        self.indices = wanted_frames(count, fps, most, options.refine(sampling), options)
        self._size = fitted_size(size, len(self.indices), rules, options)
        self._as_it_is = self._size == size

    def frame(self, image: Image.Image) -> Image.Image:
        check_size(*image.size, self._rules)  # a frame may be larger than the whole
        frame = coloured(image, self._rules)
        return frame if self._as_it_is else frame.resize(self._size, Image.Resampling.BICUBIC)

    def video(self, frames: list[Image.Image]) -> Video:
        """Of the frames that there were: a file that is cut off has fewer than it says."""
        return Video(tuple(frames), tuple(self.indices[: len(frames)]), self.count, self.fps)


def most_frames(size: tuple[int, int], rules: MediaRules) -> int:
    """As many as may be held."""
    return max(1, min(rules.most_frames, most_held(rules) // (size[0] * size[1])))


def check_length(count: int, fps: float, size: tuple[int, int], rules: MediaRules) -> None:
    width, height = size
    if count * width * height > _MOST_DECODED * rules.most_pixels:
        raise UnusableMedia(f"The video is too long: {count} frames of {width}x{height} pixels.")
    if count / fps > rules.most_seconds:
        raise UnusableMedia(
            f"The video is too long: {count / fps:.0f} seconds, and {rules.most_seconds:g} at most."
        )


def fitted_size(
    size: tuple[int, int], count: int, rules: MediaRules, options: VideoOptions
) -> tuple[int, int]:
    """In which `count` frames are looked at. What a request asks for is under the same caps."""
    width, height = options.fitted(*size, count)
    check_size(width, height, rules)
    if count * width * height > most_held(rules):
        raise UnusableMedia(f"{count} frames of {width}x{height} pixels are too many.")
    return width, height


def open_video(
    data: bytes,
    rules: MediaRules,
    sampling: FrameSampling = ALL,
    options: VideoOptions = NO_OPTIONS,
) -> Video:
    try:
        if any(all(data.startswith(it, at) for at, it in film.items()) for film in _FILMS):
            return _film(data, rules, sampling, options)
        return _moving(data, rules, sampling, options)
    except UnusableMedia:
        raise
    except UnidentifiedImageError:
        raise UnusableMedia(
            "The video cannot be decoded: it is no MP4, QuickTime, WebM, Matroska, AVI, GIF, "
            "WebP or PNG."
        ) from None
    except Image.DecompressionBombError:
        raise UnusableMedia(BOMB) from None
    except MemoryError:
        raise
    except Exception:  # a broken file raises whatever its decoder stumbles over
        raise UnusableMedia("The video cannot be decoded: it is broken or cut off.") from None


def _moving(
    data: bytes, rules: MediaRules, sampling: FrameSampling, options: VideoOptions
) -> Video:
    movie = Image.open(io.BytesIO(data), formats=_MOVING)
    check_size(*movie.size, rules)
    count = getattr(movie, "n_frames", 1)
    check_length(count, _MOVING_RATE, movie.size, rules)
    movie.load()  # WebP tells only now how long a frame is shown
    shown = movie.info.get("duration") or 0  # milliseconds; the first frame's stands for all
    fps = 1000 / shown if shown > 0 else _MOVING_RATE
    choice = FrameChoice(count, fps, movie.size, rules, sampling, options)
    frames = []
    for at in choice.indices:
        movie.seek(at)
        frames.append(choice.frame(movie))
    return choice.video(frames)


def _film(data: bytes, rules: MediaRules, sampling: FrameSampling, options: VideoOptions) -> Video:
    # A file without a name: nothing is left of it when the process is killed. (Given the bytes
    # themselves, OpenCV 5.0 crashes when it lets go of them.)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        with _capture(file) as film:
            if not film.isOpened():
                raise UnusableMedia("The video cannot be decoded: it is broken or cut off.")
            size, count, fps = _told(film)
            check_size(*size, rules)
        if count < 1:  # browsers write what they record without a length
            with _capture(file) as film:
                count, fps = _counted(film, size, fps, rules)
        choice = FrameChoice(count, fps, size, rules, sampling, options)
        with _capture(file) as film:
            frames = [choice.frame(image) for image in _grabbed(film, choice.indices)]
    if not frames:
        raise UnusableMedia("The video cannot be decoded: it has no readable frames.")
    return choice.video(frames)


@contextmanager
def _capture(file: IO[bytes]) -> Iterator[Any]:
    # Its messages are about what clients send, which is no business of the log.
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    try:
        import cv2  # comes with mlx-vlm, for the same purpose
    except ImportError:
        raise UnusableMedia(
            "Films cannot be decoded here: the server needs opencv-python-headless (pip install). "
            "GIF, WebP, PNG and lists of frames work without it."
        ) from None
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    file.seek(0)  # on macOS its name stands for the descriptor itself, and where that is
    film = cv2.VideoCapture(f"/dev/fd/{file.fileno()}", cv2.CAP_FFMPEG)
    try:
        yield film
    finally:
        film.release()


def _told(film: Any) -> tuple[tuple[int, int], int, float]:
    """What a film says of itself: its size, how many frames it has (0: nobody knows), its rate."""
    import cv2

    width, height = (
        int(film.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
    )
    count = film.get(cv2.CAP_PROP_FRAME_COUNT)
    known = 0 < count < 1 << 53
    return (width, height), int(count) if known else 0, known_rate(film.get(cv2.CAP_PROP_FPS))


def _counted(film: Any, size: tuple[int, int], fps: float, rules: MediaRules) -> tuple[int, float]:
    """Frames and rate of a film that does not tell, by going through it."""
    import cv2

    count, seconds = 0, 0.0
    while film.grab():
        count += 1
        seconds = film.get(cv2.CAP_PROP_POS_MSEC) / 1000
        check_length(count, count / seconds if seconds > 0 else fps, size, rules)
    if not count:
        raise UnusableMedia("The video cannot be decoded: it has no frames.")
    return count, known_rate((count - 1) / seconds) if seconds > 0 and count > 1 else fps


def _grabbed(film: Any, indices: list[int]) -> Iterator[Image.Image]:
    """Frames in order, until the film ends or breaks."""
    import cv2

    at = read = 0
    while read < len(indices) and film.grab():
        if at == indices[read]:
            ok, picture = film.retrieve()
            if not ok:
                return
            yield Image.fromarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
            read += 1
        at += 1
