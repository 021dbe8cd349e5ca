"""Request bodies that clients have compressed: unpacked piece by piece, while they arrive.

A few bytes can stand for gigabytes. So nothing is unpacked before there is room for it: a piece
comes out at a time, and whoever takes it counts it before asking for the next one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from bushel.server.errors import ApiError

# Bytes of a piece: 1 ms of unpacking, after which the event loop gets its turn.
_PIECE = 256 << 10
# Windows as zlib counts them: gzip's header, and zlib's, which HTTP calls deflate.
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class ContentDecoder(Protocol):
    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What has come, unpacked; 400 if it is broken."""

    def finish(self) -> None:
        """It has come whole; 400 if it has not."""


class PlainBody:
    """As it is."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        pass


class Inflated:
    """gzip, of one member or several, or deflate."""

    def __init__(self, encoding: str):
        self._encoding = encoding
        self._stream = zlib.decompressobj(_WINDOWS[encoding])
        self._begun = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof:  # another member
                self._stream = zlib.decompressobj(_WINDOWS[self._encoding])
            self._begun = True
            try:
                piece = self._stream.decompress(data, _PIECE)
            except zlib.error:
                raise self._broken() from None
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            yield piece
        while self._begun and not self._stream.eof:  # zlib holds back what did not fit
            piece = self._stream.decompress(b"", _PIECE)
            if not piece:
                return
            yield piece

    def finish(self) -> None:
        if self._begun and not self._stream.eof:
            raise self._broken()

    def _broken(self) -> ApiError:
        return ApiError(
            400, f"The body is no whole {self._encoding}.", code="invalid_content_encoding"
        )


def decoder_of(content_encoding: str) -> ContentDecoder:
    """For a body with that header; 415 for encodings that are not known."""
    name = content_encoding.strip().lower()
    if name in ("", "identity"):
        return PlainBody()
    if name in _WINDOWS:
        return Inflated(name)
    raise ApiError(
        415,
        f"content-encoding {name[:40]!r} is not known: send gzip, deflate or none.",
        code="unsupported_content_encoding",
    )
