"""What was computed for earlier prompts, found again: `prefix_cache.PrefixCache`."""

from bushel.cache.prefix.disk_tier import DiskFetch
from bushel.cache.prefix.node import Node
from bushel.cache.prefix.prefix_cache import PrefixCache, ReusePlan, cannot_restore
from bushel.cache.prefix.token_key import Key, key_of

__all__ = [
    "DiskFetch",
    "Key",
    "Node",
    "PrefixCache",
    "ReusePlan",
    "cannot_restore",
    "key_of",
]
