"""What a server does with each field of a request: honours it, ignores it as a hint, or refuses it.

Read from the OpenAPI document, which is made of the types that check requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["honoured", "hint", "refused"]
EMPTY: list[Any] = [None, False, "", [], {}]  # of `api.fields.Unsupported`
# How their descriptions begin.
_HINTS = ("A hint", "Ignored")
_REFUSED = ("Not supported",)


@dataclass(frozen=True)
class RequestField:
    path: str  # of the route
    name: str
    kind: Kind
    schema: Mapping[str, Any]


def kind_of(field: Mapping[str, Any]) -> Kind:
    told = str(field.get("description", ""))
    if told.startswith(_REFUSED):
        return "refused"
    return "hint" if told.startswith(_HINTS) else "honoured"


def request_fields(document: Mapping[str, Any]) -> Iterator[RequestField]:
    """Those of every JSON body that is posted."""
    for path, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        name = str(content.get("application/json", {}).get("schema", {}).get("$ref", ""))
        schema = document["components"]["schemas"].get(name.rpartition("/")[2], {})
        for field, described in schema.get("properties", {}).items():
            yield RequestField(path, field, kind_of(described), described)
