"""The nouns everything else speaks. Imports nothing of Bushel outside this package."""

# isort: off
# First: it refuses a Python that cannot read the others.
import bushel.core.platform_support  # noqa: F401

# isort: on
from bushel.core.constraint import Constraint, ThinkingBudget
from bushel.core.delta import CallBegin, CallEnd, CallPart, Delta, TextDelta, ThoughtDelta
from bushel.core.errors import (
    BackendError,
    BushelError,
    ContextLengthError,
    DeviceFault,
    FieldError,
    IntegrityError,
    ModelError,
    RequestError,
    ThreadError,
    public_message,
)
from bushel.core.output import (
    Choice,
    Event,
    FinishReason,
    FunctionCall,
    Output,
    TokenLogprob,
    Usage,
)
from bushel.core.params import Decoding, GenerationDefaults, SamplingParams
from bushel.core.reply_format import ReplyFormat
from bushel.core.request import Borders, Media, Prepared, Request, Result

__all__ = [
    "BackendError",
    "Borders",
    "BushelError",
    "CallBegin",
    "CallEnd",
    "CallPart",
    "Choice",
    "Constraint",
    "ContextLengthError",
    "Decoding",
    "Delta",
    "DeviceFault",
    "Event",
    "FieldError",
    "FinishReason",
    "FunctionCall",
    "GenerationDefaults",
    "IntegrityError",
    "Media",
    "ModelError",
    "Output",
    "Prepared",
    "ReplyFormat",
    "Request",
    "RequestError",
    "Result",
    "SamplingParams",
    "TextDelta",
    "ThinkingBudget",
    "ThoughtDelta",
    "ThreadError",
    "TokenLogprob",
    "Usage",
    "public_message",
]
