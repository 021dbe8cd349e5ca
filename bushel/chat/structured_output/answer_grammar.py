"""What an answer must look like, where a request says so (`core.conversation.Shape`)."""

from __future__ import annotations

import json
import re
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
from bushel.core import RequestError, public_message

_PARAM = "response_format"
_MOST_GRAMMAR = 64 << 10  # characters
_MOST_TAGS = 256
_GBNF_RULE = re.compile(r"(?m)^\s*[A-Za-z0-9_-]+\s*::=")
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
class _Grammar(AnswerGrammar):
    grammar: str  # in Lark's notation

    def write(self, lark: Lark) -> str:
        return "@answer"

    def whole(self, grammar: str) -> str:
        own = {"name": "answer", "lark_grammar": self.grammar}
        return json.dumps({"grammars": [{"lark_grammar": grammar}, own]})


@dataclass(frozen=True)
class _Tag:
    trigger: str
    begin: str
    schema: Schema
    end: str

    def write(self, lark: Lark) -> str:
        """Behind its trigger."""
        begin = self.begin[len(self.trigger) :]
        return f"{lark.mark(begin)} {lark.json(self.schema)} {lark.mark(self.end)}"


@dataclass(frozen=True)
class _Tags(AnswerGrammar):
    tags: list[_Tag]

    def write(self, lark: Lark) -> str:
        triggers = {tag.trigger: None for tag in self.tags}
        parts = []
        for trigger in triggers:
            rest = [tag.write(lark) for tag in self.tags if tag.trigger == trigger]
            others = [other for other in triggers if other != trigger]
            parts.append(f"{lark.upto(trigger, others)} ({' | '.join(rest)})")
        return lark.rule(f"({' | '.join(parts)})* {lark.free([*triggers])}")


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


def _grammar(value: Any) -> AnswerGrammar:
    if not isinstance(value, str) or not value.strip():
        raise _refused("must be a grammar with some text")
    if len(value) > _MOST_GRAMMAR:
        raise too_complex(f"A grammar of {len(value)} characters is too long", _PARAM)
    return _Grammar(_in_lark(value))


def _in_lark(grammar: str) -> str:
    """What is not in Lark's notation is in GBNF."""
    if not _GBNF_RULE.search(grammar):
        return grammar
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(grammar)
    except RecursionError:
        raise too_complex("A grammar with so many brackets inside of each other", _PARAM) from None
    except Exception as error:
        raise _refused(f"is no grammar in GBNF: {public_message(error)}") from None


def _tags(value: Any) -> AnswerGrammar:
    given = value if isinstance(value, Mapping) else {}
    structures, triggers = given.get("structures"), given.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list) or not structures:
        raise _refused("must have structures and triggers")
    if len(structures) > _MOST_TAGS or len(triggers) > _MOST_TAGS:
        raise too_complex(f"More than {_MOST_TAGS} structural tags", _PARAM)
    if not all(isinstance(trigger, str) and trigger for trigger in triggers):
        raise _refused("must have triggers that are texts")
    bound(triggers, _PARAM, "triggers")
    return _Tags([_tag(at, structure, triggers) for at, structure in enumerate(structures)])


def _tag(at: int, structure: Any, triggers: list[str]) -> _Tag:
    given = structure if isinstance(structure, Mapping) else {}
    begin, end = given.get("begin"), given.get("end", "")
    if not isinstance(begin, str) or not isinstance(end, str):
        raise _refused(f"must have a begin and an end in structures[{at}]")
    bound([begin, end], _PARAM, f"structures[{at}]")
    fitting = [trigger for trigger in triggers if begin.startswith(trigger)]
    if not fitting:
        raise _refused(f"must have a trigger with which structures[{at}].begin begins")
    schema = checked(given.get("schema") or {}, _PARAM, f"structures[{at}].schema")
    return _Tag(max(fitting, key=len), begin, schema, end)


_MAKE = {
    "json_schema": _schema,
    "json_object": _object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _tags,
}
