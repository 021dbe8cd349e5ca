"""Bushel: one exact, continuously batching engine for text, vision and hybrid models on MLX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bushel.core import (
    BushelError,
    Choice,
    Event,
    ModelError,
    Output,
    RequestError,
    SamplingParams,
    TokenLogprob,
    Usage,
)

if TYPE_CHECKING:
    from bushel.llm import LLM, Handle

__all__ = [
    "LLM",
    "BushelError",
    "Choice",
    "Event",
    "Handle",
    "ModelError",
    "Output",
    "RequestError",
    "SamplingParams",
    "TokenLogprob",
    "Usage",
]


def __getattr__(name: str) -> Any:
    """`LLM` brings MLX with it, which a server's front process must not have."""
    if name in ("LLM", "Handle"):
        from bushel import llm

        return getattr(llm, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
