"""What is wrong with a field, and errors in the form that OpenAI's APIs and Bushel's own have.

{"error": {"message", "type", "param", "code"}}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, Field

from bushel.core import FieldError
from bushel.server.api.descriptions import about
from bushel.server.errors import ApiError

_LONGEST_PLACE = 256  # characters; a key of the client's may be part of it
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


# -- a field that is wrong ---------------------------------------------------------------------


class InvalidField(ApiError, ValueError):
    """A field breaks a rule. where: its place in the body, such as "input[0].content".

    It is a ValueError so that validators of pydantic's may raise it too: there `where` is the place
    below the field that is being checked, and `first_invalid` puts the field's before it.
    """

    def __init__(self, where: str, rule: str, *, code: str | None = "invalid_value"):
        super().__init__(400, f"{where or 'The body'} {rule}.", code=code, param=where or None)
        self.where = where
        self.rule = rule


def unsupported(where: str, rule: str) -> InvalidField:
    return InvalidField(where, rule, code="unsupported_field")


def first_invalid(errors: Sequence[Any]) -> InvalidField:
    """The first of pydantic's errors in words, which never repeat what was sent."""
    error = errors[0]
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"][1:]]
    where = "".join(steps).removeprefix(".")
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, InvalidField | FieldError):
        place = (where + raised.where)[:_LONGEST_PLACE]
        code = raised.code if isinstance(raised, InvalidField) else "invalid_value"
        return InvalidField(place, raised.rule, code=code)
    rule = "is missing" if error["type"] == "missing" else str(error["msg"])
    if rule.startswith("Input should "):
        rule = rule.removeprefix("Input ")
    return InvalidField(where[:_LONGEST_PLACE], rule)


# -- how errors are told -----------------------------------------------------------------------


ErrorMessage = Annotated[str, about("What went wrong, in words.")]
ErrorType = Annotated[str, about("The kind of error, by its status.")]
ERROR = about("What went wrong.")


class ErrorDetail(BaseModel):
    message: ErrorMessage
    type: ErrorType
    param: str | None = Field(description="The field that it is about.")
    code: str | None = Field(description="A word for programs, such as model_not_found.")


class ErrorBody(BaseModel):
    error: Annotated[ErrorDetail, ERROR]


def error_bytes(error: ApiError) -> bytes:
    kind = _TYPES.get(error.status)
    if kind is None:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
    detail = {
        "message": error.message,
        "type": kind,
        "param": error.param,
        "code": error.code,
    }
    return msgspec.json.encode({"error": detail})
