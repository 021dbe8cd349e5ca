"""The nouns everything else speaks. Imports nothing of Bushel outside this package."""

from bushel.core.errors import (
    BushelError,
    ContextLengthError,
    IntegrityError,
    ModelError,
    RequestError,
    ThreadError,
    told,
)
from bushel.core.output import Choice, Event, FinishReason, Output, TokenLogprob, Usage
from bushel.core.params import Decoding, GenerationDefaults, SamplingParams
from bushel.core.request import Borders, Media, Prepared, Request

__all__ = [
    "Borders",
    "BushelError",
    "Choice",
    "ContextLengthError",
    "Decoding",
    "Event",
    "FinishReason",
    "GenerationDefaults",
    "IntegrityError",
    "Media",
    "ModelError",
    "Output",
    "Prepared",
    "Request",
    "RequestError",
    "SamplingParams",
    "ThreadError",
    "TokenLogprob",
    "Usage",
    "told",
]
