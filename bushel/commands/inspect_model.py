"""`bushel inspect MODEL`: what a checkpoint is and will need, told without loading it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bushel.core.backend import require_backend

if TYPE_CHECKING:
    from bushel.cache.layer_report import LayerReport
    from bushel.chat.inspection import Inspection

_EXAMPLES = """\
examples:
  bushel inspect mlx-community/Qwen3-4B-Instruct-2507-4bit
  bushel inspect ./my-model --rows 16 --context 32768
  bushel inspect bushel:tiny --json | jq .memory
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds it to the sub-commands of a parser, but for what every command takes."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="what a model is and how much memory it will need, without loading it",
        description="Architecture, kinds of layers, context, memory for rows and lengths, how rows "
        "share a batch, the format of tool calls and what the chat template takes. No weight is "
        "read.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--context", type=_positive, metavar="TOKENS", help="of each row; default: a few lengths"
    )
    parser.add_argument("--rows", type=_positive, help="that run together; default: 1, 8 and 32")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be one or more, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """ModelError if the checkpoint cannot be opened."""
    require_backend()
    from bushel.chat.inspection import inspect_model

    found = inspect_model(
        options.model, dtype=options.dtype, trust_remote_code=options.trust_remote_code
    )
    if options.json:
        print(json.dumps(found.as_json(options.rows, options.context), indent=2))
    else:
        print(f"{options.model}  ({found.path})")
        print("\n".join(_lines(found, found.rows(options.rows), found.lengths(options.context))))
    return 0


def _lines(found: Inspection, rows: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[str]:
    for name, value in _facts(found):
        yield f"  {name:13} {value}"
    if found.task != "generate":
        return
    yield "  memory        weights, and rows of so many tokens each, when nothing runs:"
    yield "  " + " " * 12 + "".join(f"{length:>12,}" for length in lengths)
    for count in rows:
        sizes = "".join(f"{_size(found.memory(count, length)):>12}" for length in lengths)
        yield f"  {count:>8} {'row ' if count == 1 else 'rows'}{sizes}"
    yield "                A prompt on its way takes some more: see --prefill-chunk."


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    kind = f"{found.model_type}, {_count(found.parameters)} parameters"
    kind += f", {found.quantization}" if found.quantization else ""
    yield "architecture", f"{kind}{', sees pictures' if found.sees else ''}"
    if found.no_pictures:
        yield "pictures", f"not taken: {found.no_pictures}"
    if found.task != "generate":
        yield "made for", found.task
    yield "weights", f"{_size(found.disk)} on disk, {_size(found.weights)} as {found.dtype}"
    yield "context", f"{found.context:,} tokens" if found.context else "the config does not say"
    if found.layers:
        yield "layers", ", ".join(f"{count} {name}" for name, count in found.layers.items())
        kept = f"{_size(found.row_token)} a token" if found.row_token else "nothing that grows"
        more = f", and {_size(found.row_fixed)} at most beside" if found.row_fixed else ""
        yield "a row keeps", kept + more
    for each in found.states:
        yield "state", _state(each)
    if found.window:
        yield "window", f"{found.window:,} tokens"
    yield "batching", found.batching
    yield "prefixes", f"reused: {found.prefixes}"
    if found.task == "generate":
        yield "tool calls", found.tools or "no format"
        yield "thinking", found.thinking or "no"
        yield "template", _template(found.template)
    if found.sampling:
        settings = ", ".join(f"{name} {value}" for name, value in found.sampling.items())
        yield "defaults", settings


def _state(each: LayerReport) -> str:
    batch = "shares a batch" if each.batches else "shares no batch"
    kept = f"kept {each.kept}" if each.kept else "not kept"
    needs = f"; needs {each.needs}" if each.needs else ""
    return f"{each.state} in {len(each.layers)} layers, {each.kind}: {batch}, {kept}{needs}"


def _template(can: dict[str, Any]) -> str:
    if not can:
        return "none: chat is refused"
    if "error" in can:
        return str(can["error"])
    said = [
        "system messages" if can["system"] else "no system messages",
        "tools" if can["tools"] else "no tools",
        *(["parallel calls"] if can["parallel_calls"] else []),
        *([f"images of {' and '.join(can['images'])}"] if can["images"] else []),
        *([f"thinking by {can['thinking']}"] if can["thinking"] else []),
        *([f"effort {', '.join(can['effort'])}"] if can["effort"] else []),
    ]
    return ", ".join(said)


def _count(number: int) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,}"


def _size(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
