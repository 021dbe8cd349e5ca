"""What the front, the engine and the preparing workers say to each other.

A message is a typed head (msgpack) and a tail of raw bytes for tensors:

    | head size u64 | tail size u64 | head ........ | tail ................ |

Nothing is pickled, and nothing that arrives is trusted to be of the right type: a head that does
not decode as one of the receiver's messages raises. Nothing here does any input or output.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from bushel.core.constraint import Constraint
from bushel.core.errors import BushelError, RequestError
from bushel.core.options import ChatOptions, EngineOptions, ModelInfo
from bushel.core.output import Event
from bushel.core.params import Decoding, TokenRules
from bushel.core.request import Borders, Media, Result
from bushel.core.reuse import Hit, Miss
from bushel.core.status import EngineStatus

_SIZES = struct.Struct("<QQ")
# Of one message. A prompt of 64 large pictures is below 1 GB; beyond this it is garbage.
_MOST_BYTES = 8 << 30
# A tail that is handed over with its buffer: copying 500 MB of pixels takes 0.5 s.
_LARGE_TAIL = 1 << 20


class WireMessage(msgspec.Struct, frozen=True, tag=True):
    """A head, known to its receiver by the name of its class."""


# -- front to engine -----------------------------------------------------------------------


class Start(WireMessage, frozen=True):
    """The first message to an engine."""

    options: EngineOptions


class AskLimits(WireMessage, frozen=True):
    """Before `Start`: what may be used where others take `beside` bytes? See `MachineLimits`."""

    beside: int


class SetMemoryLimit(WireMessage, frozen=True):
    """Bytes that MLX may use from now on. `Status` says what it keeps to by then, and so does every
    `Beat`: requests that are here already run to their ends.
    """

    limit: int


class Submit(WireMessage, frozen=True):
    """A request; its tensors are in the tail (`pack`)."""

    id: str
    ids: tuple[int, ...]
    tensors: dict[str, Any]
    decoding: Decoding
    choices: int
    media: tuple[Media, ...] = ()
    borders: Borders = Borders()
    salt: str = ""
    owner: str = ""
    group: str = ""
    result: Result = "text"
    priority: int = 0
    background: bool = False
    prediction: tuple[int, ...] = ()


class Abort(WireMessage, frozen=True):
    id: str


class AskStatus(WireMessage, frozen=True):
    pass


class ClearCache(WireMessage, frozen=True):
    """Forget what earlier prompts have computed. The answer is `Cleared`."""


class Stop(WireMessage, frozen=True):
    """End in good order, now."""


ToEngine = AskLimits | Start | SetMemoryLimit | Submit | Abort | AskStatus | ClearCache | Stop

# -- engine to front -----------------------------------------------------------------------


class Progress(WireMessage, frozen=True):
    """What a starting child is busy with, for a person to read."""

    text: str


class LoadedBytes(WireMessage, frozen=True):
    """How much of its weights a starting engine has read."""

    done: int
    total: int


class Failed(WireMessage, frozen=True):
    """The child cannot do what it was started for, and a new one could not either."""

    reason: str


class LogLine(WireMessage, frozen=True):
    """A line for the log, which the front writes."""

    level: int
    text: str


class Pulse(WireMessage, frozen=True):
    """Every second, of every child: it is alive, whatever it is doing."""


class MachineLimits(WireMessage, frozen=True):
    """memory: bytes that MLX should stay under on this machine. widens: weights of 16 bits become
    float32 unless something else is asked for.
    """

    memory: int
    widens: bool


class Ready(WireMessage, frozen=True):
    """The model is loaded; `status` as in `Status`."""

    status: EngineStatus


class Accepted(WireMessage, frozen=True):
    id: str


class Refused(WireMessage, frozen=True):
    """`internal`: the fault is ours, not the request's."""

    id: str
    message: str
    code: str
    param: str | None = None
    internal: bool = False
    details: dict[str, int] = {}

    @classmethod
    def because(cls, id: str, error: Exception) -> Refused:
        if isinstance(error, RequestError):
            return cls(id, str(error), error.code, error.param, details=error.details)
        known = isinstance(error, BushelError)
        return cls(id, str(error) if known else type(error).__name__, "internal_error", None, True)


class Started(msgspec.Struct, frozen=True, array_like=True):
    """A prompt that began to run, how much of it need not be computed, and why not more."""

    id: str
    cached: int = 0
    hit: Hit | Literal[""] = ""  # empty: nothing was reused
    why: str = ""  # for a person
    reason: Miss | Literal[""] = ""  # the same in a word


class Stepped(WireMessage, frozen=True):
    """Everything that one step of the engine added. prefilled: tokens of prompts that it ran."""

    events: list[Event]
    started: list[Started] = []
    prefilled: int = 0


class Beat(WireMessage, frozen=True):
    """Every second, whatever the engine's thread is doing.

    busy: seconds in the present step; patience: how many of them are no reason to worry.
    """

    steps: int
    busy: float
    patience: float
    status: EngineStatus


class Status(WireMessage, frozen=True):
    status: EngineStatus


class Cleared(WireMessage, frozen=True):
    """One for each `ClearCache`, in their order; `status` is that behind it."""

    status: EngineStatus


FromEngine = (
    Progress
    | LoadedBytes
    | Failed
    | LogLine
    | Pulse
    | MachineLimits
    | Ready
    | Accepted
    | Refused
    | Stepped
    | Beat
    | Status
    | Cleared
)

# -- front to a preparing worker and back --------------------------------------------------


