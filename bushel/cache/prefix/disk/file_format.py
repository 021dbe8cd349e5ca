"""What a file of the disk tier looks like; nothing here does any input or output.

A file is a safetensors file that any tool can open:

    | size u64 | header, JSON padded to 8 ............ | key, int64 | tensors ........ |
               {"__metadata__": {"head", "body", ...}

    body   sha256 of the tensors
    head   sha256 of everything before the tensors, `body` too, with zeros in its own place

so that a start checks every byte of what it reads, without reading the tensors, and a read
checks every byte of the file. The files are written and read here, and not by the safetensors
package, because that copies while it holds the interpreter: 512 MiB stopped every other
thread for 0.35 s each way.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import msgspec
import numpy as np

from bushel.core import BushelError, IntegrityError

# 2: files of the first layout may hold state of other tokens than those they name.
VERSION = 2

Kind = Literal["edge", "snapshot"]

# MLX's names, and those of the format with the bytes of one element.
_DTYPES = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "float32": ("F32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
}
_NAMES = {short: (name, size) for name, (short, size) in _DTYPES.items()}

_SIZE = struct.Struct("<Q")
_ZEROS = "0" * 64
_OPENING = b'{"__metadata__":{"head":"'
_HEAD = slice(_SIZE.size + len(_OPENING), _SIZE.size + len(_OPENING) + 64)
_BODY = slice(_HEAD.stop + len('","body":"'), _HEAD.stop + len('","body":"') + 64)
_OURS = "array:"  # before the owner's names, so that none of them is "key"
# A header has about 100 bytes per tensor; beyond this it is garbage.
_LONGEST_HEADER = 16 << 20


class UnusableFile(BushelError):
    """A file is not what its name promises; the text says in which way."""


@dataclass(frozen=True)
class HostArray:
    dtype: str  # as MLX calls it, "bfloat16"
    shape: tuple[int, ...]
    data: bytes | memoryview  # contiguous


@dataclass(frozen=True, eq=False)
class Entry:
    """A file, as far as its header and key tell.

    parent: the edge on whose path it starts: parent.start < start <= parent.start + len(parent.key)
    key:    elements [start, start + len) of the path; a snapshot has none, and stands at `start`
    note:   the owner's, kept as it is, and no part of the name
    """

    name: str
    kind: Kind
    parent: str | None
    start: int
    key: np.ndarray
    note: str
    nbytes: int


class _Meta(msgspec.Struct, forbid_unknown_fields=True):
    """In this order: `head` and `body` have fixed places."""

    head: str
    body: str
    layout: str
    namespace: str
    kind: str
    parent: str
    start: str
    note: str


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _TensorEntry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


def name_of(namespace: str, kind: str, parent: str | None, start: int, key: np.ndarray) -> str:
    place = msgspec.json.encode([namespace, kind, parent, start])
    return hashlib.sha256(place + b"\n" + key_bytes(key)).hexdigest()


def key_bytes(key: np.ndarray) -> bytes:
    return np.ascontiguousarray(key, dtype="<i8").tobytes()


# -- to bytes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileDraft:
    """A file to be written: its size is known, its checksums are not computed yet."""

    start: bytes  # everything before the key
    key: bytes
    pieces: tuple[memoryview, ...]
    arrays: Mapping[str, HostArray]

    @property
    def nbytes(self) -> int:
        return len(self.start) + len(self.key) + sum(piece.nbytes for piece in self.pieces)

    def sealed(self) -> list[bytes | memoryview]:
        """The pieces of the file, in order."""
        start = bytearray(self.start)
        body = hashlib.sha256()
        for piece in self.pieces:
            body.update(piece)
        start[_BODY] = body.hexdigest().encode()
        start[_HEAD] = _head_sum(start, self.key)
        return [bytes(start), self.key, *self.pieces]


def draft_file(
    namespace: str,
    kind: Kind,
    parent: str | None,
    start: int,
    key: np.ndarray,
    note: str,
    arrays: Mapping[str, HostArray],
) -> FileDraft:
    # Wide elements first, so that every tensor is aligned.
    named = sorted(arrays.items(), key=lambda item: -_element(item[1]))
    packed = key_bytes(key)
    meta = _Meta(_ZEROS, _ZEROS, str(VERSION), namespace, kind, parent or "", str(start), note)
    header: dict[str, _Meta | _TensorEntry] = {"__metadata__": meta}
    header["key"] = _TensorEntry("I64", (len(packed) // 8,), (0, len(packed)))
    at = len(packed)
    pieces = []
    for name, array in named:
        # An empty array cannot be cast.
        piece = memoryview(array.data or b"").cast("B")
        if piece.nbytes != math.prod(array.shape) * _element(array):
            raise IntegrityError(f"array {name}: {piece.nbytes} bytes for shape {array.shape}")
        spot = (at, at + piece.nbytes)
        header[_OURS + name] = _TensorEntry(_DTYPES[array.dtype][0], array.shape, spot)
        pieces.append(piece)
        at += piece.nbytes
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)
    return FileDraft(_SIZE.pack(len(encoded)) + encoded, packed, tuple(pieces), dict(arrays))


def _element(array: HostArray) -> int:
    if array.dtype not in _DTYPES:
        raise IntegrityError(f"the disk tier knows no dtype {array.dtype!r}")
    return _DTYPES[array.dtype][1]


def _head_sum(start: bytearray, key: bytes | memoryview) -> bytes:
    zeroed = bytearray(start)
    zeroed[_HEAD] = _ZEROS.encode()
    digest = hashlib.sha256(zeroed)
    digest.update(key)
    return digest.hexdigest().encode()


# -- from bytes ----------------------------------------------------------------------------


def header_end(first: bytes | memoryview, nbytes: int) -> int:
    """Where the header of a file of `nbytes` ends, told by its first 8 bytes."""
    if nbytes < _BODY.stop:
        raise UnusableFile(f"it has only {nbytes} bytes")
    end = _SIZE.size + int(_SIZE.unpack(first[: _SIZE.size])[0])
    if not _BODY.stop < end <= min(nbytes, _LONGEST_HEADER):
        raise UnusableFile("the size of its header is wrong")
    return end


class Header:
    """The bytes before the key, taken apart; `entry` says whether they can be believed."""

    def __init__(self, start: bytes | memoryview):
        self._start = bytearray(start)
        self.nbytes = len(start)
        if self._start[_SIZE.size : _HEAD.start] != _OPENING:
            raise UnusableFile("its header is not one of ours")
        try:
            raw = msgspec.json.decode(self._start[_SIZE.size :], type=dict[str, msgspec.Raw])
            self._meta = msgspec.json.decode(raw.pop("__metadata__"), type=_Meta)
            self._key = msgspec.json.decode(raw.pop("key"), type=_TensorEntry)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
            raise UnusableFile("its header is damaged") from None
        self._tensors = raw
        tokens = self._key.data_offsets[1] // 8
        if self._key != _TensorEntry("I64", (tokens,), (0, tokens * 8)):
            raise UnusableFile("its key is damaged")
        self.key_nbytes = tokens * 8

    def entry(self, key: bytes | memoryview, name: str, namespace: str, nbytes: int) -> Entry:
        """Of a file of this name and size, or UnusableFile."""
        meta = self._meta
        if meta.layout != str(VERSION):
            raise UnusableFile(f"its layout is version {meta.layout[:20]!r}, not {VERSION}")
        if meta.namespace != namespace:
            raise UnusableFile(f"it belongs to another namespace, {meta.namespace[:100]!r}")
        if self.nbytes + self._end() != nbytes:
            raise UnusableFile(f"it has {nbytes} bytes instead of {self.nbytes + self._end()}")
        check_head(self._start, key)
        kind: Kind = "edge" if meta.kind == "edge" else "snapshot"
        if meta.kind not in get_args(Kind) or (kind == "edge") != bool(key):
            raise UnusableFile("it is neither an edge nor a snapshot")
        if not re.fullmatch(r"\d{1,18}", meta.start) or (not meta.parent) != (int(meta.start) == 0):
            raise UnusableFile("it starts nowhere")
        tokens = np.frombuffer(bytes(key), dtype="<i8")
        parent, start = meta.parent or None, int(meta.start)
        if name != name_of(namespace, kind, parent, start, tokens):
            raise UnusableFile("its name does not match its content")
        return Entry(name, kind, parent, start, tokens, meta.note, nbytes)

    def _end(self) -> int:
        """Of the tensors, seen from the end of the header."""
        if not self._tensors:
            return self.key_nbytes
        return max(self._tensor(name).data_offsets[1] for name in self._tensors)

    def _tensor(self, name: str) -> _TensorEntry:
        try:
            return msgspec.json.decode(self._tensors[name], type=_TensorEntry)
        except msgspec.DecodeError:
            raise UnusableFile("its header is damaged") from None

    def arrays(self, data: memoryview) -> dict[str, HostArray]:
        """The tensors, which lie in `data`: all bytes after the key. The arrays are views."""
        check_body(self._meta.body, data)
        arrays = {}
        at = self.key_nbytes
        for name in self._tensors:
            tensor = self._tensor(name)
            dtype, size = _NAMES.get(tensor.dtype, ("", 0))
            start, end = tensor.data_offsets
            room = math.prod(tensor.shape) * size
            if not dtype or start != at or end - start != room or not name.startswith(_OURS):
                raise UnusableFile(f"its tensor {name[:100]!r} is damaged")
            piece = data[start - self.key_nbytes : end - self.key_nbytes]
            arrays[name.removeprefix(_OURS)] = HostArray(dtype, tensor.shape, piece)
            at = end
        return arrays


def check_head(start: bytearray, key: bytes | memoryview) -> None:
    if start[_HEAD] != _head_sum(start, key):
        raise UnusableFile("the checksum of its header and key is wrong")


def check_body(expected: str, data: memoryview) -> None:
    if hashlib.sha256(data).hexdigest() != expected:
        raise UnusableFile("the checksum of its tensors is wrong")
