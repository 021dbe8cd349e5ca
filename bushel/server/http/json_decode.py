"""Strict JSON to plain objects, within caps that are counted before anything is built.

bytes ─> outline: how many values, keys, fractions …   too many: 413, nothing was built
      ─> decoded in slices of what they hold

One C call that decodes megabytes keeps the interpreter lock all the while, and with it the event
loop, whatever thread it is in. So a large object or list is first cut into its members, which are
decoded one by one; between two of them the loop gets its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from bushel.server.errors import ApiError
from bushel.server.options import Limits

# What is decoded, or looked through, in one call. A fraction of 23 bytes may take 14 us, so it is
# 40 ms at most.
_SLICE = 64 << 10
_LOOK = 1 << 20
# What msgpack can carry to a worker.
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_SPACE = b" \t\r\n"

_raw = msgspec.Raw
_members = msgspec.json.Decoder(dict[str, _raw])
_elements = msgspec.json.Decoder(list[_raw])


@dataclass
class Outline:
    """What is in a body, apart from what its strings say."""

    values: int = 0
    lists: int = 0  # and objects
    keys: int = 0
    fractions: int = 0  # numbers that are not plain integers; every "e" counts as one

    def check(self, limits: Limits) -> None:
        for count, most, what in (
            (self.values, limits.values, "values"),
            (self.lists, limits.lists, "lists and objects"),
            (self.keys, limits.keys, "keys"),
            (self.fractions, limits.fractions, "fractions"),
        ):
            if count > most:
                raise ApiError(
                    413,
                    f"The body holds more than {most} {what}. Send less in one request.",
                    code="body_too_large",
                )


def outline(data: bytes, limits: Limits) -> Outline:
    """Counted slice by slice, up to the first cap that is broken.

    What is no JSON is counted somehow; the decoder refuses it.
    """
    outline, inside, at = Outline(), False, 0
    while at < len(data):
        piece = data[at : at + _LOOK]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and at + len(piece) < len(data):
            piece = piece[:-1]  # a backslash stays with what it escapes
        at += len(piece)
        # Without these every quote begins or ends a string.
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        structure = b" ".join(parts[1::2] if inside else parts[::2])
        inside ^= len(parts) % 2 == 0
        opened = structure.count(b"[") + structure.count(b"{")
        outline.lists += opened
        outline.values += opened + structure.count(b",")
        outline.keys += structure.count(b":")
        outline.fractions += sum(map(structure.count, (b".", b"e", b"E")))
        outline.check(limits)
    return outline


def decode(data: bytes, limits: Limits) -> Any:
    """NaN, infinity, broken UTF-8, half surrogates and numbers beyond 64 bits are errors."""
    outline(data, limits)
    try:
        return _decoded(data.strip(_SPACE), limits.depth, limits)
    except RecursionError:
        raise _too_deep(limits) from None
    except UnicodeDecodeError:
        raise _malformed("it is not valid UTF-8") from None
    except msgspec.DecodeError as error:  # says where, and never what
        raise _malformed(str(error)) from None


def _decoded(data: bytes | memoryview, depth: int, limits: Limits) -> Any:
    """depth: how many levels may still follow."""
    if len(data) <= _SLICE:
        value = msgspec.json.decode(data)
        _check_values(value, depth, limits)
        return value
    if data[0] in b"[{" and depth == 0:
        raise _too_deep(limits)
    if data[0] == ord("{"):
        members = _members.decode(data)
        return {
            key: _decoded(memoryview(member), depth - 1, limits) for key, member in members.items()
        }
    if data[0] == ord("["):
        return _list(data, depth, limits)
    if data[0] != ord('"'):
        raise _malformed("a number in it is too long")
    return _string(bytes(data), limits)


def _list(data: bytes | memoryview, depth: int, limits: Limits) -> list[Any]:
    data = bytes(data)
    inside = data[1:-1].strip(_SPACE)
    if any(opening in inside for opening in (b'"', b"[", b"{")):
        return [
            _decoded(memoryview(element), depth - 1, limits) for element in _elements.decode(data)
        ]
    # Nothing but numbers: cut at commas, without an object for each.
    if data[-1] != ord("]") or inside.endswith(b","):
        raise _malformed("a list in it is not complete")
    decoded: list[Any] = []
    at = 0
    while at < len(inside):
        comma = inside.find(b",", at + _SLICE)
        end = len(inside) if comma < 0 else comma
        numbers = msgspec.json.decode(b"[" + inside[at:end] + b"]")
        _check_values(numbers, depth, limits)
        if not numbers:
            raise _malformed("a list in it is not complete")
        decoded += numbers
        at = end + 1
    return decoded


def _string(data: bytes, limits: Limits) -> str:
    # Pictures in base64 may be as long as the body. Other characters take longer, and more memory.
    if len(data) > limits.text_bytes and (not data.isascii() or b"\\" in data):
        raise ApiError(
            413,
            f"A text in the body is longer than {limits.text_bytes} bytes.",
            code="body_too_large",
        )
    return str(msgspec.json.decode(data))


def _malformed(why: str) -> ApiError:
    return ApiError(400, f"The body is not JSON: {why}.", code="invalid_json")


def _too_deep(limits: Limits) -> ApiError:
    return ApiError(
        400, f"The body is nested deeper than {limits.depth} levels.", code="invalid_json"
    )


def _check_values(value: Any, depth: int, limits: Limits) -> None:
    """Neither too deep, nor with an integer that the processes cannot tell each other."""
    level: list[Any] = [[value]]
    for _ in range(depth + 1):
        inside = [
            inner for outer in level for inner in (outer.values() if type(outer) is dict else outer)
        ]
        whole = [inner for inner in inside if type(inner) is int]
        if whole and (min(whole) < _LEAST or max(whole) > _MOST):
            raise _malformed("it holds an integer of more than 64 bits")
        level = [inner for inner in inside if type(inner) is dict or type(inner) is list]
        if not level:
            return
    raise _too_deep(limits)
