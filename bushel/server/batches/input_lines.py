"""The lines of a batch's input: one request each, checked before any of them is asked.

{"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bushel.server.batches.limits import BatchLimits
from bushel.server.batches.records import LineError


class InputLine(msgspec.Struct):
    """body: as it came, for the route that will read it."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Streamed(msgspec.Struct):
    stream: object = None


_decode = msgspec.json.Decoder(InputLine).decode
_decode_streamed = msgspec.json.Decoder(_Streamed).decode


def read_lines(path: Path) -> Iterator[InputLine]:
    """Of a file that has been checked."""
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                yield _decode(line)


def streams(line: InputLine) -> bool:
    return bool(_decode_streamed(line.body).stream)


def check_lines(path: Path, endpoint: str, limits: BatchLimits) -> tuple[int, list[LineError]]:
    """How many requests a file has, and what is wrong with it."""
    seen, errors, total = set[str](), list[LineError](), 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            total += 1
            if total > limits.lines:
                message = f"A batch has at most {limits.lines} requests."
                return total, [LineError("too_many_requests", message, number)]
            error = _wrong(line, number, endpoint, seen, limits)
            if error is not None and len(errors) < limits.errors:
                errors.append(error)
    if not total:
        errors.append(LineError("empty_file", "The file has no requests."))
    return total, errors


def _wrong(
    line: bytes, number: int, endpoint: str, seen: set[str], limits: BatchLimits
) -> LineError | None:
    try:
        request = _decode(line)
    except msgspec.ValidationError as error:
        return LineError("invalid_request", f"The line is not a request: {error}.", number)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LineError("invalid_json_line", "The line is not JSON.", number)
    if not 0 < len(request.custom_id) <= limits.id_length:
        rule = f"must have 1 to {limits.id_length} characters"
        return LineError("invalid_custom_id", f"custom_id {rule}.", number, "custom_id")
    if request.custom_id in seen:
        message = "An earlier line has the same custom_id."
        return LineError("duplicate_custom_id", message, number, "custom_id")
    seen.add(request.custom_id)
    if request.method != "POST":
        return LineError("invalid_method", "method must be POST.", number, "method")
    if request.url != endpoint:
        return LineError("mismatched_url", f"url must be {endpoint}.", number, "url")
    if not bytes(request.body).lstrip().startswith(b"{"):
        return LineError("invalid_body", "body must be an object.", number, "body")
    return None
