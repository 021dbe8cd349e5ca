"""Continuous batching: `Engine` is the loop, `schedule` its policy."""

from bushel.engine.engine import Engine
from bushel.engine.schedule import Policy

__all__ = ["Engine", "Policy"]
