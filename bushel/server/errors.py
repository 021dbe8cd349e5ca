"""What a client is told when it does not get what it asked for, before any API gives it a shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bushel.core import RequestError
from bushel.core.wire import Refused


class ApiError(Exception):
    """`code` is stable and machine-readable; `param` names the offending field, if one does;
    `details` are what the message tells in words, such as numbers, for those who reword it.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        details: Mapping[str, Any] | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.details = details or {}
        self.told = False  # in the log

    @classmethod
    def of(cls, error: RequestError) -> ApiError:
        return cls(400, str(error), code=error.code, param=error.param, details=error.details)

    @classmethod
    def refused(cls, refused: Refused) -> ApiError:
        return cls(
            500 if refused.internal else 400,
            refused.message,
            code=refused.code,
            param=refused.param,
            details=refused.details,
        )

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that go with it, whatever API it is told by."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def internal_error(request_id: str) -> ApiError:
    return ApiError(
        500, f"An unexpected error. The server's log has it as {request_id}.", code="internal_error"
    )


def restarted() -> ApiError:
    return ApiError(
        503,
        "The engine stopped and is being restarted; this request was lost with it. Send it again.",
        code="engine_restarted",
        retry_after=2,
    )


def unavailable(why: str) -> ApiError:
    message = f"The server is not ready: {why}."
    return ApiError(503, message, code="engine_unavailable", retry_after=2)


def too_many(waiting: int) -> ApiError:
    return ApiError(
        429,
        f"{waiting} requests are waiting already. Try again later.",
        code="queue_full",
        retry_after=1,
    )


def timed_out(seconds: float) -> ApiError:
    return ApiError(408, f"The request took longer than {seconds:g} s.", code="request_timeout")


def cancelled() -> ApiError:
    return ApiError(409, "The request was cancelled.", code="request_cancelled")


def slow_reader() -> ApiError:
    return ApiError(
        408,
        "The reply was ended, because too much of it had not been read. Read it faster, or ask for "
        "fewer log-probabilities or replies.",
        code="slow_reader",
    )


def reply_too_large(most: int) -> ApiError:
    return ApiError(
        400,
        f"The reply is larger than {most} bytes. Ask for a stream, or for fewer log-probabilities, "
        "tokens or replies.",
        code="reply_too_large",
    )
