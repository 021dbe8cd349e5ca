"""A worker that prepares requests: templates, tokenizers, pictures and processors.

It is a process of its own so that none of this runs on the front's event loop or in the engine,
and so that it can be killed when a request is more than it can take. One job at a time.

Started by the front through `core.child_process`, with the descriptor of its socket.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import resource
import signal
import sys
from pathlib import Path

from bushel.chat.infill_prompt import infill_ends
from bushel.chat.prompt import PLAIN, prepare
from bushel.chat.prompt_length import require_countable
from bushel.chat.reply.format_detection import reply_format_of
from bushel.core import BushelError, Prepared, ReplyFormat
from bushel.core.child_link import Link
from bushel.core.options import ChatOptions, ModelInfo
from bushel.core.wire import (
    TOO_MUCH,
    Check,
    Decode,
    DecodedText,
    Encode,
    Failed,
    Made,
    Open,
    Opened,
    Prepare,
    Refused,
    ToWorker,
    WireMessage,
    pack,
)
from bushel.models.load import open_host
from bushel.models.preparer import Preparer
from bushel.text.grammar_compiler import prove

log = logging.getLogger(__name__)


def model_info_of(host: Preparer, chat_options: ChatOptions = PLAIN) -> ModelInfo:
    return ModelInfo(
        name=host.name,
        path=str(host.path),
        vocab=host.vocab,
        context=host.context,
        end_ids=host.tokenizer.end_ids,
        defaults=host.defaults,
        tokenizer=host.tokenizer.as_json(),
        template_options=host.tokenizer.options,
        reply_format=reply_format_of(host, chat_options)
        if host.task == "generate"
        else ReplyFormat(),
        task=host.task,
        infill_ends=infill_ends(host),
        model_type=str(host.config.get("model_type", "")),
        sees=host.sees,
        template=host.tokenizer.template,
    )


def answer(
    host: Preparer, opened: Open, message: Prepare | Encode | Decode | Check
) -> tuple[WireMessage, list[memoryview]]:
    """What to send back; never raises for anything a request may hold (B48)."""
    try:
        if isinstance(message, Decode):
            text = host.tokenizer.decode(message.ids, special=message.special)
            return DecodedText(message.id, text), []
        if isinstance(message, Check):
            prove(host.profile.grammar_tokens, message.grammar)
            return DecodedText(message.id, ""), []
        if isinstance(message, Encode):
            require_countable(host, message.text, "prompt")
            special = message.add_special_tokens
            ids = host.tokenizer.encode(message.text, add_special_tokens=special)
            return Made(message.id, tuple(ids), {}), []
        made: Prepared = prepare(
            host, message.request, opened.rules, chat_options=opened.chat_options
        )
        tensors, tail = pack(made.tensors)
        rest = made.media, made.borders, made.constraint, made.opened, made.token_rules
        return Made(message.id, made.ids, tensors, *rest, made.prediction), tail
    except MemoryError:
        return Refused(message.id, TOO_MUCH, "preparation_failed"), []
    except Exception as error:  # templates, tokenizers and processors raise anything
        if not isinstance(error, BushelError):
            log.error("request %s could not be prepared", message.id, exc_info=error)
        return Refused.because(message.id, error), []


def _bound_memory(size: int) -> None:
    """About so much more than now may be used, where the system keeps such a limit (Linux).

    It counts addresses, of which allocators keep what they have given back: measured, up to twice
    of what was in use.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        [now] = [int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")]
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (now + 2 * size, hard))


def main(descriptor: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front decides when to end
    link: Link[ToWorker] = Link(descriptor, ToWorker)
    first, _ = link.wait()
    assert isinstance(first, Open)
    try:
        host = open_host(
            first.model,
            trust_remote_code=first.trust_remote_code,
            chat_template=first.chat_options.template,
            max_model_len=first.max_model_len,
        )
        model_info = model_info_of(host, first.chat_options)
        if host.task == "generate":  # before the first request waits for it
            _ = host.profile.abilities
            host.profile.warm_grammars()
    except BushelError as error:
        link.send(Failed(str(error)))
        return 2
    gc.freeze()  # what a tokenizer consists of need not be looked at again
    _bound_memory(first.rules.memory)
    link.send(Opened(model_info))
    while True:
        message, _ = link.wait()
        if not isinstance(message, Open):
            link.send(*answer(host, first, message))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
