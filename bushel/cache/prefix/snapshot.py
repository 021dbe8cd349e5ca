"""What is kept at one position: the state of the layers that cannot be cut by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from bushel.cache.layer_kind import LayerSnapshot


@dataclass(frozen=True)
class PrefixSnapshot:
    digest: bytes  # of all tokens up to it (`path.digest_of`)
    parts: tuple[LayerSnapshot | None, ...]  # as `parts_of`; None: a part that appends

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts if part is not None)

    @property
    def buffers(self) -> int:
        return len(self.arrays)

    @property
    def arrays(self) -> list[mx.array]:
        return list(self.named().values())

    def named(self) -> dict[str, mx.array]:
        """Its arrays, by part and place in it."""
        return {
            f"{at}.{place}": array
            for at, part in enumerate(self.parts)
            for place, array in enumerate(part.arrays if part is not None else ())
            if array is not None
        }

    def like(
        self, arrays: Mapping[str, mx.array], digest: bytes, position: int
    ) -> PrefixSnapshot | None:
        """One of the same model with these arrays; None if they do not fit."""
        own, anywhere = self.named(), self._varying()
        if own.keys() - anywhere != arrays.keys() - anywhere:
            return None
        for name in arrays.keys() - anywhere:
            array, mine = arrays[name], own[name]
            # A window may hold more tokens than this one does.
            alike = array.ndim == mine.ndim and array.shape[:2] == mine.shape[:2]
            if array.dtype != mine.dtype or not alike:
                return None
        return PrefixSnapshot(
            digest,
            tuple(
                None
                if part is None
                else LayerSnapshot(
                    part.kind,
                    position,
                    tuple(arrays.get(f"{at}.{place}") for place in range(len(part.arrays))),
                    varies=part.varies,
                )
                for at, part in enumerate(self.parts)
            ),
        )

    def _varying(self) -> set[str]:
        """Names of arrays that may be of any shape, or missing."""
        return {
            f"{at}.{place}"
            for at, part in enumerate(self.parts)
            if part is not None and part.varies
            for place in range(len(part.arrays))
        }
