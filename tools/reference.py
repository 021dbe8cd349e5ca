"""`python -m tools.reference`: `docs/reference.md`, every setting, endpoint, field and metric.

Made from the code that reads them. A test says when the page is older than the code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core.options import EngineOptions
from bushel.server.api.descriptions import KIND
from bushel.server.app import create_app
from bushel.server.command import flags
from bushel.server.command.settings import own_flags, variable
from bushel.server.observability.metrics import Metrics
from bushel.server.options import ServerOptions
from bushel.server.service.names import names_of
from bushel.server.service.service import Service
from bushel.server.service.services import Services
from tools.field_kinds import EMPTY, kind_of

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
_JSON = "application/json"
_FIELD = ("field", "type", "default", "kind", "what it does")
_DEFAULT = re.compile(r"(?P<text>.*) \(default: (?P<default>.*)\)\.", re.DOTALL)
_REF = re.compile(r'"#/components/schemas/([^"]+)"')
_METHODS = ("get", "post", "delete", "put", "patch")
# Those of the process differ between systems.
_FOREIGN = ("process_", "python_")
_VARIABLES = {
    "BUSHEL_CONFIG": "a file with settings, instead of ~/.config/bushel/bushel.toml",
    "BUSHEL_API_KEY": "a key that clients must send: --api-key, unseen by others",
    "BUSHEL_OPERATOR_KEY": "an operator's key: --operator-key, unseen by others",
    "BUSHEL_DEVICE": "cpu computes there although MLX has a GPU",
    "BUSHEL_RUNTIME_DIR": "where servers of this machine say where they are and what they use",
    "BUSHEL_URL": "the server that `bushel chat`, `run`, `launch` and `bench` talk to",
}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


# -- settings ------------------------------------------------------------------------------


def serve_parser() -> argparse.ArgumentParser:
    return flags.add(argparse.ArgumentParser(prog="bushel").add_subparsers())


def _settings() -> Iterator[str]:
    parser = serve_parser()
    own = {action: name for name, action in own_flags(parser).items()}
    for group in parser._action_groups:
        found = [(own[action], action) for action in group._group_actions if action in own]
        if not found:
            continue
        yield f"\n### {group.title}\n"
        rows = []
        for name, action in found:
            shown = f"`--{name}`" if action.option_strings else f"`{action.metavar}`"
            if action.option_strings and action.metavar and action.nargs != 0:
                shown = f"`--{name} {action.metavar}`"
            rows.append((shown, f"`{variable(name)}`", (action.help or "") % {}))
        yield from _table(("flag", "variable", "what it does"), rows)


def _formats() -> Iterator[str]:
    rows = (("--tool-format", FORMATS), ("--thinking-format", THINKING_FORMATS))
    named = [
        (f"`{flag}`", ", ".join(f"`{name}`" for name in (*sorted(known), "none")))
        for flag, known in rows
    ]
    yield from _table(("flag", "values"), named)


# -- endpoints -----------------------------------------------------------------------------


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return f"[{_name(schema)}](#{_name(schema).lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        if schema["enum"] == EMPTY:
            return "empty"
        return " or ".join(f"`{json.dumps(one)}`" for one in schema["enum"] if one is not None)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = dict.fromkeys(_type(one) for one in schema[several] if one != {"type": "null"})
            return " or ".join(kinds)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind = schema.get("type", "anything")
    each = kind if isinstance(kind, list) else [kind]
    return " or ".join(one for one in each if one != "null" or each == ["null"]) + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    if low is None or high is None:
        return "" if low is None else f" from {low:.15g}"
    above = " above" if "exclusiveMinimum" in schema else ""
    return f"{above} {_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    """Large bounds are powers of two, or the last number before one."""
    if abs(value) <= 1 << 20:
        return f"{value:g}"
    whole = abs(int(value))
    power, last = (whole + 1).bit_length() - 1, whole & (whole + 1) == 0
    text = f"2^{power}{' - 1' if last else ''}"
    if value >= 0:
        return text
    return f"-({text})" if last else f"-{text}"


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _row(name: str, field: Mapping[str, Any], needed: bool) -> tuple[str, str, str, str, str]:
    """Of a table of fields; what a description says of the default has a column of its own."""
    text = str(field.get("description", ""))
    default = "" if (value := _default(field)) is None else f"`{json.dumps(value)}`"
    if told := _DEFAULT.fullmatch(text):
        text, default = f"{told['text']}.", told["default"]
    return f"`{name}`", _type(field), "needed" if needed else default, kind_of(field), text


def _default(field: Mapping[str, Any]) -> Any:
    return field.get("default", field.get("schema", {}).get("default"))


def _rows(schema: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    needed = schema.get("required", ())
    return [_row(name, field, name in needed) for name, field in schema["properties"].items()]


def _objects(schema: Mapping[str, Any], around: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(what it is, its schema) of the objects that are written out inside of a field, not named."""
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), schema.get("items")):
        if one is None:
            continue
        if "properties" in one:
            yield _kind(one) or around, one
            for name, field in one["properties"].items():
                yield from _objects({"anyOf": [field]}, f"{around}.{name}")
        else:
            yield from _objects(one, around)


def _kind(schema: Mapping[str, Any]) -> str:
    """What an object is known by, among others in its place."""
    for name in ("type", "role"):
        field = schema["properties"].get(name, {})
        if "const" in field or "enum" in field:
            return " or ".join(str(one) for one in field.get("enum", [field.get("const")]) if one)
    return ""


