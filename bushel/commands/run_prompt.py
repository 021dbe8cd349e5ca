"""`bushel run`: one answer on standard output, for scripts and pipes."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bushel.commands import sampling_flags
from bushel.commands.model_connection import ModelConnection, connect
from bushel.commands.pictures import data_url, path_of, take_pictures
from bushel.commands.reply_stream import StreamedReply
from bushel.commands.server_client import ServerError
from bushel.commands.terminal.markdown_stream import MarkdownStream
from bushel.commands.terminal.terminal_text import Ink, one_line
from bushel.core import BushelError
from bushel.core.terminal_line import TerminalLine, is_terminal

_EXAMPLES = """\
examples:
  bushel run "Why is the sky blue?"
  cat notes.txt | bushel run "Summarise this in three sentences"
  git diff | bushel run "Write a commit message" --max-tokens 80
  bushel run "What is in it?" --image photo.jpg
  bushel run "A town and its river" --schema town.json --json | jq -r .text

exit codes: 0 an answer, 1 the request failed, 2 it could not be asked, 130 Ctrl-C
"""


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="one answer on standard output, for scripts and pipes",
        description="Asks a model once and writes its answer. What is piped in stands below the "
        "prompt, and the path of a picture in the prompt sends the picture. A server that runs "
        "answers, or one that is started for it and ends with it.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("prompt", metavar="PROMPT", nargs="*", help="what to ask; words are joined")
    parser.add_argument(
        "--model", "-m", metavar="MODEL", help="a served name, a directory or a hub id"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object at the end: text, reasoning, tool_calls, finish_reason, model, usage "
        "and timings",
    )
    parser.add_argument(
        "--schema", metavar="FILE", help="a JSON schema; the answer is JSON that follows it"
    )
    sampling_flags.add(parser)
    parser.set_defaults(run=run)


def take_words(options: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Words of the prompt behind flags: argparse leaves them over. Returns what is left then."""
    options.prompt += [word for word in rest if not word.startswith("-")]
    return [word for word in rest if word.startswith("-")]


def run(options: argparse.Namespace) -> int:
    """Returns the exit code; BushelError if it cannot be asked."""
    prompt, pictures = take_pictures(" ".join(options.prompt))
    for path in pictures:
        _tell(f"{path} goes with your question.")
    options.image = [*options.image, *map(str, pictures)]
    return answer_once(options, _with_what_is_piped(prompt), options.model)


def answer_once(options: argparse.Namespace, prompt: str, model: str | None) -> int:
    """options: with the flags of `sampling_flags`; json and schema as `run` has them."""
    body = {**_question(options, prompt), **sampling_flags.settings(options)}
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        connection = connect(
            model, url=options.url, key=options.api_key, tell=_tell, choose=_refuse_to_choose
        )
        try:
            return _answer(connection, body, as_json=getattr(options, "json", False))
        finally:
            connection.close()
    except ServerError as error:
        _tell(str(error))
        return 1


def _with_what_is_piped(prompt: str) -> str:
    parts = [prompt.strip(), "" if is_terminal(sys.stdin) else piped_text()]
    prompt = "\n\n".join(part for part in parts if part)
    if not prompt:
        raise BushelError('There is nothing to ask: bushel run "Why is the sky blue?"')
    return prompt


def piped_text() -> str:
    """All of standard input."""
    if sys.stdin is None:
        return ""
    with contextlib.suppress(OSError):
        return sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    return ""


def _question(options: argparse.Namespace, prompt: str) -> dict[str, Any]:
    images = [
        {"type": "image_url", "image_url": {"url": data_url(path_of(path))}}
        for path in options.image
    ]
    content = [*images, {"type": "text", "text": prompt}] if images else prompt
    system = [{"role": "system", "content": options.system}] if options.system else []
    body: dict[str, Any] = {"messages": [*system, {"role": "user", "content": content}]}
    if schema := getattr(options, "schema", None):
        form = {"name": "answer", "schema": _schema(Path(schema)), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def _schema(path: Path) -> Any:
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BushelError(f"{path} holds no JSON schema: {reason}.") from None
    if not isinstance(schema, dict | bool):
        raise BushelError(f"{path} holds no JSON schema: it is no object.")
    return schema


def _refuse_to_choose(models: Sequence[str]) -> str:
    raise BushelError(f"Several models are here: say --model, one of {', '.join(models)}.")


def _answer(connection: ModelConnection, body: dict[str, Any], *, as_json: bool) -> int:
    reply = StreamedReply()
    shown = MarkdownStream(_write, Ink(sys.stdout), lambda: shutil.get_terminal_size().columns)
    on_terminal = is_terminal(sys.stdout)
    line = TerminalLine()
    asked = {**body, "model": connection.model}
    with contextlib.closing(reply.stream(connection.client, asked)) as parts:
        for kind, part in parts:
            if kind == "thought":
                line.show(f"thinking: {one_line(reply.thoughts[-200:])}")
            elif kind == "text" and not as_json:
                line.show("")
                # Into a pipe or a file goes exactly what the model wrote.
                (shown.feed if on_terminal else _write)(part)
    line.show("")
    if as_json:
        reply.ask_figures(connection.client)
        print(json.dumps(_as_json(reply), indent=2, ensure_ascii=False))
    else:
        shown.finish()
        if not reply.text.endswith("\n") and not (on_terminal and Ink(sys.stdout).on):
            _write("\n")
    if reply.finish_reason == "length":
        _tell("the answer ends here because of its limit of tokens: see --max-tokens.")
    return 0


def _as_json(reply: StreamedReply) -> dict[str, Any]:
    return {
        "model": reply.model,
        "text": reply.text,
        "reasoning": reply.thoughts or None,
        "tool_calls": [vars(call) for call in reply.calls],
        "finish_reason": reply.finish_reason,
        "usage": reply.usage,
        "timings": {
            "first_token_seconds": reply.known.get("first_token_seconds") or reply.first,
            "total_seconds": reply.seconds,
            "tokens_per_second": reply.rate,
        },
    }


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _tell(text: str) -> None:
    print(f"bushel: {one_line(text)}", file=sys.stderr, flush=True)
