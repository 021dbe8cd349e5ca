"""What a reply is held to, by all the names that clients of OpenAI's and of other servers have.

    response_format                          OpenAI; with a schema beside json_object, llama.cpp
    guided_*, guided_decoding                vLLM, older
    structured_outputs                       vLLM
    grammar, json_schema                     llama.cpp
    regex, ebnf, structural_tag              SGLang

A request may name one form. Naming none, with null or an empty object, says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bushel.chat.response_format import shape_for
from bushel.core.conversation import Shape, StructuralTag
from bushel.server.api.descriptions import about
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Flag, Hint, Prose, Unsupported
from bushel.server.api.shared_fields import FORM, IGNORED, SCHEMA_NAME, SCHEMA_STRICT
from bushel.server.errors import ApiError
from bushel.server.http.json_decode import decode
from bushel.server.options import Limits

HELD_TO_SCHEMA = about("A JSON schema, or one as text, that the reply must match.")
HELD_TO_REGEX = about("A regular expression that the whole reply must match.")
HELD_TO_CHOICE = about("Texts of which the reply must be one.")
HELD_TO_GRAMMAR = about("A grammar in GBNF, or in Lark's notation, that the reply must follow.")
HELD_TO_TAGS = about(
    "Free text in which some words begin what must match a JSON schema: an object, or one as text, "
    "with structures (begin, schema, end) and triggers."
)

Alternatives = Annotated[list[Prose], Field(min_length=1, max_length=1024, fail_fast=True)]
SchemaOrText = dict[str, Any] | Prose
TagsOrText = dict[str, Any] | Prose


class JsonSchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: Annotated[str | None, SCHEMA_NAME] = None
    description: Annotated[str | None, IGNORED] = None
    schema_: dict[str, Any] | None = Field(
        None,
        alias="schema",
        description="A JSON schema that the reply must match (default: any JSON object).",
    )
    strict: Annotated[bool | None, SCHEMA_STRICT] = None


class ResponseFormat(BaseModel):
    model_config = ConfigDict(
        populate_by_name=True,
        json_schema_extra={
            "anyOf": [
                {"properties": {"type": {"enum": ["text", "json_object"]}}},
                {
                    "properties": {"json_schema": {"type": "object"}},
                    "required": ["json_schema"],
                },
                {"properties": {"schema": {"type": "object"}}, "required": ["schema"]},
                {
                    "properties": {
                        "structures": {"type": "array"},
                        "triggers": {"type": "array"},
                    },
                    "required": ["structures", "triggers"],
                },
            ]
        },
    )

    type: Literal["text", "json_object", "json_schema", "structural_tag"] = Field(
        description="Any text, any JSON object, JSON that matches a schema, or text with tags."
    )
    json_schema: JsonSchemaFormat | None = Field(
        None,
        description="The schema: needed with the type json_schema, obeyed with json_object, "
        "ignored with text.",
    )
    schema_: dict[str, Any] | None = Field(
        None, alias="schema", description="The same, as clients of llama.cpp write it."
    )
    structures: list[dict[str, Any]] | None = Field(
        None, description="Of structural tags: what each begins and ends with, and its schema."
    )
    triggers: list[str] | None = Field(
        None, description="Of structural tags: texts with which they begin."
    )
    format: Unsupported = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None and self.schema_ is None:
            raise InvalidField(".json_schema", "is missing")
        return self

    @property
    def shape(self) -> Shape | None:
        if self.type == "structural_tag":
            given = {"structures": self.structures, "triggers": self.triggers}
            return {"structural_tag": _tag("response_format", given)}
        inner = self.json_schema.schema_ if self.json_schema else None
        return shape_for(self.type, self.schema_ if inner is None else inner)


class StructuredOutputs(BaseModel):
    """As vLLM's clients ask for it."""

    json_: Annotated[SchemaOrText | None, HELD_TO_SCHEMA] = Field(None, alias="json")
    json_object: Flag | None = Field(None, description="Whether the reply must be a JSON object.")
    regex: Annotated[Prose | None, HELD_TO_REGEX] = None
    choice: Annotated[Alternatives | None, HELD_TO_CHOICE] = None
    grammar: Annotated[Prose | None, HELD_TO_GRAMMAR] = None
    structural_tag: Annotated[TagsOrText | None, HELD_TO_TAGS] = None
    whitespace_pattern: Unsupported = None
    backend: Annotated[Hint | None, IGNORED] = None
    disable_fallback: Annotated[Flag | None, IGNORED] = None
    disable_any_whitespace: Annotated[Flag | None, IGNORED] = None
    disable_additional_properties: Unsupported = None

    def shapes(self, where: str) -> Iterator[Shape]:
        if self.json_ is not None:
            yield {"json_schema": _schema(f"{where}.json", self.json_)}
        if self.json_object:
            yield {"json_object": True}
        if self.regex is not None:
            yield {"regex": self.regex}
        if self.choice is not None:
            yield {"choice": self.choice}
        if self.grammar is not None:
            yield {"grammar": self.grammar}
        if self.structural_tag is not None:
            yield {"structural_tag": _tag(f"{where}.structural_tag", self.structural_tag)}


