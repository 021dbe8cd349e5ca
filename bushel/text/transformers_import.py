"""Imports transformers, which then reads its list of models from its files once, not twice.

It opens every one of its 1,600 files of models to find out what is in them, when it is imported,
and again when a library asks it for a model's class: by the folder's name the first time, and by
that of a file in it the second, so that what it remembers is not found. Half a second of each
process's start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def import_transformers() -> Any:
    import transformers
    from transformers.utils import import_utils

    find: Any = getattr(import_utils, "create_import_structure_from_path", None)
    if find is not None and not hasattr(find, "by_folder"):
        import_utils.create_import_structure_from_path = _by_folder(find)
    return transformers


def _by_folder(find: Any) -> Any:
    def found(path: str | Path) -> Any:
        folder = Path(path)
        return find(folder.parent if folder.name == "__init__.py" else folder)

    found.by_folder = True  # type: ignore[attr-defined]
    return found
