"""How an engine is doing, as it tells others; `/v1/status` shows it as JSON.

What is UNSET is left out there: it does not apply to this engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

Count = int | UnsetType


class MemoryStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    active_bytes: Count = UNSET  # in use by MLX
    peak_bytes: Count = UNSET
    cache_bytes: Count = UNSET  # free, and kept by MLX
    state_bytes: Count = UNSET  # of the rows that decode
    state_buffers: Count = UNSET
    # Where memory is counted: what may be used, and what rows were promised of it.
    limit_bytes: Count = UNSET
    weights_bytes: Count = UNSET
    promised_bytes: Count = UNSET
    promised_buffers: Count = UNSET
    claimed_bytes: Count = UNSET  # what MLX keeps to, of the machine's memory


class RequestStatus(msgspec.Struct, frozen=True):
    """One choice of a request."""

    id: str
    choice: int
    phase: str
    prompt_tokens: int
    prefilled_tokens: int
    completion_tokens: int
    cached_tokens: int
    hit: str
    why: str


class DiskStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    off: str = ""  # why it keeps nothing
    limit: int = 0  # bytes
    files: int = 0
    bytes: int = 0
    queued_bytes: int = 0  # not yet written
    written: int = 0  # files, since the start
    read: int = 0
    removed: dict[str, int] = {}  # by cause
    refused: dict[str, int] = {}  # writes, by cause


class CacheStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of earlier prompts; all but `why` only where it is on."""

    on: bool = False
    why: str | UnsetType = UNSET  # it is off
    limit_bytes: Count = UNSET
    bytes: Count = UNSET
    buffers: Count = UNSET
    nodes: Count = UNSET
    tokens: Count = UNSET
    edge_bytes: Count = UNSET
    snapshots: Count = UNSET
    snapshot_bytes: Count = UNSET
    features: Count = UNSET
    feature_bytes: Count = UNSET
    evicted: Count = UNSET
    hits: dict[str, int] | UnsetType = UNSET
    asked_tokens: Count = UNSET
    reused_tokens: Count = UNSET
    disk: DiskStatus | UnsetType = UNSET


class PassCosts(msgspec.Struct, frozen=True):
    """Milliseconds of passes, by tokens a row (`by_width`), as measured at load."""

    rows: int
    by_width: dict[str, float]


class SpeculationStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of speculative decoding."""

    drafters: list[str] = []  # grammar, lookup or prediction, mtp, draft
    why_off: str | UnsetType = UNSET  # where there are none
    why_fewer: str | UnsetType = UNSET  # where one has failed, until the batch is empty
    drafted: int = 0  # tokens, since the engine started
    accepted: int = 0  # of those, how many were said
    acceptance: float = 0.0  # the share of them
    profile: list[PassCosts] = []
    # What each 1,000 tokens of context, of all rows together, add to a pass, by tokens a row.
    ms_per_1000_context_tokens: dict[str, float] | UnsetType = UNSET


class EngineStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pid: Count = UNSET
    running: int = 0  # choices
    waiting: int = 0
    deferred: int = 0  # of those that wait: for a file to be read, or a grammar to be compiled
    lane: Literal["batch", "single"] = "batch"
    lane_reason: str | None = None
    attention: dict[str, str] = {}  # of rows that share a batch, by kind of layer
    max_decode_batch: int = 0  # largest so far
    preemptions: int = 0  # of rows and prompts, so far
    memory: MemoryStatus = MemoryStatus()
    requests: list[RequestStatus] = []
    cache: CacheStatus = CacheStatus()
    speculation: SpeculationStatus = SpeculationStatus()


def attention_in_words(routes: Mapping[str, str]) -> str:
    return ", ".join(f"{kind} in {route}" for kind, route in routes.items())


def as_json(status: EngineStatus | CacheStatus | SpeculationStatus | None) -> dict[str, Any]:
    """Plain values; nothing is known: an empty object."""
    plain: dict[str, Any] = {} if status is None else msgspec.to_builtins(status)
    return plain