_NEWER = "What the reply is held to, in vLLM's {} form."


class StructuredOutputFields(BaseModel):
    """Of a chat and of a completion."""

    response_format: Annotated[ResponseFormat | None, FORM] = None
    guided_choice: Annotated[Alternatives | None, HELD_TO_CHOICE] = None
    guided_grammar: Annotated[Prose | None, HELD_TO_GRAMMAR] = None
    guided_json: Annotated[SchemaOrText | None, HELD_TO_SCHEMA] = None
    guided_regex: Annotated[Prose | None, HELD_TO_REGEX] = None
    guided_decoding: StructuredOutputs | None = Field(None, description=_NEWER.format("second"))
    structured_outputs: StructuredOutputs | None = Field(None, description=_NEWER.format("newest"))
    grammar: Annotated[Prose | None, HELD_TO_GRAMMAR] = None
    json_schema: Annotated[SchemaOrText | None, HELD_TO_SCHEMA] = None
    regex: Annotated[Prose | None, HELD_TO_REGEX] = None
    ebnf: Annotated[Prose | None, HELD_TO_GRAMMAR] = None
    structural_tag: Annotated[TagsOrText | None, HELD_TO_TAGS] = None
    guided_decoding_backend: Annotated[Hint | None, IGNORED] = None
    guided_whitespace_pattern: Unsupported = None

    @property
    def shape(self) -> Shape | None:
        """InvalidField for what is none; ApiError if there are several."""
        shapes = list(self._shapes())
        if len(shapes) > 1:
            message = "A reply can be held to one form only; the request names several."
            raise ApiError(400, message, param="response_format")
        return shapes[0] if shapes else None

    def _shapes(self) -> Iterator[Shape]:
        if self.response_format is not None and (shape := self.response_format.shape):
            yield shape
        for name in ("guided_decoding", "structured_outputs"):
            if (outputs := getattr(self, name)) is not None:
                yield from outputs.shapes(name)
        for name in ("guided_json", "json_schema"):
            if (schema := getattr(self, name)) is not None:
                yield {"json_schema": _schema(name, schema)}
        for name in ("guided_regex", "regex"):
            if (regex := getattr(self, name)) is not None:
                yield {"regex": regex}
        for name in ("guided_grammar", "grammar", "ebnf"):
            if grammar := getattr(self, name):
                yield {"grammar": grammar}
        if self.guided_choice is not None:
            yield {"choice": self.guided_choice}
        if self.structural_tag is not None:
            yield {"structural_tag": _tag("structural_tag", self.structural_tag)}


def _schema(where: str, schema: SchemaOrText) -> dict[str, Any]:
    return _object(where, schema, "must be a JSON schema")


def _tag(where: str, given: TagsOrText) -> StructuralTag:
    rule = "must have structures (begin, schema, end) and triggers"
    tag = _object(where, given, rule)
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list):
        raise InvalidField(where, rule, code=None)
    return {"structures": structures, "triggers": triggers}


def _object(where: str, given: dict[str, Any] | str, rule: str) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    try:
        parsed = decode(given.encode(), Limits())
    except ApiError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidField(where, rule, code=None)
    return parsed
