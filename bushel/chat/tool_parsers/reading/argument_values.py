"""Arguments as JSON: a parameter's raw text by its schema (B26), and JSON that is still coming."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

_NOTHING = object()
_ALL = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_LONGEST_LITERAL = 200_000  # characters; a list of that length takes 0.2 s to parse


def escaped(text: str) -> str:
    """The inside of a JSON string. Pieces may be escaped one by one and joined."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def dumped(value: Any) -> str:
    """JSON of a value; a ValueError if it has none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError("not a JSON value") from error
    return text


def loaded(text: str) -> Any:
    """The value of strict JSON; a ValueError for anything else, NaN included."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def parameter(schema: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """The schema of one argument, from the schema of all; None: it says nothing about it."""
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    declared = properties.get(name) if isinstance(properties, Mapping) else None
    if declared is None:
        declared = schema.get("additionalProperties")
    return declared if isinstance(declared, Mapping) else None


def kinds(schema: Any) -> frozenset[str]:
    """JSON types that a schema lets a value have."""
    if not isinstance(schema, Mapping):
        return _ALL
    allowed = _ALL
    declared = schema.get("type")
    if isinstance(declared, str):
        allowed = frozenset({declared}) & _ALL or _ALL
    elif isinstance(declared, list):
        allowed = frozenset(kind for kind in declared if isinstance(kind, str)) & _ALL or _ALL
    elif "properties" in schema:
        allowed = frozenset({"object"})
    for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if isinstance(values, list) and values:
            allowed &= frozenset().union(*({_kind(value)} for value in values)) or _ALL
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list) and choices:
            allowed &= frozenset().union(*(kinds(choice) for choice in choices))
    for part in schema.get("allOf") or ():
        allowed &= kinds(part)
    if schema.get("nullable") is True:
        allowed |= {"null"}
    return allowed or _ALL


def is_text(schema: Mapping[str, Any] | None) -> bool:
    """Whether a value can only be a string, so that it may be passed on as it comes."""
    return kinds(schema) == {"string"}


def as_json(text: str, schema: Mapping[str, Any] | None) -> str:
    """A parameter's raw text as JSON: of its own type if it is JSON, else a string (B26).

    The schema decides what could be both: "5" is a string where a string is wanted. Text of a
    string is taken as it is, white space and quotes included.
    """
    allowed = kinds(schema)
    words = text.strip()
    if allowed == {"string"} or _listed(words, schema):
        return f'"{escaped(text if allowed == {"string"} else words)}"'
    value = _value(words)
    if isinstance(value, str) and "string" not in allowed:
        value, words = _value(value), value  # a quoted number
    if value is not _NOTHING and not isinstance(value, str) and _fits(value, allowed):
        whole = "integer" in allowed and "number" not in allowed and isinstance(value, float)
        return dumped(int(value)) if whole else words
    if isinstance(value, str) and allowed == _ALL:
        return words
    if "string" not in allowed:
        value = _python(words)
        if value is not _NOTHING and _fits(value, allowed):
            return dumped(value)
        if _value(words) is not _NOTHING:
            return words
    return f'"{escaped(text)}"'


def _listed(words: str, schema: Any) -> bool:
    """Whether it is one of the strings that the schema lists."""
    if not isinstance(schema, Mapping):
        return False
    values = schema.get("enum")
    return (isinstance(values, list) and words in values) or words == schema.get("const")


def _value(words: str) -> Any:
    try:
        return loaded(words)
    except ValueError:
        return _NOTHING


def _python(words: str) -> Any:
    """Of a Python literal; booleans and nothing also in other cases."""
    named = {"true": True, "false": False, "null": None, "none": None, "": None}
    if words.lower() in named:
        return named[words.lower()]
    try:
        return literal(words)
    except ValueError:
        return _NOTHING


class _JsonWords(ast.NodeTransformer):
    """JSON's words are constants too: models write both languages into one value."""

    words: ClassVar = {"true": True, "false": False, "null": None}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = node.id in self.words
        return ast.copy_location(ast.Constant(self.words[node.id]), node) if known else node


