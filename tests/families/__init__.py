"""Checkpoints of every family the tests need, built once per machine and shared."""

import hashlib
import shutil
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from . import encoders, text


def checkpoint_dir(name: str) -> Path:
    """The checkpoint of family `name`, built on first use.

    Directories are keyed by the sources and library versions that shape them, and appear by
    one rename, so parallel test processes never see half a checkpoint.
    """
    path = _built(name)
    if name not in text.TEXT and name not in encoders.ENCODERS:
        from . import vision

        vision.make_loadable(name, path)
    return path


def _built(name: str) -> Path:
    path = _root() / name
    if path.exists():
        return path
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=_root()))
    _build(name, scratch)
    try:
        scratch.rename(path)
    except OSError:
        shutil.rmtree(scratch)
        if not path.exists():
            raise
    return path


def _build(name: str, path: Path) -> None:
    if name in text.TEXT:
        text.build(name, path)
        return
    if name in encoders.ENCODERS:
        encoders.build(name, path)
        return
    from . import vision

    vision.build(name, path)


@cache
def _root() -> Path:
    digest = hashlib.sha256()
    for library in ("mlx-lm", "mlx-vlm"):
        digest.update(version(library).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        if not source.name.startswith("test_"):
            digest.update(source.read_bytes())
    root = Path(tempfile.gettempdir()) / f"bushel-fixtures-{digest.hexdigest()[:16]}"
    root.mkdir(exist_ok=True)
    return root
