"""What the front process writes to stderr: lines of requests, and the start-up lines.

A request has one when it begins, some while a long prompt runs, and one when it ends.

Nothing that a client sent can begin a line of its own: every message is one line, with control
characters written as escapes, and what follows it (a traceback) is indented. Prompts are written
only with `--log-prompts`.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

import msgspec
from msgspec import UNSET

from bushel.core.load_progress import LoadProgress
from bushel.core.status import (
    CacheStatus,
    EngineStatus,
    MemoryStatus,
    SpeculationStatus,
    attention_in_words,
)
from bushel.server.observability.log_queue import LogQueue
from bushel.server.observability.recent_lines import RecentLine
from bushel.server.observability.request_record import Record
from bushel.server.options import ServerOptions

LEVELS = ("debug", "info", "warning", "error", "critical")
_SHOWN_STRING, _SHOWN_PROMPT = 500, 4000  # characters; a picture is megabytes of them
_SHOWN_VALUES = 1000  # of a request; more than that many characters can show
_BARE = re.compile(r"[\w.:/@+-]+")

log = logging.getLogger("bushel")
_requests = logging.getLogger("bushel.request")
_progress = logging.getLogger("bushel.progress")  # of requests that have not ended
_prompts = logging.getLogger("bushel.prompt")


def one_line(text: str, most: int | None = None) -> str:
    """What cannot be seen becomes an escape, and what is too long is cut."""
    if most is not None and len(text) > most:
        text = text[:most] + "…"
    if text.isprintable():
        return text
    shown = (
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    return "".join(shown)


def _word(text: str) -> str:
    """As one word: an id that a client chose must not read like further fields."""
    return text if _BARE.fullmatch(text) else json.dumps(one_line(text, 128))


# -- how lines look ------------------------------------------------------------------------


def _behind(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """The lines of a traceback, if the record has one."""
    text = formatter.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
    return [one_line(line) for line in text.splitlines()]


class Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        ours = record.name.split(".")[0] == "bushel"
        message = one_line(record.getMessage() if ours else f"{record.name}: {record.getMessage()}")
        head = f"{at} {record.levelname:<7} {message}"
        return "\n    ".join([head, *_behind(self, record)])


class Json(logging.Formatter):
    """An object per line, with the same keys for the same kind of line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if behind := _behind(self, record):
            line["traceback"] = behind
        # ASCII, because U+2028 and U+0085 end a line for some readers.
        return json.dumps(line, default=str)


_queue: LogQueue | None = None
_DRAIN = 2.0  # seconds for what waits to be written when the process ends


