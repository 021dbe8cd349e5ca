"""Copies of the fixtures with something changed: another setting, a missing file, planted code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from tests.families import checkpoint_dir

Weights = dict[str, mx.array]


def copied(name: str, path: Path) -> Path:
    """A private copy of the checkpoint of family `name`, under `path`."""
    return Path(shutil.copytree(checkpoint_dir(name), path / name))


def set_json(path: Path, **fields: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content.update(fields)
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(kept, ensure_ascii=False))


def change_weights(path: Path, change: Callable[[Weights], Weights]) -> None:
    file = path / "model.safetensors"
    weights = change(mx.load(str(file)))  # type: ignore[arg-type]
    mx.eval(weights)
    mx.save_safetensors(str(file), weights, metadata={"format": "mlx"})


def set_template(path: Path, template: str) -> None:
    set_json(path / "tokenizer_config.json", chat_template=template)
