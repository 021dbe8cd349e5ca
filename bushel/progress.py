"""A bar for those who wait for many requests."""

from __future__ import annotations

from typing import Any


def progress_bar(total: int, shown: bool) -> Any:
    """To be used in a `with` block, and told by `update(n)` of so many more that are done."""
    from tqdm import tqdm

    return tqdm(total=total, disable=not shown, unit="request")