def setup(options: ServerOptions, stream: TextIO | None = None) -> None:
    """From here on everything is logged to `stream` (stderr). Calling it again replaces that."""
    global _queue
    finish()
    _queue = LogQueue(stream or sys.stderr)
    _queue.setFormatter(Json() if options.log_json else Plain())
    logging.basicConfig(handlers=[_queue], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    if stream is None:
        _log_faults()
    log.setLevel(options.log_level.upper())
    # Asked for by a flag of its own, so it does not depend on the level.
    _prompts.setLevel(logging.DEBUG if options.log_prompts else logging.CRITICAL + 1)
    # A line per connection; `finished` says more.
    logging.getLogger("uvicorn.access").disabled = True


@atexit.register
def drain(seconds: float = _DRAIN) -> None:
    """Wait until what was logged is written; for so long, if nobody reads it."""
    if _queue is not None:
        _queue.drain(seconds)


def finish() -> None:
    """Once everything is written, nothing more is. It stays the log's handler, since Python itself
    would write what is logged later, by a thread that reads the last words of a child.
    """
    global _queue
    drain()
    if _queue is not None:
        _queue.close()
        _queue = None


def complain(text: str) -> None:
    """A last word to stderr, behind what was logged."""
    if _queue is None:
        print(text, file=sys.stderr)
    else:
        _queue.say(text)


def show(text: str) -> None:
    """On a terminal, what goes on meanwhile, until the next line or text."""
    if _queue is not None:
        _queue.show(text)


def load_progress(model: str, who: str) -> LoadProgress:
    """For whoever hears how much of a model's weights is loaded."""

    def tell(text: str) -> None:
        log.info("%s: %s", who, text)

    terminal = _queue is not None and _queue.terminal
    return LoadProgress(model, show, tell, shown=terminal)


def dropped() -> int:
    """Lines that nobody read in time."""
    return 0 if _queue is None else _queue.dropped


def recent(after: int) -> list[RecentLine]:
    """The last lines, behind the one of that number."""
    return [] if _queue is None else _queue.recent.after(after)


def _log_faults() -> None:
    """What Python itself would write to stderr, and wait there."""

    def died(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.critical("ended by a fault of its own", exc_info=(kind, error, trace))

    def thread_died(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_value is not None:
            fault = (failure.exc_type, failure.exc_value, failure.exc_traceback)
            log.error("a thread ended by a fault", exc_info=fault)

    def unraisable(failure: sys.UnraisableHookArgs) -> None:
        log.error(
            "%s",
            failure.err_msg or "an exception that nobody could take",
            exc_info=failure.exc_value,
        )

    sys.excepthook, threading.excepthook, sys.unraisablehook = died, thread_died, unraisable


def relay(who: str, level: int, text: str) -> None:
    """A line of a child's log; what follows its first line is a traceback."""
    head, _, rest = text.partition("\n")
    if log.isEnabledFor(level):
        record = log.makeRecord(log.name, level, "", 0, "%s: %s", (who, head), None)
        record.exc_text = rest or None
        log.handle(record)


# -- requests ------------------------------------------------------------------------------


def _seconds(start: float, end: float | None) -> float | None:
    return None if end is None else round(end - start, 4)


def fields(record: Record) -> dict[str, Any]:
    """A finished request as plain values; None: it never came to that."""
    return {
        "id": record.id,
        "api": record.api,
        "model": record.model,
        "status": record.status,
        "stream": record.stream,
        "choices": record.choices,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "drafted_tokens": record.drafted_tokens,
        "accepted_tokens": record.accepted_tokens,
        "hit": record.hit,
        "why": record.why,
        "completion_tokens": record.completion_tokens,
        "first_token_seconds": _seconds(record.arrived, record.first_token),
        "tokens_per_second": None if record.rate is None else round(record.rate, 2),
        "total_seconds": _seconds(record.arrived, record.finished),
        "largest_gap_seconds": round(record.largest_gap, 4),
        "finish_reasons": list(record.finish_reasons),
        "error": record.error,
        "restarts": record.restarts,
    }


def _ending(record: Record) -> str:
    if record.status == 499:
        return "the client went away"
    if record.error is not None or record.status >= 400:
        return f"error {record.status} {_word(record.error or 'unknown')}"
    if not record.choices:
        return "counted"
    counts = Counter(record.finish_reasons)
    return (
        " ".join(reason if n == 1 else f"{n}x{reason}" for reason, n in counts.items())
        or "unfinished"
    )


def _cached(record: Record) -> str:
    """What was reused; or why nothing was, unless that is so for every request."""
    if record.hit:
        return f" ({record.cached_tokens} cached, {record.hit})"
    telling = record.why and record.reason != "off"
    return f" (none cached: {record.why})" if telling else ""


def line(record: Record) -> str:
    """A finished request for a person to read."""
    read = f"{record.prompt_tokens} tokens in{_cached(record)}"
    parts = [read, f"{record.completion_tokens} out"]
    if record.first_token is not None:
        parts.append(f"first after {record.first_token - record.arrived:.2f} s")
    if record.rate is not None:
        parts.append(f"{record.rate:.1f} tokens/s")
    if record.finished is not None:
        parts.append(f"{record.finished - record.arrived:.2f} s in all")
    if record.restarts:
        parts.append(f"survived {record.restarts} restarts")
    parts.append(_ending(record))
    return f"{_word(record.id)} {record.api} {_word(record.model)}: {', '.join(parts)}"


def started(record: Record) -> None:
    """Its prompt begins to run."""
    if not record.part and _progress.isEnabledFor(logging.INFO):
        words = f"begins, {record.prompt_tokens} tokens in{_cached(record)}"
        _tell(record, words, {"cached_tokens": record.cached_tokens})


def started_texts(record: Record, count: int) -> None:
    """The first of its texts are on their way."""
    if _progress.isEnabledFor(logging.INFO):
        _tell(record, f"begins, {count} text{'' if count == 1 else 's'}", {"texts": count})


def prefilling(record: Record, done: int, now: float) -> None:
    """Its prompt has been running for a while."""
    if not record.part and _progress.isEnabledFor(logging.INFO):
        words = f"{done} of {record.prompt_tokens} tokens in, after {now - record.arrived:.0f} s"
        _tell(record, words, {"prefilled_tokens": done})


def _tell(record: Record, words: str, more: Mapping[str, Any]) -> None:
    about = {"id": record.id, "api": record.api, "model": record.model}
    fields = {**about, "prompt_tokens": record.prompt_tokens, **more}
    head = f"{_word(record.id)} {record.api} {_word(record.model)}"
    _progress.info("%s: %s", head, words, extra={"fields": fields})


def finished(record: Record) -> None:
    """One line; a warning where the fault is the server's."""
    level = logging.WARNING if record.status >= 500 else logging.INFO
    if not record.part and _requests.isEnabledFor(level):
        _requests.log(level, "%s", line(record), extra={"fields": fields(record)})


class _Shortened:
    """A copy that shows no more than so many values, and the beginnings of long strings."""

    def __init__(self, most: int = _SHOWN_VALUES):
        self._left = most

    def of(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            return "…"
        if isinstance(value, str):
            return value if len(value) <= _SHOWN_STRING else value[:_SHOWN_STRING] + "…"
        if isinstance(value, msgspec.Raw):  # encoded already, since it is large
            return f"… ({len(memoryview(value))} bytes)"
        if isinstance(value, Mapping):
            items = itertools.islice(value.items(), self._left + 1)
            return {str(key)[:_SHOWN_STRING]: self.of(member) for key, member in items}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.of(item) for item in itertools.islice(value, self._left + 1)]
        return value


def prompt(id: str, request: Mapping[str, Any]) -> None:
    """What a client sent, if `--log-prompts` says so; it costs nothing otherwise."""
    if _prompts.isEnabledFor(logging.DEBUG):
        text = json.dumps(_Shortened().of(request), ensure_ascii=False, default=str)
        shown = one_line(text, _SHOWN_PROMPT)
        _prompts.debug("%s sent %s", _word(id), shown, extra={"fields": {"id": id}})


# -- start-up ------------------------------------------------------------------------------


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"


def address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _model_line(options: ServerOptions, names: Sequence[str], context: int | None) -> str:
    parts = [f"Model: {names[0]}"]
    if options.engine.model not in names:
        parts.append(f"from {options.engine.model}")
    if len(names) > 1:
        parts.append(f"also as {', '.join(names[1:])}")
    if context is not None:
        parts.append(f"context {context} tokens")
    return ", ".join(parts)


def _lane_line(options: ServerOptions, status: EngineStatus) -> str:
    if status.lane == "single":
        return f"Lane: single, one reply at a time, because {status.lane_reason}"
    engine = options.engine
    routes = attention_in_words(status.attention)
    return (
        f"Lane: batch, up to {engine.max_batch} replies together"
        f"{f' ({routes})' if routes else ''}, "
        f"prompts in chunks of up to {engine.prefill_chunk} tokens"
    )


def _memory_line(memory: MemoryStatus) -> str:
    """The plan of an engine that has nothing to do: `promised_bytes` is what it always needs."""
    limit, weights, promised = memory.limit_bytes, memory.weights_bytes, memory.promised_bytes
    if limit is UNSET or weights is UNSET:
        return "Memory: no limit"
    idle = weights if promised is UNSET else max(weights, promised)
    return (
        f"Memory: {_gb(limit)} may be used: {_gb(weights)} weights, "
        f"{_gb(idle - weights)} to run a prompt, {_gb(max(0, limit - idle))} for requests"
    )


def _cache_line(options: ServerOptions, cache: CacheStatus) -> str:
    if not cache.on or cache.limit_bytes is UNSET:
        return f"Cache: off, because {cache.why or 'nothing is known of it'}"
    parts = [f"Cache: up to {_gb(cache.limit_bytes)} of that for what prompts have in common"]
    engine = options.engine
    if engine.cache_kv_bits is not None:
        parts.append(f"in {engine.cache_kv_bits} bits")
    if engine.cache_dir is not None:
        limit = "" if engine.cache_disk is None else f"up to {_gb(engine.cache_disk)} "
        parts.append(f"{limit}in {engine.cache_dir}")
        if cache.disk and cache.disk.off:
            parts[-1] += f" (off: {cache.disk.off})"
    return ", ".join(parts)


def _drafts_line(speculation: SpeculationStatus) -> str:
    if not speculation.drafters:
        return f"Drafts: off, because {speculation.why_off or 'nothing is known of them'}"
    return f"Drafts: {', '.join(speculation.drafters)}, as many tokens ahead as pay"


def banner(
    options: ServerOptions,
    names: Sequence[str],
    status: EngineStatus,
    *,
    context: int | None = None,
    port: int | None = None,
) -> list[str]:
    """What a person wants to know once it serves.

    names: those the model is served as, the main one first. status: the engine's, before any
    request. port: the one in use, where the option is 0.
    """
    return [
        _model_line(options, names, context),
        _lane_line(options, status),
        _memory_line(status.memory),
        _cache_line(options, status.cache),
        _drafts_line(status.speculation),
        _listening_line(options, port),
    ]


def _listening_line(options: ServerOptions, port: int | None) -> str:
    where = address(options.host, options.port if port is None else port)
    key = "; an API key is needed" if options.keys else ""
    return f"Listening on {where} (browsers, Anthropic clients), {where}/v1 (OpenAI clients){key}"


def models_banner(
    options: ServerOptions, names: Sequence[str], *, port: int | None = None
) -> list[str]:
    """The same where models come and go."""
    kept = options.keep_alive
    idle = "while there is room" if math.isinf(kept) else f"until nobody asks for {kept:g} s"
    pinned = f"; {', '.join(options.pinned)} from the start" if options.pinned else ""
    return [
        f"Models: {', '.join(names)}",
        f"Each is loaded when somebody asks for it, and stays {idle}{pinned}",
        _listening_line(options, port),
    ]


def announce(lines: Sequence[str]) -> None:
    for text in lines:
        log.info("%s", text)
