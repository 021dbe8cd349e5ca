"""Templates of real models and recorded request bodies, where a folder of them is at hand.

BUSHEL_TEST_CORPUS names it; nothing outside the checkout is looked at otherwise. Tests that try
more with it are marked `corpus`.
"""

import os
from pathlib import Path

_named = os.environ.get("BUSHEL_TEST_CORPUS")
MISSING = "BUSHEL_TEST_CORPUS names no folder of real templates and recorded bodies"
FOLDER = Path(_named) if _named else None
if FOLDER is not None and not (FOLDER / "templates").is_dir():
    raise FileNotFoundError(f"BUSHEL_TEST_CORPUS: {FOLDER} has no folder of templates")


def files(pattern: str) -> list[Path]:
    """In it; none if there is no such folder."""
    return sorted(FOLDER.glob(pattern)) if FOLDER is not None else []
