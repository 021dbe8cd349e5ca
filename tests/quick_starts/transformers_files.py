"""What transformers finds in its 1,600 files of models, looked through once per machine.

It does so in every process that imports it: half a second each, and a server has two of them.
"""

import hashlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

from changed_modules import change


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


change("transformers.utils.import_utils", _remember)
