"""Models of the hub on this machine: what is there, what a download would take, and removing one.

They lie in the hub library's own cache, which other programs share: nothing is moved, and only what
that library lists is removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bushel.core import ModelError
from bushel.core.checkpoint import HUB_FILES, Checkpoint, hub_error, is_hub_id, read_checkpoint
from bushel.core.download_bar import DownloadBar


@dataclass(frozen=True)
class LocalModel:
    """A checkpoint in the hub's cache."""

    name: str
    path: Path
    size: int  # bytes on disk, of all that is kept of it
    used: float  # when it was last looked at, in seconds since 1970
    model_type: str
    context: int | None
    sees: bool


@dataclass(frozen=True)
class Download:
    """What of a model is not here yet."""

    files: int
    size: int  # bytes
    free: int  # bytes on the disk that it would go to

    def require_room(self) -> None:
        if self.size > self.free:
            raise ModelError(
                f"The download takes {self.size / 1e9:.2f} GB, and the disk has "
                f"{self.free / 1e9:.2f} GB left. `bushel rm` makes room, and HF_HOME names "
                "another disk."
            )


def on_disk() -> Iterator[LocalModel]:
    """Those that Bushel could serve, the largest first."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repo in sorted(repos, key=lambda repo: -repo.size_on_disk):
        revisions = sorted(repo.revisions, key=lambda revision: -revision.last_modified)
        found = _newest(revision.snapshot_path for revision in revisions)
        if repo.repo_type == "model" and found is not None:
            yield LocalModel(
                repo.repo_id,
                found.path,
                repo.size_on_disk,
                repo.last_accessed,
                found.model_type,
                found.context,
                found.sees,
            )


def to_download(model: str) -> Download:
    """Asks the hub; ModelError if it has no such model, or cannot be reached."""
    from huggingface_hub import constants, snapshot_download

    if not is_hub_id(model):
        raise ModelError(f"{model} is no hub id of the form owner/name.")
    try:
        files = snapshot_download(
            model, allow_patterns=HUB_FILES, dry_run=True, tqdm_class=DownloadBar
        )
    except Exception as error:  # the hub client raises many types, its own and its transport's
        raise hub_error(model, error) from error
    wanted = [file for file in files if not isinstance(file, str) and file.will_download]
    cache = Path(constants.HF_HUB_CACHE)
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    return Download(len(wanted), sum(file.file_size or 0 for file in wanted), free)


def remove(model: str) -> int:
    """Bytes that are free again; ModelError if it is not in the hub's cache."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cached = scan_cache_dir()
        repo = next(
            repo for repo in cached.repos if repo.repo_id == model and repo.repo_type == "model"
        )
    except (CacheNotFound, StopIteration):
        raise ModelError(
            f"{model} is not among the models that were downloaded: see `bushel list`. A folder "
            "of your own is yours to delete."
        ) from None
    strategy = cached.delete_revisions(*(revision.commit_hash for revision in repo.revisions))
    strategy.execute()
    return int(strategy.expected_freed_size)


def _newest(folders: Iterable[Path]) -> Checkpoint | None:
    """The first that is a whole checkpoint."""
    for folder in folders:
        try:
            return read_checkpoint(str(folder), trust_remote_code=True)
        except ModelError:
            continue
    return None
