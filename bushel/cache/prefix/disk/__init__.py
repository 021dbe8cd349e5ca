"""Edges and snapshots of the prefix tree, kept as files that outlive the process (`disk.Disk`)."""

from bushel.cache.prefix.disk.disk import Disk, DiskStats
from bushel.cache.prefix.disk.file_format import Entry, HostArray, Kind
from bushel.cache.prefix.disk.pending_read import PendingRead

__all__ = ["Disk", "DiskStats", "Entry", "HostArray", "Kind", "PendingRead"]
