"""JSON schemas of requests, as llguidance takes them.

Annotations and unknown words say nothing about a value and are left out, forms of older drafts
are written in the present one, and what cannot be held to is refused with its place in the
schema; or left out too, where nobody asked for strictness. How much of a schema is taken at all is
bounded here, before anything compiles it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bushel.core import RequestError

# Real ones stay far below: the largest tool list of a recorded agent has 96 KB and 8 levels.
MOST_BYTES = 256 << 10
MOST_DEPTH = 40
MOST_PARTS = 10_000  # schemas within a schema, and values that an enum lists
MOST_PATTERN = 2048  # characters of a regular expression
# Compiling grows with their square: 0.2 s for 500.
MOST_PROPERTIES = 500
# A multiple is found by counting remainders, which takes a state for each.
MOST_MULTIPLE = 1000

_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
_ONE = ("items", "additionalProperties")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_PLAIN = (
    *("type", "const", "enum", "$ref", "format", "pattern", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "required"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
_BEYOND = (
    *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems"),
    *("dependentRequired", "dependentSchemas", "dependencies", "propertyNames"),
    *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)
# What these say when they say nothing.
_NOTHING: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
}

_LOOKS = ("(?=", "(?!", "(?<", "\\1")  # of regular expressions, beyond what is regular

Schema = dict[str, Any]


def checked(schema: Any, param: str, where: str, *, exact: bool = True) -> Schema:
    """The schema to hold a value to. RequestError names `param` and the place below `where`.

    exact: refuse what cannot be held to, instead of leaving it out.
    """
    if schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise RequestError(
            f"{where} must be a JSON schema, which is an object.",
            code="invalid_grammar",
            param=param,
        )
    bound(schema, param, where)
    walked = _Walk(param, exact, closes=not _joins(schema)).schema(schema, where)
    assert isinstance(walked, dict)
    return walked


def bound(schema: Any, param: str, where: str) -> None:
    """Before anything else looks at it; without recursion, since it may be as deep as it likes."""
    left, parts = [(schema, 0)], 0
    while left:
        value, depth = left.pop()
        below = (
            list(value.values())
            if isinstance(value, Mapping)
            else list(value)
            if isinstance(value, list | tuple)
            else []
        )
        parts += len(below)
        if depth > MOST_DEPTH or parts > MOST_PARTS:
            what = f"nested deeper than {MOST_DEPTH} levels" if depth > MOST_DEPTH else "too large"
            raise too_complex(f"{where} is {what}", param)
        left += [(child, depth + 1) for child in below]
    if len(json.dumps(schema)) > MOST_BYTES:
        raise too_complex(f"{where} has more than {MOST_BYTES} bytes", param)


def too_complex(what: str, param: str) -> RequestError:
    return RequestError(
        f"{what}: a reply cannot be held to it. Use a simpler one.",
        code="invalid_grammar",
        param=param,
    )


def _joins(value: Any) -> bool:
    """Whether objects of several schemas are merged anywhere, so that none may be closed."""
    if isinstance(value, Mapping):
        merged = "$ref" in value and ("properties" in value or "anyOf" in value)
        return "allOf" in value or merged or any(map(_joins, value.values()))
    return isinstance(value, list) and any(map(_joins, value))


class _Walk:
    """closes: objects with properties have no others, unless they say so themselves."""

    def __init__(self, param: str, exact: bool, closes: bool):
        self._param = param
        self._exact = exact
        self._closing = closes

    def schema(self, schema: Any, where: str, *, open: bool = False) -> Schema | bool:
        """open: it is merged with what stands beside it."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise self._refused(where, "must be a schema, which is an object or true or false")
        written = _present(schema)
        merged = open or any(key in written for key in ("properties", "$ref", "items"))
        kept: Schema = {}
        for key, value in written.items():
            place = f"{where}.{key}"
            if key in _ONE:
                kept[key] = self.schema(value, place)
            elif key in _LISTS:
                inside = merged and key != "prefixItems"
                kept[key] = self._list(value, place, open=inside)
            elif key in _MAPS:
                kept[key] = self._map(value, place)
            elif key in _PLAIN:
                self._plain(key, value, place, kept)
            elif key in _BEYOND and value not in _NOTHING.get(key, ()) and self._exact:
                raise self._refused(place, "cannot be enforced")
        if self._closes(kept) and not open:
            kept["additionalProperties"] = False
        return kept

    def _closes(self, schema: Schema) -> bool:
        says = ("additionalProperties", "patternProperties", "anyOf", "oneOf", "$ref")
        silent = not any(key in schema for key in says)
        return self._closing and bool(schema.get("properties")) and silent

    def _list(self, value: Any, where: str, *, open: bool) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise self._refused(where, "must be a list of schemas")
        pairs = enumerate(value)
        return [self.schema(item, f"{where}[{at}]", open=open) for at, item in pairs]

    def _map(self, value: Any, where: str) -> Schema:
        if not isinstance(value, Mapping):
            raise self._refused(where, "must be an object whose values are schemas")
        if len(value) > MOST_PROPERTIES:
            raise too_complex(f"{where} has more than {MOST_PROPERTIES} members", self._param)
        return {str(key): self.schema(member, f"{where}.{key}") for key, member in value.items()}

    def _plain(self, key: str, value: Any, where: str, kept: Schema) -> None:
        if key == "format" and value not in _FORMATS:
            return  # an annotation, like all formats that nobody knows
        if key == "pattern" and not self._exact and any(look in str(value) for look in _LOOKS):
            return
        if key == "$ref" and not (isinstance(value, str) and value.startswith("#")):
            raise self._refused(where, f"must stay within the schema, not {str(value)[:80]!r}")
        if key == "pattern" and (not isinstance(value, str) or len(value) > MOST_PATTERN):
            raise self._refused(where, f"must be at most {MOST_PATTERN} characters of text")
        if key == "multipleOf" and not (_number(value) and 0 < value <= MOST_MULTIPLE):
            if not self._exact:
                return
            raise self._refused(where, f"cannot be enforced beyond {MOST_MULTIPLE}")
        kept[key] = value

    def _refused(self, where: str, why: str) -> RequestError:
        return RequestError(
            f"{where} {why} in a reply. Change the schema, or ask without strictness.",
            code="invalid_grammar",
            param=self._param,
        )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _present(schema: Mapping[str, Any]) -> Schema:
    """In the words of the present draft."""
    present = dict(schema)
    if isinstance(present.get("items"), list | tuple):
        present["prefixItems"] = present.pop("items")
        if "additionalItems" in present:
            present["items"] = present["additionalItems"]
    present.pop("additionalItems", None)
    for edge in ("Minimum", "Maximum"):
        key, inclusive = f"exclusive{edge}", edge.lower()
        if isinstance(present.get(key), bool) and present.pop(key) and inclusive in present:
            present[key] = present.pop(inclusive)
    return present


def rooted(inside: Any, schema: Schema) -> Schema:
    """A part of a schema as one of its own."""
    if not isinstance(inside, Mapping):
        return {} if inside else {"enum": []}
    if not _refers(inside):
        return dict(inside)
    return {**_moved(inside), "$defs": {"all": _moved(schema)}}


def _refers(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _moved(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: f"#/$defs/all{member[1:]}"
            if key == "$ref" and isinstance(member, str)
            else _moved(member)
            for key, member in value.items()
        }
    return [_moved(item) for item in value] if isinstance(value, list) else value


def resolved(schema: Any, root: Schema) -> Any:
    """Without a reference at its top; as it is if that leads nowhere."""
    for _ in range(8):
        if not (isinstance(schema, Mapping) and "$ref" in schema):
            break
        target: Any = root
        for step in str(schema["$ref"])[1:].strip("/").split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if step:
                target = target.get(step) if isinstance(target, Mapping) else None
        if target is None:
            break
        schema = target
    return schema


def listed(schema: Any) -> list[Any] | None:
    """The values of an enum or a constant."""
    if isinstance(schema, Mapping) and "const" in schema:
        return [schema["const"]]
    values = schema.get("enum") if isinstance(schema, Mapping) else None
    return values if isinstance(values, list) else None
