"""The bar of a download from the hub, shown by whoever really fetches something.

Each process of a server asks the hub's library for its checkpoint, and the library shows that it
has it, in three bars, also where nothing was left to fetch.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.utils import tqdm


class DownloadBar(tqdm):  # type: ignore[misc,type-arg,unused-ignore]
    """Of bytes, from the first one on; a count of files is not shown."""

    def display(self, *arguments: Any, **more: Any) -> Any:
        if self.unit == "B" and self.n:
            return super().display(*arguments, **more)
        return None
