"""What layers of keys and values have in common, whether they keep them all or a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer import Layer, LayerKind


class Keys(LayerKind):
    def join(self, batch: Layer, single: Layer) -> None:
        batch.extend(self.merge([single]))

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        for name in ("keys", "values", "offset", "left_padding"):
            if isinstance(value := getattr(layer, name, None), mx.array):
                yield value

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        offsets = [layer.offset] if isinstance(layer.offset, int) else layer.offset.tolist()
        self.require(offsets == list(positions), f"offsets {offsets}, rows {list(positions)}")
        if layer.keys is None:
            return
        rows, _, room, _ = layer.keys.shape
        self.require(rows == len(positions), f"{rows} rows of keys for {len(positions)}")
        seen = min(max(positions), getattr(layer, "max_size", max(positions)))
        self.require(room >= seen, f"room for {room} of {seen} visible tokens")
