"""What an answer must look like, where a request says so (`core.conversation.Shape`)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bushel.chat.structured_output.json_schema import (
    MOST_PATTERN,
    Schema,
    bound,
    checked,
    too_complex,
)
from bushel.chat.structured_output.lark import Lark, quoted, slashed
from bushel.core import RequestError

_PARAM = "response_format"
_MOST_LARK = 64 << 10  # characters
_MOST_CHOICES = 4096


class AnswerGrammar(ABC):
    @abstractmethod
    def write(self, lark: Lark) -> str:
        """Its place in the grammar."""

    def whole(self, grammar: str) -> str:
        """The grammar with what it needs besides."""
        return grammar


@dataclass(frozen=True)
class _Json(AnswerGrammar):
    schema: Schema

    def write(self, lark: Lark) -> str:
        return lark.json(self.schema)


@dataclass(frozen=True)
class _Regex(AnswerGrammar):
    pattern: str

    def write(self, lark: Lark) -> str:
        return lark.terminal(f"/{slashed(self.pattern)}/")


@dataclass(frozen=True)
class _Choice(AnswerGrammar):
    texts: list[str]

    def write(self, lark: Lark) -> str:
        return lark.rule(" | ".join(map(quoted, self.texts)))


@dataclass(frozen=True)
class _Lark(AnswerGrammar):
    grammar: str

    def write(self, lark: Lark) -> str:
        return "@answer"

    def whole(self, grammar: str) -> str:
        own = {"name": "answer", "lark_grammar": self.grammar}
        return json.dumps({"grammars": [{"lark_grammar": grammar}, own]})


def answer_of(shape: Any) -> AnswerGrammar | None:
    """RequestError for what is no shape."""
    if shape is None:
        return None
    given = [(key, value) for key, value in _items(shape) if value not in (None, False)]
    if len(given) != 1 or given[0][0] not in _MAKE:
        raise _refused(f"must have exactly one of {', '.join(_MAKE)}")
    key, value = given[0]
    return _MAKE[key](value)


def _items(shape: Any) -> list[tuple[str, Any]]:
    if not isinstance(shape, Mapping):
        raise _refused("must be an object")
    return list(shape.items())


def _refused(why: str) -> RequestError:
    return RequestError(f"The form of the answer {why}.", code="invalid_grammar", param=_PARAM)


def _object(value: Any) -> AnswerGrammar:
    return _Json({"type": "object"})


def _schema(value: Any) -> AnswerGrammar:
    return _Json(checked(value, _PARAM, "schema"))


def _regex(value: Any) -> AnswerGrammar:
    if not isinstance(value, str) or not value:
        raise _refused("must be a regular expression with some text")
    if len(value) > MOST_PATTERN:
        raise too_complex(f"A regular expression of {len(value)} characters is too long", _PARAM)
    return _Regex(value)


def _choice(value: Any) -> AnswerGrammar:
    texts = value if isinstance(value, list) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise _refused("must be a list of texts to choose from")
    if len(texts) > _MOST_CHOICES:
        raise too_complex(f"A choice of {len(texts)} texts is too large", _PARAM)
    bound(texts, _PARAM, "choice")
    return _Choice(texts)


def _lark(value: Any) -> AnswerGrammar:
    if not isinstance(value, str) or not value.strip():
        raise _refused("must be a grammar with some text")
    if len(value) > _MOST_LARK:
        raise too_complex(f"A grammar of {len(value)} characters is too long", _PARAM)
    return _Lark(value)


_MAKE = {
    "json_schema": _schema,
    "json_object": _object,
    "regex": _regex,
    "choice": _choice,
    "lark": _lark,
}
