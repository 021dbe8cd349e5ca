"""Bushel: one exact, continuously batching engine for text, vision and hybrid models on MLX."""

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
