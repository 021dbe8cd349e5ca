"""`python -m tools.reference`: `docs/reference.md`, every setting, endpoint, field and metric.

Made from the code that reads them. A test says when the page is older than the code.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bushel.core.options import EngineOptions
from bushel.server.app import create_app
from bushel.server.command import flags
from bushel.server.command.settings import own_flags, variable
from bushel.server.observability.metrics import Metrics
from bushel.server.options import ServerOptions
from bushel.server.service.names import names_of
from bushel.server.service.service import Service
from bushel.server.service.services import Services

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
_METHODS = ("get", "post", "delete", "put", "patch")
# Those of the process differ between systems.
_FOREIGN = ("process_", "python_")
_VARIABLES = {
    "BUSHEL_CONFIG": "a file with settings, instead of ~/.config/bushel/bushel.toml",
    "BUSHEL_API_KEY": "a key that clients must send: --api-key, unseen by others",
    "BUSHEL_OPERATOR_KEY": "an operator's key: --operator-key, unseen by others",
    "BUSHEL_DEVICE": "cpu computes there although MLX has a GPU",
    "BUSHEL_RUNTIME_DIR": "where servers of this machine tell each other what memory they use",
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


# -- endpoints -----------------------------------------------------------------------------


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = dict.fromkeys(_type(one) for one in schema[several] if one != {"type": "null"})
            return " or ".join(kinds)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def _body(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    return dict(content.get("application/json", {}).get("schema", {}))


def _endpoints(document: Mapping[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method in (name for name in _METHODS if name in methods):
            operation = methods[method]
            yield f"\n### {method.upper()} {path}\n"
            yield f"{operation['summary']}."
            fields: list[tuple[str, str, str]] = [
                (f"`{one['name']}` ({one['in']})", _type(one["schema"]), _required(one["required"]))
                for one in operation.get("parameters", ())
            ]
            body = _body(operation)
            schema = schemas[_type(body)] if "$ref" in body else body
            needed = set(schema.get("required", ()))
            fields += [
                (f"`{name}`", _type(value), _required(name in needed))
                for name, value in schema.get("properties", {}).items()
            ]
            if fields:
                yield ""
                yield from _table(("field", "type", ""), fields)


def _required(needed: bool) -> str:
    return "needed" if needed else ""


# -- the page ------------------------------------------------------------------------------


def _metrics(metrics: Metrics) -> Iterator[str]:
    found = [one for one in metrics._registry.collect() if not one.name.startswith(_FOREIGN)]
    rows = [(f"`{one.name}`", one.type, one.documentation) for one in found]
    yield from _table(("metric", "type", "what it is"), sorted(rows))


async def _lines() -> list[str]:
    options = ServerOptions(EngineOptions("bushel:tiny"))
    metrics = Metrics("bushel:tiny")
    (names,) = names_of(options)
    app = create_app(Services(Service(options, names, metrics)))
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
        "## Other variables",
        "",
        *_table(("variable", "what it does"), [(f"`{k}`", v) for k, v in _VARIABLES.items()]),
        "",
        "## Endpoints",
        *_endpoints(app.openapi()),
        "",
        "## Metrics",
        "",
        "At `/metrics`, each with the label `model_name`; beside them those of the process.",
        "",
        *_metrics(metrics),
    ]


def page() -> str:
    return "\n".join(asyncio.run(_lines())) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
