"""Kinds of request fields: bounded numbers, stops, prompts, and what is refused by name."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from bushel.core.params import MAX_CHOICES, MAX_SALT, MAX_STOPS
from bushel.server.openai.messages import wrong

MOST_BIASES = 1024
MOST_TOP_LOGPROBS = 20
_LONGEST_STOP = 4096
_LONGEST_HINT = 1 << 16
_MOST_TOKENS = 1 << 31
_LARGEST_ID = (1 << 31) - 1
_BIAS_KEY = re.compile("[0-9]{1,9}")
_ABSENT: tuple[Any, ...] = (None, False, "", [], {})


def _refuse(value: Any) -> None:
    # False == 0, but a zero says something.
    if any(type(value) is type(it) and value == it for it in _ABSENT):
        return None
    raise PydanticCustomError("unsupported", "is not supported by this server")


# A field that Bushel knows and cannot obey; saying nothing with it is no reason to refuse.
Unsupported = Annotated[
    Any, PlainValidator(_refuse), WithJsonSchema({"enum": list(_ABSENT), "default": None})
]


def _whole(value: Any) -> Any:
    # To JSON, 5.0 and 5e0 are integers.
    return int(value) if type(value) is float and value.is_integer() else value


# JSON's true is no number, and "5" is none either.
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Whole = BeforeValidator(_whole)

Flag = Annotated[bool, Field(strict=True)]
# Names and keys, some of which come back in replies; and texts, which a body's size bounds.
Hint = Annotated[str, Field(strict=True, max_length=_LONGEST_HINT)]
Prose = Annotated[str, Field(strict=True)]
Temperature = Annotated[Real, Field(ge=0, le=100)]
Share = Annotated[Real, Field(ge=0, le=1)]
Penalty = Annotated[Real, Field(ge=-100, le=100)]
Factor = Annotated[Real, Field(ge=1e-3, le=1e3)]
TopK = Annotated[int, Field(strict=True, ge=-1, le=_MOST_TOKENS), _Whole]
Seed = Annotated[int, Field(strict=True, ge=-(1 << 63), le=(1 << 64) - 1), _Whole]
Choices = Annotated[int, Field(strict=True, ge=1, le=MAX_CHOICES), _Whole]
Tokens = Annotated[int, Field(strict=True, ge=1, le=_MOST_TOKENS), _Whole]
TokensOrNone = Annotated[int, Field(strict=True, ge=0, le=_MOST_TOKENS), _Whole]
TopLogprobs = Annotated[int, Field(strict=True, ge=0, le=MOST_TOP_LOGPROBS), _Whole]
Seconds = Annotated[Real, Field(gt=0, le=86400)]
TokenId = Annotated[int, Field(strict=True, ge=0, le=_LARGEST_ID), _Whole]
Salt = Annotated[str, Field(strict=True, max_length=MAX_SALT)]
TokenIds = Annotated[list[TokenId], Field(max_length=MOST_BIASES, fail_fast=True)]


def _biases(value: dict[str, float]) -> dict[int, float]:
    for key in value:
        if not _BIAS_KEY.fullmatch(key):
            raise PydanticCustomError("malformed", "must have token ids as its keys")
    return {int(key): bias for key, bias in value.items()}


def _few_biases(value: Any) -> Any:
    # Pydantic counts an object's keys only when it has checked them all.
    if isinstance(value, dict) and len(value) > MOST_BIASES:
        raise wrong("", f"must have at most {MOST_BIASES} token ids")
    return value


_Bias = Annotated[Real, Field(ge=-1e6, le=1e6)]
_BIAS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "patternProperties": {
        f"^{_BIAS_KEY.pattern}$": {"type": "number", "minimum": -1e6, "maximum": 1e6}
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
        raise wrong("", "must be a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise wrong("", f"must be at most {MAX_STOPS} strings")
    for at, stop in enumerate(stops):
        where = "" if isinstance(value, str) else f"[{at}]"
        if not isinstance(stop, str) or not 1 <= len(stop) <= _LONGEST_STOP:
            raise wrong(where, f"must be a string of 1 to {_LONGEST_STOP} characters")
    return tuple(stops)


_STOP_SCHEMA = {"type": "string", "minLength": 1, "maxLength": _LONGEST_STOP}
Stops = Annotated[
    tuple[str, ...],
    PlainValidator(_stops),
    WithJsonSchema(
        {"anyOf": [_STOP_SCHEMA, {"type": "array", "items": _STOP_SCHEMA, "maxItems": MAX_STOPS}]}
    ),
]


def _ids(value: Any) -> list[int] | None:
    """Token ids, if it is nothing else."""
    if not isinstance(value, list) or not value:
        return None
    if float in set(map(type, value)):
        value = [_whole(it) for it in value]
    good = set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= _LARGEST_ID
    return value if good else None


def _prompts(value: Any) -> list[str | list[int]]:
    """A text, texts, token ids, or lists of token ids: all as a list of prompts."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise wrong("", "must be a string, a list of strings, token ids, or lists of token ids")
    if (ids := _ids(value)) is not None:
        return [ids]
    texts = isinstance(value[0], str)
    prompts: list[str | list[int]] = []
    for at, it in enumerate(value):
        prompt = (it if isinstance(it, str) else None) if texts else _ids(it)
        if prompt is None:
            kind = "a string" if texts else "a list of token ids"
            raise wrong(f"[{at}]", f"must be {kind}")
        prompts.append(prompt)
    return prompts


_ID_SCHEMA = {"type": "integer", "minimum": 0, "maximum": _LARGEST_ID}
_IDS_SCHEMA = {"type": "array", "items": _ID_SCHEMA, "minItems": 1}
Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                _IDS_SCHEMA,
                {"type": "array", "items": _IDS_SCHEMA, "minItems": 1},
            ]
        }
    ),
]

# What `apply_chat_template` itself takes: a request may set a template's variables, and whether
# the prompt ends with an open turn, but not these.
_MOST_VARIABLES = 64
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED = frozenset(
    {
        "chat_template",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


def _template_options(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) > _MOST_VARIABLES:
        raise wrong("", f"must be at most {_MOST_VARIABLES} variables")
    for key in value:
        if key in _RESERVED or not _VARIABLE.fullmatch(key):
            raise wrong("", "may only set variables of the chat template")
    return value


TemplateOptions = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "maxProperties": _MOST_VARIABLES,
            "propertyNames": {
                "pattern": f"^{_VARIABLE.pattern}$",
                "not": {"enum": sorted(_RESERVED)},
            },
        },
    ),
    AfterValidator(_template_options),
]
