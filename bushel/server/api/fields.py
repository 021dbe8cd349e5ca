"""Kinds of request fields: bounded numbers, stops, and what is refused by name."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from bushel.chat.template.options import RESERVED, VARIABLE
from bushel.core.params import BOUNDS, MAX_SALT, MAX_STOPS, MOST_PRIORITY
from bushel.server.api.errors import InvalidField, unsupported

MOST_BIASES = 1024
MOST_TOP_LOGPROBS = 20
_MOST_ALLOWED = 1 << 16
_LONGEST_STOP = 4096
_LONGEST_HINT = 1 << 16
LARGEST_ID = (1 << 31) - 1
_BIAS_KEY = re.compile("[0-9]{1,9}")
_ABSENT: tuple[Any, ...] = (None, False, "", [], {})


def _refuse(value: Any) -> None:
    # False == 0, but a zero says something.
    if any(type(value) is type(absent) and value == absent for absent in _ABSENT):
        return None
    raise unsupported("", "is not supported by this server")


# A field that Bushel knows and cannot obey; saying nothing with it is no reason to refuse.
Unsupported = Annotated[
    Any,
    PlainValidator(_refuse),
    WithJsonSchema({"enum": list(_ABSENT), "default": None}),
    Field(description="Not supported: refused by name, unless it is empty."),
]


def whole(value: Any) -> Any:
    """To JSON, 5.0 and 5e0 are integers."""
    return int(value) if type(value) is float and value.is_integer() else value


# JSON's true is no number, and "5" is none either.
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Whole = BeforeValidator(whole)

Flag = Annotated[bool, Field(strict=True)]
# Names and keys, some of which come back in replies; and texts, which a body's size bounds.
Hint = Annotated[str, Field(strict=True, max_length=_LONGEST_HINT)]
Prose = Annotated[str, Field(strict=True)]


def _within(name: str) -> Any:
    """The bounds of a sampling parameter."""
    bound = BOUNDS[name]
    return Field(strict=True, ge=bound.low, le=bound.high)


Temperature = Annotated[Real, _within("temperature")]
TopP = Annotated[Real, _within("top_p")]
MinP = Annotated[Real, _within("min_p")]
PresencePenalty = Annotated[Real, _within("presence_penalty")]
FrequencyPenalty = Annotated[Real, _within("frequency_penalty")]
RepetitionPenalty = Annotated[Real, _within("repetition_penalty")]
TypicalP = Annotated[Real, _within("typical_p")]
TopNSigma = Annotated[Real, _within("top_n_sigma")]
XtcProbability = Annotated[Real, _within("xtc_probability")]
XtcThreshold = Annotated[Real, _within("xtc_threshold")]
DryMultiplier = Annotated[Real, _within("dry_multiplier")]
DryBase = Annotated[Real, _within("dry_base")]
DryAllowedLength = Annotated[int, _within("dry_allowed_length"), _Whole]
DryLastN = Annotated[int, _within("dry_penalty_last_n"), _Whole]
RepeatLastN = Annotated[int, _within("repeat_last_n"), _Whole]
TopK = Annotated[int, _within("top_k"), _Whole]
Seed = Annotated[int, _within("seed"), _Whole]
Choices = Annotated[int, _within("n"), _Whole]
Tokens = Annotated[int, _within("max_tokens"), _Whole]
TokensOrNone = Annotated[int, _within("min_tokens"), _Whole]


_MOST_TOKENS = int(BOUNDS["max_tokens"].high)


def _unlimited(value: Any) -> Any:
    """-1, as clients of other servers write it: until the context ends."""
    return _MOST_TOKENS if type(value) is int and value == -1 else value


def _limit_schema(least: int) -> WithJsonSchema:
    bounded = {"type": "integer", "minimum": least, "maximum": _MOST_TOKENS}
    return WithJsonSchema({"anyOf": [{"const": -1}, bounded]})


Limit = Annotated[Tokens, BeforeValidator(_unlimited), _limit_schema(1)]
LimitOrNone = Annotated[TokensOrNone, BeforeValidator(_unlimited), _limit_schema(0)]
TopLogprobs = Annotated[int, Field(strict=True, ge=0, le=MOST_TOP_LOGPROBS), _Whole]
Seconds = Annotated[Real, Field(gt=0, le=86400)]
TokenId = Annotated[int, Field(strict=True, ge=0, le=LARGEST_ID), _Whole]
Priority = Annotated[int, Field(strict=True, ge=-MOST_PRIORITY, le=MOST_PRIORITY), _Whole]
Salt = Annotated[str, Field(strict=True, max_length=MAX_SALT)]
TokenIds = Annotated[list[TokenId], Field(max_length=MOST_BIASES, fail_fast=True)]
ManyTokenIds = Annotated[
    list[TokenId], Field(min_length=1, max_length=_MOST_ALLOWED, fail_fast=True)
]


def _kept(value: Any) -> int:
    number = whole(value)
    if type(number) is not int or number == 0 or not -1 <= number <= LARGEST_ID:
        raise InvalidField("", "must be a number of tokens, or -1 for as many as the model takes")
    return number


# Tokens that are kept of a text, as vLLM calls it.
Truncation = Annotated[
    int,
    PlainValidator(_kept),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": -1},
                {"type": "integer", "minimum": 1, "maximum": LARGEST_ID},
            ]
        }
    ),
]


def _biases(value: dict[str, float]) -> dict[int, float]:
    for key in value:
        if not _BIAS_KEY.fullmatch(key):
            raise InvalidField("", "must have token ids as its keys")
    return {int(key): bias for key, bias in value.items()}


def _few_biases(value: Any) -> Any:
    # Pydantic counts an object's keys only when it has checked them all.
    if isinstance(value, dict) and len(value) > MOST_BIASES:
        raise InvalidField("", f"must have at most {MOST_BIASES} token ids")
    return value


_Bias = Annotated[Real, _within("logit_bias")]
_BIAS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "patternProperties": {
        f"^{_BIAS_KEY.pattern}$": {
            "type": "number",
            "minimum": BOUNDS["logit_bias"].low,
            "maximum": BOUNDS["logit_bias"].high,
        }
    },
    "additionalProperties": False,
    "maxProperties": MOST_BIASES,
}
LogitBias = Annotated[
    dict[str, _Bias],
    BeforeValidator(_few_biases),
    AfterValidator(_biases),
    WithJsonSchema(_BIAS_SCHEMA),
]


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise InvalidField("", "must be a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise InvalidField("", f"must be at most {MAX_STOPS} strings")
    for at, stop in enumerate(stops):
        where = "" if isinstance(value, str) else f"[{at}]"
        if not isinstance(stop, str) or not 1 <= len(stop) <= _LONGEST_STOP:
            raise InvalidField(where, f"must be a string of 1 to {_LONGEST_STOP} characters")
    return tuple(stops)


_STOP_SCHEMA = {"type": "string", "minLength": 1, "maxLength": _LONGEST_STOP}
Stops = Annotated[
    tuple[str, ...],
    PlainValidator(_stops),
    WithJsonSchema(
        {"anyOf": [_STOP_SCHEMA, {"type": "array", "items": _STOP_SCHEMA, "maxItems": MAX_STOPS}]}
    ),
]


# A request may set a template's variables, and whether the prompt ends with an open turn.
_MOST_VARIABLES = 64


def _template_options(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) > _MOST_VARIABLES:
        raise InvalidField("", f"must be at most {_MOST_VARIABLES} variables")
    for key in value:
        if key in RESERVED or not VARIABLE.fullmatch(key):
            raise InvalidField("", "may only set variables of the chat template")
    return value


TemplateOptions = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "maxProperties": _MOST_VARIABLES,
            "propertyNames": {
                "pattern": f"^{VARIABLE.pattern}$",
                "not": {"enum": sorted(RESERVED)},
            },
        },
    ),
    AfterValidator(_template_options),
]


class StreamOptions(BaseModel):
    include_usage: Flag | None = Field(
        None,
        description="End the stream of a chat or a completion with a chunk of its usage "
        "(default: false).",
    )
    continuous_usage_stats: Flag | None = Field(
        None, description="Have the usage so far in each of these chunks (default: false)."
    )
    include_obfuscation: Flag | None = Field(
        None, description="A hint: streams are not padded, whatever it says."
    )
