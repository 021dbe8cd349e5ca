"""Layer states of every kind behind one contract (`layer.LayerKind`), in rows and in prefixes."""

from bushel.cache.kinds import kind_of, unbatchable
from bushel.cache.path import Key, key_of
from bushel.cache.prefixes import Prefixes, Reuse, cannot_restore
from bushel.cache.rows import Rows, Snapshot, take_snapshot
from bushel.cache.tier import Fetch
from bushel.cache.tree import Node

__all__ = [
    "Fetch",
    "Key",
    "Node",
    "Prefixes",
    "Reuse",
    "Rows",
    "Snapshot",
    "cannot_restore",
    "key_of",
    "kind_of",
    "take_snapshot",
    "unbatchable",
]
