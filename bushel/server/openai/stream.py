"""What the streams of chunks have in common."""

from __future__ import annotations

from bushel.server.errors import ApiError
from bushel.server.http import sse
from bushel.server.openai.errors import error_bytes


class Chunked:
    """Part of a `api.response.Writer`."""

    def keepalive(self) -> bytes:
        return sse.KEEPALIVE

    def failed(self, error: ApiError) -> bytes:
        return sse.data(error_bytes(error))
