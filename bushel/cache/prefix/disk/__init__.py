"""Edges and snapshots of the prefix tree, kept as files that outlive the process (`disk.Disk`)."""

from bushel.cache.prefix.disk.disk import Disk, Stats
from bushel.cache.prefix.disk.form import Entry, HostArray, Kind
from bushel.cache.prefix.disk.reading import Reading

__all__ = ["Disk", "Entry", "HostArray", "Kind", "Reading", "Stats"]