def _inside(schema: Mapping[str, Any]) -> Iterator[tuple[str, tuple[tuple[str, ...], ...]]]:
    """(field, rows of a table) for fields that hold objects; those of one kind and form once."""
    for name, field in schema.get("properties", {}).items():
        tables: dict[tuple[Any, ...], list[str]] = {}
        for kind, one in _objects({"anyOf": [field]}, name):
            kinds = tables.setdefault(tuple(row for row in _rows(one) if not _is_tag(row)), [])
            if kind not in kinds:
                kinds.append(kind)
        rows = [(", ".join(kinds), *row) for rows, kinds in tables.items() for row in rows]
        if rows:
            yield name, tuple(rows)


def _is_tag(row: tuple[str, str, str, str, str]) -> bool:
    return row[4] == KIND


def _body(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(
        operation.get("requestBody", {}).get("content", {}).get(_JSON, {}).get("schema", {})
    )


def _endpoints(document: Mapping[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    seen: dict[Any, str] = {}  # where each table of inner objects stands
    for path, methods in document["paths"].items():
        for method in (name for name in _METHODS if name in methods):
            operation = methods[method]
            yield f"\n### {method.upper()} {path}\n"
            good = next(it for status, it in operation["responses"].items() if status[0] == "2")
            reply = good.get("content", {}).get(_JSON, {})
            answer = f" Replies with {_type(reply['schema'])}." if "$ref" in str(reply) else ""
            yield f"{operation['summary']}.{answer}"
            rows = [
                _row(one["name"], {**one["schema"], **one}, one["required"])
                for one in operation.get("parameters", ())
            ]
            body = _body(operation)
            if "$ref" in body:
                rows += _rows(schemas[_name(body)])
            if rows:
                yield ""
                yield from _table(_FIELD, rows)
            here = f"{method.upper()} {path}"
            for name, inner in _inside(schemas[_name(body)]) if "$ref" in body else ():
                first = seen.setdefault((name, inner), here)
                yield f"\nInside of `{name}`: {f'as in {first}.' if first != here else ''}".rstrip()
                if first == here:
                    yield ""
                    yield from _table(("object", *_FIELD), inner)


def _mentioned(schemas: Mapping[str, Any], schema: Any) -> set[str]:
    """Names of the objects that a schema is made of, at any depth."""
    found: set[str] = set()
    waiting = set(_REF.findall(json.dumps(schema)))
    while waiting:
        found |= waiting
        waiting = set(_REF.findall(json.dumps([schemas[name] for name in waiting]))) - found
    return found


def _request_objects(document: Mapping[str, Any]) -> Iterator[str]:
    schemas, bodies = document["components"]["schemas"], _bodies(document)
    for name in sorted(_mentioned(schemas, [schemas[body] for body in bodies])):
        yield f"\n### {name}\n"
        yield from _table(_FIELD, _rows(schemas[name]))


def _reply_objects(document: Mapping[str, Any]) -> Iterator[str]:
    replies = [one["responses"] for each in document["paths"].values() for one in each.values()]
    schemas = document["components"]["schemas"]
    for name in sorted(_mentioned(schemas, replies)):
        yield f"\n### {name}\n"
        rows = [(field, kind, text) for field, kind, _, _, text in _rows(schemas[name])]
        yield from _table(("field", "type", "what it says"), rows)


def _bodies(document: Mapping[str, Any]) -> set[str]:
    operations = [one for each in document["paths"].values() for one in each.values()]
    return {_name(body) for one in operations if (body := _body(one))}


# -- the page ------------------------------------------------------------------------------


def _metrics(metrics: Metrics) -> Iterator[str]:
    found = [one for one in metrics._registry.collect() if not one.name.startswith(_FOREIGN)]
    rows = [(f"`{one.name}`", one.type, one.documentation) for one in found]
    yield from _table(("metric", "type", "what it is"), sorted(rows))


def openapi_document() -> dict[str, Any]:
    """As a server shows it at /openapi.json."""

    async def document() -> dict[str, Any]:
        options = ServerOptions(EngineOptions("bushel:tiny"))
        (names,) = names_of(options)
        return create_app(Services(Service(options, names, Metrics("bushel:tiny")))).openapi()

    return asyncio.run(document())


def _lines() -> list[str]:
    document = openapi_document()
    return [
        "# Reference",
        "",
        "Made by `python -m tools.reference` from the code that reads all this.",
        "",
        "## Settings of `bushel serve`",
        "",
        "Each is a flag, a variable, or a line of `bushel.toml` (`max-num-seqs = 8`) in",
        "`~/.config/bushel` or where `--config` says. A flag wins over a variable, and a variable",
        "over the file. Variables and lines of several words: between commas, as a list.",
        *_settings(),
        "",
        "## Formats of tool calls and reasoning",
        "",
        "By default the format is detected from the chat template. `none`: the model has none.",
        "",
        *_formats(),
        "",
        "## Other variables",
        "",
        *_table(("variable", "what it does"), [(f"`{k}`", v) for k, v in _VARIABLES.items()]),
        "",
        "## Endpoints",
        "",
        "A field of a body that is not needed may be null. Its kind says what comes of it:",
        "honoured, ignored as a hint, or refused by name with a 400 unless it is empty. Where some",
        "values of an honoured field are refused, its text says so. A field that is not named here",
        "is ignored, and the log says so once; a name that is one letter away from another is",
        "refused.",
        *_endpoints(document),
        "",
        "## Objects of requests",
        *_request_objects(document),
        "",
        "## Objects of replies",
        *_reply_objects(document),
        "",
        "## Metrics",
        "",
        "At `/metrics`, each with the label `model_name`; beside them those of the process.",
        "",
        *_metrics(Metrics("bushel:tiny")),
    ]


def page() -> str:
    return "\n".join(_lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
