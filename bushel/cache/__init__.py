"""Layer states of every kind behind one contract (`layer.LayerKind`), and rows of them."""

from bushel.cache.kinds import kind_of, unbatchable
from bushel.cache.rows import Rows, Snapshot, take_snapshot

__all__ = ["Rows", "Snapshot", "kind_of", "take_snapshot", "unbatchable"]
