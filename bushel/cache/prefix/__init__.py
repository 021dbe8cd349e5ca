"""What was computed for earlier prompts, found again: `prefixes.Prefixes`."""

from bushel.cache.prefix.node import Node
from bushel.cache.prefix.path import Key, key_of
from bushel.cache.prefix.prefixes import REASONS, Prefixes, Reuse, cannot_restore
from bushel.cache.prefix.tier import Fetch

__all__ = [
    "REASONS",
    "Fetch",
    "Key",
    "Node",
    "Prefixes",
    "Reuse",
    "cannot_restore",
    "key_of",
]
