"""Why the hub did not give a model, in a sentence and a code."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from bushel.core.errors import ModelError, public_message

# By the names that the hub's client and its transport have for what happened, so that neither is
# imported to tell them apart. The first that fits one error of the chain counts.
_CODES = (
    ("gated", ("GatedRepoError",)),
    ("not_found", ("RepositoryNotFoundError", "RevisionNotFoundError")),
    ("offline", ("OfflineModeIsEnabled",)),
    ("unreachable", ("ConnectError", "ConnectTimeout", "ProxyError")),
    (
        "cut_off",
        (
            "RemoteProtocolError",
            "ReadError",
            "ReadTimeout",
            "WriteError",
            "IncompleteSnapshotError",
        ),
    ),
)
_REFUSED = (401, 403)
_SENTENCES = {
    "gated": "{model} is gated: accept its terms on the hub, and set HF_TOKEN where Bushel runs.",
    "not_found": "{model} is neither a folder here nor a model of the hub; one that is private "
    "needs HF_TOKEN.",
    "refused": "The hub refuses {model}: HF_TOKEN is missing, wrong, or not allowed to read it.",
    "offline": "HF_HUB_OFFLINE is set where Bushel runs, so {model} cannot be downloaded.",
    "unreachable": "{model} is not on this machine, and the hub cannot be reached.",
    "cut_off": "The download of {model} was cut off. Files that came whole are kept.",
    "disk_full": "The disk is full, so {model} cannot be downloaded. Files that came whole are "
    "kept; HF_HOME names another disk.",
}


class HubError(ModelError):
    """A model cannot be had from the hub, or not be removed. `code` is stable."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


def hub_error(model: str, error: Exception) -> HubError:
    """For whatever the hub's client raised; it has many types, its own and its transport's."""
    code = _code(error)
    if code is None:
        reason = public_message(error).removesuffix(".")
        return HubError("failed", f"{model} cannot be downloaded: {reason}.")
    return HubError(code, _SENTENCES[code].format(model=model))


def _code(error: Exception) -> str | None:
    chain = list(_chain(error))
    if any(isinstance(one, OSError) and one.errno == errno.ENOSPC for one in chain):
        return "disk_full"
    names = {base.__name__ for one in chain for base in type(one).__mro__}
    for code, known in _CODES:
        if not names.isdisjoint(known):
            return code
    statuses = {getattr(getattr(one, "response", None), "status_code", None) for one in chain}
    if not statuses.isdisjoint(_REFUSED):
        return "refused"
    # The client's own check of what it has written.
    return "cut_off" if "Consistency check failed" in str(error) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
