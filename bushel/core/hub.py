"""Models of the hub on this machine: what is there, downloading one with progress, removing one.

They lie in the hub library's own cache, which other programs share: nothing is moved, and only a
model's own folder there is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bushel.core.checkpoint import HUB_FILES, Checkpoint, is_hub_id, is_repo_id, read_checkpoint
from bushel.core.download_bar import CountingBar, DownloadBar
from bushel.core.errors import ModelError
from bushel.core.hub_errors import HubError, hub_error

# Files that are fetched at once. The library begins a file anew after the process is gone, so this
# is how many of them a cut costs; each takes as much of the line as it gets.
_AT_ONCE = 2
_PREFIX = "models--"
_INCOMPLETE = ".incomplete"


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
class PartialModel:
    """What a download left that did not come to its end."""

    name: str
    size: int  # bytes
    used: float  # when something last came of it


@dataclass(frozen=True)
class Download:
    """What of a model is not here yet."""

    files: int
    size: int  # bytes
    free: int  # bytes on the disk that it would go to
    all_files: int
    all_size: int

    def require_room(self) -> None:
        if self.size > self.free:
            raise HubError(
                "disk_full",
                f"The download takes {self.size / 1e9:.2f} GB, and the disk has "
                f"{self.free / 1e9:.2f} GB left. `bushel rm` makes room, and HF_HOME names "
                "another disk.",
            )


def cache_folder() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def free_bytes() -> int:
    """On the disk that downloads go to."""
    cache = cache_folder()
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return shutil.disk_usage(there).free


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
                found.takes_pictures,
            )


def partly_on_disk() -> Iterator[PartialModel]:
    """Models of which some is here, and nothing that could be served."""
    cache = cache_folder()
    for folder in sorted(cache.glob(f"{_PREFIX}*")):
        name = folder.name.removeprefix(_PREFIX).replace("--", "/")
        if folder.is_symlink() or not is_repo_id(name):
            continue
        begun = any(folder.glob(f"blobs/*{_INCOMPLETE}"))
        configs = [path.parent for path in folder.glob("snapshots/*/config.json")]
        if (begun or configs) and _newest(configs) is None:
            size, used = _measure(folder)
            yield PartialModel(name, size, used)


def to_download(model: str) -> Download:
    """Asks the hub; HubError if it has no such model, or cannot be reached."""
    from huggingface_hub import snapshot_download

    if not is_hub_id(model):
        raise HubError("invalid_id", f"{model} is no hub id of the form owner/name.")
    try:
        listed = snapshot_download(
            model, allow_patterns=HUB_FILES, dry_run=True, tqdm_class=DownloadBar
        )
    except Exception as error:
        raise hub_error(model, error) from error
    files = [file for file in listed if not isinstance(file, str)]
    names = [file.filename for file in files]
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise HubError(
            "not_a_checkpoint",
            f"{model} holds no checkpoint that Bushel could serve: that has a config.json, and "
            "weights in .safetensors files.",
        )
    wanted = [file for file in files if file.will_download]
    return Download(
        len(wanted),
        sum(file.file_size or 0 for file in wanted),
        free_bytes(),
        len(files),
        sum(file.file_size or 0 for file in files),
    )


def download(model: str, tell: Callable[[int, int], None]) -> Path:
    """What is missing of a model, with `tell` called with bytes that came and files that are there,
    from any thread and often. HubError if it fails; files that came whole stay.
    """
    from huggingface_hub import snapshot_download

    _drop_remains(model)
    with CountingBar.heard_by(tell):
        try:
            folder = snapshot_download(
                model, allow_patterns=HUB_FILES, max_workers=_AT_ONCE, tqdm_class=CountingBar
            )
        except Exception as error:
            raise hub_error(model, error) from error
    return Path(folder)


def remove(model: str, loaded: Iterable[str] = ()) -> int:
    """Bytes that are free again. loaded: models that run, by their ids or paths. HubError if it is
    not in the hub's cache, runs, or cannot be deleted.
    """
    folder = model_folder(model)
    inside = folder.resolve()
    if any(name == model or Path(name).resolve().is_relative_to(inside) for name in loaded):
        raise HubError("in_use", f"{model} is loaded; unload it first.")
    size, _ = _measure(folder)
    try:
        shutil.rmtree(folder)  # which deletes links, and nothing that they lead to
    except OSError as error:
        raise HubError("not_deleted", f"{model} cannot be deleted: {error.strerror}.") from error
    return size


def model_folder(model: str) -> Path:
    """Of a model in the cache: a real folder, directly inside."""
    name = _PREFIX + model.replace("/", "--")
    cache = cache_folder()
    # By its name in the list: some disks take other spellings for the same.
    if not is_repo_id(model) or not cache.is_dir() or name not in os.listdir(cache):
        raise HubError(
            "not_on_disk",
            f"{model} is not among the models that were downloaded: see `bushel list`. A folder "
            "of your own is yours to delete.",
        )
    folder = cache / name
    if folder.is_symlink() or not folder.is_dir():
        raise HubError(
            "not_deleted",
            f"{model} is a symlink or a file in the hub cache, not a folder, and is not deleted.",
        )
    return folder


def _measure(folder: Path) -> tuple[int, float]:
    """Bytes of all files in a folder, and when the last of them changed. Links are not followed."""
    size, changed = 0, 0.0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a download goes on
                status = os.lstat(os.path.join(parent, name))
                if stat.S_ISREG(status.st_mode):
                    size, changed = size + status.st_size, max(changed, status.st_mtime)
    return size, changed


def _drop_remains(model: str) -> None:
    """Parts of files that a killed process left: the library never goes on with them."""
    from filelock import FileLock, Timeout

    cache = cache_folder()
    folder = _PREFIX + model.replace("/", "--")
    for part in (cache / folder / "blobs").glob(f"*{_INCOMPLETE}"):
        lock = cache / ".locks" / folder / f"{part.name.partition('.')[0]}.lock"
        # Another process may be writing it.
        with contextlib.suppress(Timeout, OSError), FileLock(lock, timeout=0):
            part.unlink(missing_ok=True)


def _newest(folders: Iterable[Path]) -> Checkpoint | None:
    """The first that is a whole checkpoint."""
    for folder in folders:
        try:
            found = read_checkpoint(str(folder), trust_remote_code=True)
        except ModelError:
            continue
        if _has_all_weights(found.path):
            return found
    return None


def _has_all_weights(folder: Path) -> bool:
    """Of those that its index names, if it has one."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return all((folder / str(name)).exists() for name in set(index["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return True