def literal(words: str) -> Any:
    """The value of a Python literal that JSON can say; a ValueError for anything else."""
    if len(words) > _LONGEST_LITERAL:
        raise ValueError("too long")
    try:
        with warnings.catch_warnings():  # of escapes that Python does not know
            warnings.simplefilter("ignore")
            tree = ast.parse(words.strip(), mode="eval")
        return loaded(dumped(ast.literal_eval(_JsonWords().visit(tree.body))))
    except (TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("not a literal") from error


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for kind, of in (("boolean", bool), ("integer", int), ("number", float), ("string", str)):
        if isinstance(value, of):
            return kind
    return "array" if isinstance(value, (list, tuple)) else "object"


def _fits(value: Any, allowed: frozenset[str]) -> bool:
    kind = _kind(value)
    if kind == "integer":
        return bool(allowed & {"integer", "number"})
    if kind == "number" and value.is_integer():
        return bool(allowed & {"integer", "number"})
    return kind in allowed


_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\\x00-\x1f]')
_AFTER_PLAIN = re.compile(r"[\s,:}\]\[{\"<;)]")


class JsonSpan:
    """Finds the end of one JSON value that comes in pieces, and passes the value on.

        span = JsonSpan()
        part, rest = span.feed(' {"a": "}')    ->  '{"a": "}', ''
        part, rest = span.feed('"}</end>')     ->  '"}', '</end>'      span.done, span.sound

    White space before the value is dropped; the value passes as it was written, except that
    control characters inside its strings (bare newlines are common) become escapes. A number or
    a word ends before the character that cannot belong to it, so its end is known only then.
    """

    def __init__(self) -> None:
        self.done = False  # nothing more may be fed
        self._parts: list[str] = []
        self._depth = 0
        self._inside = False  # a string
        self._escape = False  # the last character was a backslash of a string
        self._plain = False  # a number or a word, outside of anything

    def feed(self, text: str) -> tuple[str, str]:
        """(what of it is the value, what comes behind the value once that is done)."""
        at = 0
        if not self._parts:
            text = text.lstrip()
            if not text:
                return "", ""
            self._plain = text[0] not in '"{['
        if self._plain:
            end = _AFTER_PLAIN.search(text)
            self.done = end is not None
            return self._give([text[: end.start()]] if end else [text], text, end)
        pieces: list[str] = []
        while at < len(text) and not self.done:
            at = self._string(text, at, pieces) if self._inside else self._bare(text, at, pieces)
        return self._give(pieces, text[at:], None)

    def _give(self, pieces: list[str], text: str, end: re.Match[str] | None) -> tuple[str, str]:
        part = "".join(pieces)
        self._parts.append(part)
        if end:
            return part, text[end.start() :]
        return part, text if self.done else ""

    def _bare(self, text: str, at: int, pieces: list[str]) -> int:
        mark = _OUTSIDE.search(text, at)
        end = mark.end() if mark else len(text)
        pieces.append(text[at:end])
        if mark:
            if mark.group() == '"':
                self._inside = True
            else:
                self._depth += 1 if mark.group() in "{[" else -1
                self.done = self._depth <= 0
        return end

    def _string(self, text: str, at: int, pieces: list[str]) -> int:
        if self._escape:
            self._escape = False
            pieces.append(escaped(text[at]) if text[at] < " " else text[at])
            return at + 1
        mark = _INSIDE.search(text, at)
        end = mark.start() if mark else len(text)
        pieces.append(text[at:end])
        if not mark:
            return end
        if mark.group() < " ":
            pieces.append(escaped(mark.group()))
        else:
            pieces.append(mark.group())
            self._escape = mark.group() == "\\"
            if mark.group() == '"':
                self._inside = False
                self.done = self._depth == 0
        return end + 1

    def finish(self) -> None:
        """No more text comes: what was a number or a word so far is one."""
        self.done = self.done or self._plain

    @property
    def text(self) -> str:
        """The value so far."""
        return "".join(self._parts)

    @property
    def inside(self) -> bool:
        """Whether what comes next belongs to a string."""
        return self._inside

    @property
    def sound(self) -> bool:
        """Whether it is done and valid JSON."""
        return self.done and _value(self.text) is not _NOTHING

    @property
    def value(self) -> Any:
        """What it says; a ValueError if it is not valid JSON."""
        return loaded(self.text)