class MediaRules(msgspec.Struct, frozen=True):
    """Where media may come from, and how much of it."""

    remote: bool = False  # fetch http and https URLs
    domains: tuple[str, ...] = ()  # if any: from these hosts alone
    folder: str | None = None  # local files below it
    most_items: int = 64  # images and videos in one request
    most_images: int | None = None  # … and of each kind
    most_videos: int | None = None
    most_bytes: int = 64 << 20  # of one item, as sent or fetched
    most_pixels: int = 64 << 20  # of one picture
    least_side: int = 4  # pixels; smaller pictures are enlarged
    most_frames: int = 64  # of one video, that are looked at
    most_seconds: float = 3600.0  # of one video
    fetch_seconds: float = 10.0
    memory: int = 2 << 30  # bytes that preparing one request may take


class Open(WireMessage, frozen=True):
    """The first message to a preparing worker."""

    model: str
    trust_remote_code: bool
    rules: MediaRules
    chat_options: ChatOptions = ChatOptions()
    max_model_len: int | None = None


class Prepare(WireMessage, frozen=True):
    """`request` is what `chat.prepare` takes."""

    id: str
    request: dict[str, Any]


class Encode(WireMessage, frozen=True):
    id: str
    text: str
    add_special_tokens: bool = True


class Decode(WireMessage, frozen=True):
    """special: special tokens are part of the text."""

    id: str
    ids: tuple[int, ...]
    special: bool = False


class Check(WireMessage, frozen=True):
    """Does this grammar (`Constraint`) compile? An empty `DecodedText` says so, or `Refused`."""

    id: str
    grammar: str


ToWorker = Open | Prepare | Encode | Decode | Check


class Opened(WireMessage, frozen=True):
    model_info: ModelInfo


class Made(WireMessage, frozen=True):
    """A prepared prompt; its tensors are in the tail. Also the ids of an `Encode`.

    opened: it ends inside a thinking block.
    """

    id: str
    ids: tuple[int, ...]
    tensors: dict[str, Any]
    media: tuple[Media, ...] = ()
    borders: Borders = Borders()
    constraint: Constraint | None = None
    opened: bool = False
    token_rules: TokenRules = TokenRules()
    prediction: tuple[int, ...] = ()


class DecodedText(WireMessage, frozen=True):
    id: str
    text: str


# What a client is told whose request took a worker down, or would have.
TOO_MUCH = (
    "The request could not be prepared: its template, text or media took too long or more than a "
    "worker could take."
)

FromWorker = Progress | Failed | LogLine | Pulse | Opened | Made | DecodedText | Refused

# -- bytes ---------------------------------------------------------------------------------


class _WireTensor(msgspec.Struct, frozen=True, tag="tensor"):
    dtype: str
    shape: tuple[int, ...]
    start: int  # in the tail
    size: int


def pack(tensors: Mapping[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Tensors as plain values, and the bytes of their arrays for the tail."""
    import numpy as np  # a tenth of the front's start, which only hands arrays on

    tail: list[memoryview] = []
    at = 0

    def plain(value: Any) -> Any:
        nonlocal at
        if isinstance(value, np.ndarray):
            array = np.ascontiguousarray(value)
            tail.append(array.reshape(-1).view(np.uint8).data)
            placed = _WireTensor(array.dtype.str, value.shape, at, array.nbytes)
            at += array.nbytes
            return msgspec.to_builtins(placed)
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    return {key: plain(value) for key, value in tensors.items()}, tail


def unpack(tensors: Mapping[str, Any], tail: memoryview) -> dict[str, Any]:
    """What `pack` was given. The arrays are views of the tail."""
    import numpy as np

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            placed = msgspec.convert(value, _WireTensor)
            piece = tail[placed.start : placed.start + placed.size]
            return np.frombuffer(piece, dtype=np.dtype(placed.dtype)).reshape(placed.shape)
        if isinstance(value, list):
            return [whole(item) for item in value]
        return value

    return {key: whole(value) for key, value in tensors.items()}


_encoder = msgspec.msgpack.Encoder()


def encode(
    message: WireMessage, tail: Sequence[bytes | memoryview] = ()
) -> list[bytes | memoryview]:
    """The pieces to send, in order."""
    head = _encoder.encode(message)
    size = sum(len(piece) for piece in tail)
    return [_SIZES.pack(len(head), size) + head, *tail]


M = TypeVar("M")


class Assembler(Generic[M]):
    """Bytes in whatever pieces they arrive, to messages with their tails."""

    def __init__(self, messages: Any):
        self._decoder = msgspec.msgpack.Decoder(messages)
        self._buffer = bytearray()
        self._sizes: tuple[int, int] | None = None

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[M, memoryview]]:
        self._buffer += data
        while True:
            if self._sizes is None:
                if len(self._buffer) < _SIZES.size:
                    return
                self._sizes = _SIZES.unpack_from(self._buffer)
                if sum(self._sizes) > _MOST_BYTES:
                    raise BushelError(f"A message of {sum(self._sizes)} bytes is not one of ours.")
            head, tail = self._sizes
            start, end = _SIZES.size + head, _SIZES.size + head + tail
            if len(self._buffer) < end:
                return
            message = self._decoder.decode(memoryview(self._buffer)[_SIZES.size : start])
            self._sizes = None
            if tail > _LARGE_TAIL:
                whole, self._buffer = self._buffer, self._buffer[end:]
                yield message, memoryview(whole)[start:end].toreadonly()
            else:
                rest = bytes(memoryview(self._buffer)[start:end])
                del self._buffer[:end]
                yield message, memoryview(rest)
