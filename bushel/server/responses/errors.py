"""What is wrong with a request, and where."""

from __future__ import annotations

from bushel.server.errors import ApiError


def wrong(where: str, rule: str, *, code: str = "invalid_value") -> ApiError:
    """`where` is a place in the body, such as "input[0].content"; `rule` what it breaks."""
    return ApiError(400, f"{where} {rule}.", code=code, param=where)


def unsupported(where: str, rule: str) -> ApiError:
    return wrong(where, rule, code="unsupported_field")
