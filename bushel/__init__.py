"""Bushel: one exact, continuously batching engine for text, vision and hybrid models on MLX."""

from __future__ import annotations

# isort: off
# First: all others take time.
import bushel.early_interrupt  # noqa: F401

# isort: on
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bushel.core import (
    BackendError,
    BushelError,
    Choice,
    Event,
    FunctionCall,
    ModelError,
    Output,
    RequestError,
    SamplingParams,
    ThreadError,
    TokenLogprob,
    Usage,
)
from bushel.core.backend import require_backend
from bushel.core.version import VERSION

if TYPE_CHECKING:
    from bushel.async_llm import AsyncLLM
    from bushel.llm import LLM, Handle
    from bushel.shared_llm import SharedLLM

__all__ = [
    "LLM",
    "AsyncLLM",
    "BackendError",
    "BushelError",
    "Choice",
    "Event",
    "FunctionCall",
    "Handle",
    "ModelError",
    "Output",
    "RequestError",
    "SamplingParams",
    "SharedLLM",
    "ThreadError",
    "TokenLogprob",
    "Usage",
]

__version__ = VERSION

_LATE = {"LLM": "llm", "Handle": "llm", "AsyncLLM": "async_llm", "SharedLLM": "shared_llm"}


def __getattr__(name: str) -> Any:
    """These bring MLX with them, which a server's front process must not have."""
    if name in _LATE:
        require_backend()
        return getattr(import_module(f"bushel.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
