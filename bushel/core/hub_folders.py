"""Names of the models in the hub's cache, without the hub's library: it takes half a second.

hub/models--owner--name/snapshots/<commit>/config.json, *.safetensors
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

_PREFIX = "models--"


def hub_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the library has it, by the variables that it reads."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(named)).expanduser()
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or os.path.join(cache, "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def cached_models(cache: Path | None = None) -> list[str]:
    """Those with a config and weights, the newest first. What is wrong inside shows at load."""
    found: list[tuple[float, str]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(cache or hub_cache()):
            if entry.name.startswith(_PREFIX) and _has_weights(Path(entry.path)):
                name = entry.name.removeprefix(_PREFIX).replace("--", "/", 1)
                found.append((-entry.stat().st_mtime, name))
    return [name for _, name in sorted(found)]


def _has_weights(folder: Path) -> bool:
    return any(
        any(config.parent.glob("*.safetensors"))
        for config in folder.glob("snapshots/*/config.json")
    )
