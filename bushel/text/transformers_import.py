"""Imports transformers, and mends two things of it that concern every checkpoint.

It then reads its list of models from its files once, not twice. It opens every one of its 1,600
files of models to find out what is in them, when it is imported, and again when a library asks it
for a model's class: by the folder's name the first time, and by that of a file in it the second, so
that what it remembers is not found. Half a second of each process's start.

And it leaves rotary positions alone in configs of models that it does not know.
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
    _plain_configs(transformers.PreTrainedConfig)
    return transformers


def _plain_configs(config: Any) -> None:
    """Drop how positions are scaled from a config that has no class of its own.

    transformers reads the config of every checkpoint, for its tokenizer, and makes one form of the
    many that models have for that. With llama3, yarn or longrope it asks how long the context is,
    which a config without a class does not know: an AttributeError, and no tokenizer.
    """
    convert: Any = getattr(config, "convert_rope_params_to_dict", None)
    if convert is None or hasattr(convert, "of_known_models"):
        return

    def of_known_models(self: Any, **kwargs: Any) -> Any:
        if type(self) is not config:
            return convert(self, **kwargs)
        return {key: value for key, value in kwargs.items() if key != "rope_scaling"}

    of_known_models.of_known_models = True  # type: ignore[attr-defined]
    config.convert_rope_params_to_dict = of_known_models


def _by_folder(find: Any) -> Any:
    def found(path: str | Path) -> Any:
        folder = Path(path)
        return find(folder.parent if folder.name == "__init__.py" else folder)

    found.by_folder = True  # type: ignore[attr-defined]
    return found
