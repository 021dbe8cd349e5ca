"""One job on the hub's cache, in a process of its own: it may be slow, large or killed.

Started by the front through `core.child_process`, with the descriptor of its socket. It ends when
the front does, whatever it is doing (`core.child_link`).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

from bushel.core import BushelError, public_message
from bushel.core.child_link import Link
from bushel.core.hub import download, free_bytes, on_disk, partly_on_disk, remove, to_download
from bushel.core.hub_errors import HubError
from bushel.server.hub.messages import (
    HubJob,
    HubRefusal,
    HubResult,
    InspectModel,
    ListModels,
    PullModel,
    PullProgress,
    RemoveModel,
)

log = logging.getLogger(__name__)

_TELL_EVERY = 0.2  # seconds


class _Teller:
    """Sends progress a few times a second, by a thread of its own; any thread may call it."""

    def __init__(self, link: Link[HubJob], here: PullProgress):
        self._link, self._here = link, here
        self._latest = here
        threading.Thread(target=self._tell, name="progress", daemon=True).start()

    def __call__(self, came: int, files: int) -> None:
        here = self._here
        done = min(here.bytes_done + came, here.bytes_total)
        self._latest = PullProgress(done, here.bytes_total, files, here.files_total)

    def _tell(self) -> None:
        told = self._here
        while True:
            latest = self._latest
            if latest != told:
                self._link.send(latest)
                told = latest
            time.sleep(_TELL_EVERY)


def _list() -> dict[str, Any]:
    models = [
        {
            "id": model.name,
            "size_bytes": model.size,
            "used_at": int(model.used),
            "model_type": model.model_type,
            "max_model_len": model.context,
            "sees": model.sees,
        }
        for model in on_disk()
    ]
    partial = [
        {"id": model.name, "size_bytes": model.size, "used_at": int(model.used)}
        for model in partly_on_disk()
    ]
    return {"models": models, "partial": partial, "free_bytes": free_bytes()}


def _pull(link: Link[HubJob], job: PullModel) -> dict[str, Any]:
    wanted = to_download(job.model)
    wanted.require_room()
    size, files = wanted.all_size, wanted.all_files
    here = PullProgress(size - wanted.size, size, 0, files)
    link.send(here)
    download(job.model, _Teller(link, here))
    return {"size_bytes": wanted.size}


def _inspect(job: InspectModel) -> dict[str, Any]:
    from bushel.chat.inspection import inspect_model

    model = job.model
    if job.on_disk:
        found = next((local for local in on_disk() if local.name == model), None)
        if found is None:
            raise HubError("not_on_disk", f"{model} is not on this machine.")
        model = str(found.path)
    opened = inspect_model(model, dtype=job.dtype, trust_remote_code=job.trust_remote_code)
    told = opened.as_json(job.rows, job.tokens)
    del told["path"], told["name"]
    return told


def _work(link: Link[HubJob], job: HubJob) -> dict[str, Any]:
    match job:
        case ListModels():
            return _list()
        case PullModel():
            return _pull(link, job)
        case RemoveModel():
            return {"freed_bytes": remove(job.model, job.loaded)}
        case InspectModel():
            return _inspect(job)


def main(descriptor: int) -> None:
    link: Link[HubJob] = Link(descriptor, HubJob)
    job, _ = link.wait()
    try:
        link.send(HubResult(_work(link, job)))
    except HubError as error:
        link.send(HubRefusal(error.code, str(error)))
    except (BushelError, OSError) as error:
        link.send(HubRefusal("failed", public_message(error)))
    except Exception:
        log.exception("a job on the hub's cache failed")
        link.send(HubRefusal("failed", "It failed unexpectedly; the server's log says why."))
    link.flush()
    os._exit(0)  # threads of a download that has failed may still wait for the hub


if __name__ == "__main__":
    main(int(sys.argv[1]))
