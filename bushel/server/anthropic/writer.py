"""A reply as the Messages API has it: events with names, or one message.

    (ping …) message_start  { content_block_start  content_block_delta …  content_block_stop } …
    message_delta  message_stop

`message_start` waits for the first token, since only then is it known how much of the prompt was
read from the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bushel.core import Event
from bushel.server.anthropic.content_blocks import (
    BlockDelta,
    BlockEvents,
    BlockStart,
    ContentBlock,
    Step,
)
from bushel.server.anthropic.errors import error_bytes
from bushel.server.errors import ApiError
from bushel.server.service.multi_ticket import MultiTicket

_encode = msgspec.json.encode
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b}\n\n'
)
# What a block's pieces are called.
_PIECES = {
    "text": b'{"type":"text_delta","text":%b}',
    "thinking": b'{"type":"thinking_delta","thinking":%b}',
    "tool_use": b'{"type":"input_json_delta","partial_json":%b}',
}


def _event(payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), _encode(payload))


def failed_stream(error: ApiError, request_id: str) -> bytes:
    """What ends a stream that fails."""
    return b"event: error\ndata: %b\n\n" % error_bytes(error, request_id)


class MessageWriter:
    """A `api.response.Writer`. silent: nothing was to be said, only the prompt to be kept."""

    def __init__(self, answer: MultiTicket, model: str, *, hides_thoughts: bool, silent: bool):
        self._ticket = answer.tickets[0]
        self._model = model
        self._hides_thoughts = hides_thoughts
        self._silent = silent
        self._steps = BlockEvents()
        self._blocks: list[ContentBlock] = []
        self._begun = False
        self._tokens = 0
        self._finish: Event | None = None

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        return b""

    def keepalive(self) -> bytes:
        return _PING

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        if not self._begun:
            self._begun = True
            chunks.append(_event({"type": "message_start", "message": self._message([])}))
        for event in events:
            chunks += [self._written(step) for step in self._read(event)]
        return b"".join(chunks)

    def _written(self, step: Step) -> bytes:
        if isinstance(step, BlockStart):
            block = self._begin(step)
            index = len(self._blocks) - 1
            return _event(
                {"type": "content_block_start", "index": index, "content_block": block.empty()}
            )
        block, index = self._blocks[-1], len(self._blocks) - 1
        if isinstance(step, BlockDelta):
            if self._hides_thoughts and block.kind == "thinking":
                block.pieces.append(step.text)
                return b""
            return _DELTA % (index, _PIECES[block.kind] % _encode(step.text))
        stop = _event({"type": "content_block_stop", "index": index})
        if block.kind != "thinking":
            return stop
        signature = block.signature(self._hides_thoughts)
        signed = {"type": "signature_delta", "signature": signature}
        block.pieces.clear()
        return _DELTA % (index, _encode(signed)) + stop

    def end(self) -> bytes:
        stop = dict(zip(("stop_reason", "stop_sequence"), self._stopped, strict=True))
        return _event({"type": "message_delta", "delta": stop, "usage": self._usage()}) + _STOP

    def failed(self, error: ApiError) -> bytes:
        return failed_stream(error, self._ticket.id)

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            for step in self._read(event):
                if isinstance(step, BlockStart):
                    self._begin(step)
                elif isinstance(step, BlockDelta):
                    self._blocks[-1].pieces.append(step.text)

    def whole(self) -> bytes:
        return _encode(self._message([block.whole(self._hides_thoughts) for block in self._blocks]))

    # -- both ------------------------------------------------------------------------------

    def _read(self, event: Event) -> list[Step]:
        """What an event does to the blocks."""
        steps: list[Step] = []
        if not self._silent:
            self._tokens += len(event.token_ids)
            for delta in event.deltas:
                steps += self._steps.take(delta)
        if event.finish_reason is not None:
            self._finish = event
            steps += self._steps.end()
        return steps

    def _begin(self, step: BlockStart) -> ContentBlock:
        call = f"toolu_{self._ticket.id}_{len(self._blocks)}" if step.kind == "tool_use" else ""
        self._blocks.append(ContentBlock(step.kind, call, step.name))
        return self._blocks[-1]

    @property
    def _stopped(self) -> tuple[str | None, str | None]:
        """The reason, and the stop sequence if it is that."""
        event = self._finish
        if event is None:
            return None, None
        if self._silent or self._steps.cut or event.finish_reason == "length":
            return "max_tokens", None
        if event.finish_reason == "tool_calls":
            return "tool_use", None
        return ("end_turn", None) if event.stop is None else ("stop_sequence", event.stop)

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        reason, sequence = self._stopped
        return {
            "id": f"msg_{self._ticket.id}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": self._usage(),
        }

    def _usage(self) -> dict[str, int]:
        """The prompt is what was read from the cache, what was added to it, and the rest."""
        read, added = self._ticket.cached_tokens, self._ticket.stored_tokens
        return {
            "input_tokens": len(self._ticket.prompt_ids) - read - added,
            "cache_creation_input_tokens": added,
            "cache_read_input_tokens": read,
            "output_tokens": self._tokens,
            **self._ticket.drafts.usage,
        }
