"""The images and videos of a request, from wherever they come to decoded pictures, under rules."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image

from bushel.chat.media.fetch import Fetcher
from bushel.chat.media.frame_sampling import VideoOptions, options_of, wanted_of_list
from bushel.chat.media.image import from_pixels, most_held, open_image
from bushel.chat.media.media_source import (
    UnusableMedia,
    frames_in,
    from_base64,
    from_data,
    from_file,
    is_base64,
    scheme_of,
    too_large,
)
from bushel.chat.media.video import ALL, NO_OPTIONS, fitted_size, most_frames, open_video
from bushel.core import RequestError
from bushel.core.video import FrameSampling, Video
from bushel.core.wire import MediaRules

# Of scripts, whose files are their own.
OWN = MediaRules(
    folder="/",
    most_items=1024,
    most_bytes=4 << 30,
    most_seconds=24 * 3600.0,
    memory=4 << 30,
)

# One request may spend so many times the limit of one fetch.
_FETCHES = 3
_MOST_LISTED = 1 << 16  # frames in one list, of which few are looked at
_LIST_RATE = 2.0  # frames a second, of lists for a model that wishes for no rate


class Intake:
    """The images and videos of one request, taken in one after the other.

    `items` holds an image, or a `Video`, for each. `sampling`: what the model wants to see of one.
    """

    def __init__(self, rules: MediaRules, sampling: FrameSampling = ALL):
        self.rules = rules
        self.items: list[Any] = []
        self._sampling = sampling
        self._pixels = 0
        self._fetch_seconds = _FETCHES * rules.fetch_seconds

    def take(
        self, where: str, kind: str, source: Any, part: Mapping[str, Any] | None = None
    ) -> None:
        """`source` is what a part of type `kind` holds, and `part` what stands beside it; `where`
        names it in what is refused."""
        try:
            if len(self.items) >= self.rules.most_items:
                most = self.rules.most_items
                raise UnusableMedia(
                    f"A request may hold {most} images and videos, and this is one more."
                )
            self._count(kind)
            item = self._opened(kind, source, part or {})
            frames = item.frames if isinstance(item, Video) else [item]
            self._pixels += sum(frame.width * frame.height for frame in frames)
            if self._pixels > most_held(self.rules):
                raise UnusableMedia(
                    "With it, the images and videos of the request have too many pixels."
                )
        except UnusableMedia as error:
            raise RequestError(
                f"{where}: {error}", code="invalid_media", param="messages"
            ) from error.__cause__
        self.items.append(item)

    def _count(self, kind: str) -> None:
        moving = _moves(kind)
        most = self.rules.most_videos if moving else self.rules.most_images
        if (
            most is not None
            and sum(isinstance(item, Video) is moving for item in self.items) >= most
        ):
            what = "videos" if moving else "images"
            raise UnusableMedia(f"A request may hold {most} {what} here, and this is one more.")

    def _opened(self, kind: str, source: Any, part: Mapping[str, Any]) -> Any:
        """A URL as clients send it, or what a script has: a path, bytes of a file, a picture."""
        moving = _moves(kind)
        told = source if isinstance(source, Mapping) else {}
        source = told.get("url") if isinstance(source, Mapping) else source
        options = options_of(told, part) if moving else NO_OPTIONS
        if moving and (listed := _listed(kind, source)) is not None:
            return self._from_list(listed, options)
        if isinstance(source, Image.Image | np.ndarray):
            if moving:
                raise UnusableMedia(f"{kind} needs a file, not one picture.")
            return from_pixels(source, self.rules)
        data = self._bytes(kind, source, self.rules.most_bytes)
        if moving:
            return open_video(data, self.rules, self._sampling, options)
        return open_image(data, self.rules)

    def _bytes(self, kind: str, source: Any, most: int) -> bytes:
        if isinstance(source, PurePath):
            source = str(source)
        if isinstance(source, bytes | bytearray | memoryview):
            return bytes(source)
        if isinstance(source, str) and source:
            return self._read(source, most)
        own = "a path, a url, bytes, a PIL image or an array"
        raise UnusableMedia(f"{kind} needs {own if kind in ('image', 'video') else 'a url'}.")

    def _from_list(self, listed: Sequence[Any], options: VideoOptions) -> Video:
        """Frames that the client chose; those that are not looked at are not opened either."""
        if not 1 <= len(listed) <= _MOST_LISTED:
            raise UnusableMedia(f"A list of frames must have between 1 and {_MOST_LISTED}.")
        first, left = self._frame(listed[0], self.rules.most_bytes)  # bytes, of all together
        most = most_frames(first.size, self.rules)
        indices = wanted_of_list(len(listed), most, self._sampling, options)
        size = fitted_size(first.size, len(indices), self.rules, options)
        frames = [first]
        for at in indices[1:]:
            frame, left = self._frame(listed[at], left)
            if frame.size != first.size:
                raise UnusableMedia("The frames of a video must all have the same size.")
            frames.append(frame)
        if size != first.size:
            frames = [frame.resize(size, Image.Resampling.BICUBIC) for frame in frames]
        rate = options.list_rate or self._sampling.fps or _LIST_RATE
        return Video(tuple(frames), tuple(indices), len(listed), rate)

    def _frame(self, source: Any, left: int) -> tuple[Image.Image, int]:
        """One of a list, and how many bytes the others may have."""
        if isinstance(source, Image.Image | np.ndarray):
            return from_pixels(source, self.rules), left
        data = self._bytes("A frame", source, left)
        if len(data) > left:
            raise too_large(self.rules.most_bytes)
        return open_image(data, self.rules), left - len(data)

    def _read(self, url: str, most: int) -> bytes:
        if is_base64(url):
            return from_base64(url, most)
        match scheme_of(url):
            case "data":
                return from_data(url, most)
            case "http" | "https":
                return self._fetched(url, most)
            case _:
                return from_file(url, self.rules.folder, most)

    def _fetched(self, url: str, most: int) -> bytes:
        if not self.rules.remote:
            raise UnusableMedia("Remote media is not fetched; send a data: URL instead.")
        began = time.monotonic()
        seconds = min(self.rules.fetch_seconds, self._fetch_seconds)
        try:
            return Fetcher(self.rules.domains, most).fetch(url, seconds)
        finally:
            self._fetch_seconds = max(0.0, self._fetch_seconds - (time.monotonic() - began))


def _moves(kind: str) -> bool:
    return kind.removesuffix("_url") == "video"


def _listed(kind: str, source: Any) -> Sequence[Any] | None:
    """The frames of a video that is sent as such: in a list, in one URL, or in one array."""
    if isinstance(source, str):
        return frames_in(source)
    if isinstance(source, np.ndarray) and source.ndim == 4:
        return list(source)
    return source if isinstance(source, list | tuple) and kind == "video" else None
