"""Layer states of every kind behind one contract (`layer_kind.LayerKind`), and rows of them."""

from bushel.cache.batch_state import BatchState, Snapshot, take_snapshot
from bushel.cache.kinds import kind_of, unbatchable

__all__ = ["BatchState", "Snapshot", "kind_of", "take_snapshot", "unbatchable"]
