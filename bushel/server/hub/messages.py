"""What the front and a process that works on the hub's cache say to each other."""

from __future__ import annotations

from typing import Any

from bushel.core.wire import Failed, LogLine, Pulse, WireMessage


class ListModels(WireMessage, frozen=True):
    """Result: `models`, `partial` and `free_bytes`."""


class PullModel(WireMessage, frozen=True):
    """`PullProgress` comes on the way. Result: `size_bytes`, of what was missing."""

    model: str


class RemoveModel(WireMessage, frozen=True):
    """loaded: models that run, by their ids or paths. Result: `freed_bytes`."""

    model: str
    loaded: tuple[str, ...]


class InspectModel(WireMessage, frozen=True):
    """on_disk: it has to be in the hub's cache, since nothing is downloaded for this. Result: as
    `bushel inspect --json` has it.
    """

    model: str
    on_disk: bool
    dtype: str | None
    trust_remote_code: bool
    rows: int | None
    tokens: int | None


HubJob = ListModels | PullModel | RemoveModel | InspectModel


class PullProgress(WireMessage, frozen=True):
    """Of all that the model has, what is here by now."""

    bytes_done: int
    bytes_total: int
    files_done: int
    files_total: int


class HubResult(WireMessage, frozen=True):
    """The job is done."""

    result: dict[str, Any]


class HubRefusal(WireMessage, frozen=True):
    """The job cannot be done: as `core.hub_errors.HubError`."""

    code: str
    message: str


FromHub = PullProgress | HubResult | HubRefusal | Failed | LogLine | Pulse
