"""The nouns everything else speaks. Imports nothing of Bushel outside this package."""

from bushel.core.delta import CallBegin, CallEnd, CallPart, Delta, Text, Thought
from bushel.core.errors import (
    BushelError,
    ContextLengthError,
    IntegrityError,
    ModelError,
    RequestError,
    ThreadError,
    told,
)
from bushel.core.guide import Budget, Guide
from bushel.core.output import Choice, Event, FinishReason, Output, TokenLogprob, Usage
from bushel.core.params import Decoding, GenerationDefaults, SamplingParams
from bushel.core.request import Borders, Media, Prepared, Request
from bushel.core.style import Style

__all__ = [
    "Borders",
    "Budget",
    "BushelError",
    "CallBegin",
    "CallEnd",
    "CallPart",
    "Choice",
    "ContextLengthError",
    "Decoding",
    "Delta",
    "Event",
    "FinishReason",
    "GenerationDefaults",
    "Guide",
    "IntegrityError",
    "Media",
    "ModelError",
    "Output",
    "Prepared",
    "Request",
    "RequestError",
    "SamplingParams",
    "Style",
    "Text",
    "Thought",
    "ThreadError",
    "TokenLogprob",
    "Usage",
    "told",
]
