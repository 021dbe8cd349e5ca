"""What transformers finds in its 1,600 files of models, looked through once per machine.

It does so in every process that imports it: half a second each, and a server has two of them.
"""

import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_MODULE = "transformers.utils.import_utils"


class _Finder(MetaPathFinder):
    """Finds one module as Python does, and changes it once it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, _: Any = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _remember(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _remember(module: Any) -> None:
    find = module.create_import_structure_from_path
    models = Path(module.__file__).parents[1] / "models"

    def found(path: str | Path) -> Any:
        return _kept(models, find) if Path(path) == models else find(path)

    module.create_import_structure_from_path = found


def _kept(models: Path, find: Any) -> Any:
    key = f"{models} {models.stat().st_mtime_ns}".encode()
    digest = hashlib.sha256(key).hexdigest()[:16]
    file = Path(tempfile.gettempdir()) / f"bushel-transformers-{digest}"
    if not file.exists():
        descriptor, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "wb") as scratch:
            pickle.dump(find(models), scratch)
        Path(name).rename(file)
    return pickle.loads(file.read_bytes())


sys.meta_path.insert(0, _Finder())
