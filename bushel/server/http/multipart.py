"""A form with files, as browsers and SDKs send them: `multipart/form-data`, read whole.

--BOUNDARY CRLF header CRLF ... CRLF CRLF content CRLF --BOUNDARY ... CRLF --BOUNDARY--
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bushel.server.errors import ApiError

_MOST_PARTS = 64
_LONGEST_HEADER = 8192  # bytes
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:[ \t]*form-data([^\r]*)", re.IGNORECASE)
_PARAMETER = re.compile(rb';[ \t]*([a-z]+)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


class FormPart(NamedTuple):
    """filename: None for a field that is no file."""

    content: memoryview
    filename: str | None

    @property
    def text(self) -> str:
        try:
            return str(self.content, "utf-8")
        except UnicodeDecodeError:
            raise _malformed("a field is not UTF-8") from None


def form_parts(content_type: str, data: bytes) -> dict[str, FormPart]:
    """By their names, the last of each. Nothing is copied. ApiError if it is no form."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise _malformed("its content-type has no boundary")
    border = b"--" + (match[1] or match[2]).encode("latin-1")
    parts: dict[str, FormPart] = {}
    at = 0 if data.startswith(border) else data.find(b"\r\n" + border) + 2
    if not data.startswith(border, at):
        raise _malformed("it has no part")
    view = memoryview(data)
    for _ in range(_MOST_PARTS + 1):
        at += len(border)
        if data.startswith(b"--", at):
            return parts
        head, content = data.find(b"\r\n", at) + 2, data.find(b"\r\n\r\n", at) + 4
        end = data.find(b"\r\n" + border, max(at, content - 2))
        if head < 2 or content < 4 or end < 0 or content - head > _LONGEST_HEADER:
            raise _malformed("it ends before its last part does")
        name, filename = _names(data[head:content])
        parts[name] = FormPart(view[content:end], filename)
        at = end + 2
    raise _malformed(f"it has more than {_MOST_PARTS} parts")


def _names(header: bytes) -> tuple[str, str | None]:
    match = _DISPOSITION.search(header)
    found = dict(_PARAMETER.findall(match[1])) if match else {}
    named = {key.lower(): re.sub(rb"\\(.)", rb"\1", value) for key, value in found.items()}
    if b"name" not in named:
        raise _malformed("a part has no name")
    filename = named.get(b"filename")
    name = named[b"name"].decode("utf-8", "replace")
    return name, None if filename is None else filename.decode("utf-8", "replace")


def _malformed(why: str) -> ApiError:
    return ApiError(400, f"The body is not a form: {why}.", code="invalid_form")
