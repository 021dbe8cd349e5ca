"""What a model writes after each prompt, as server-sent events or as one object.

A stream's last piece of each prompt says why it ended and what it took; there is no [DONE].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bushel.core import Event, TokenLogprob
from bushel.server.api.logprobs import EncodedLogprobs, ReplyRoom, finite
from bushel.server.errors import ApiError
from bushel.server.http import sse
from bushel.server.llama_cpp.errors import error_bytes
from bushel.server.llama_cpp.schema import LlamaCompletionRequest
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.ticket import Ticket
    from bushel.text.vocabulary import Vocabulary

_encode = msgspec.json.encode
_SETTINGS = ("prompt", "model", "stream")  # of a request, what is no setting


def failed_stream(error: ApiError) -> bytes:
    """What ends a stream that fails."""
    return sse.data(error_bytes(error))


def settings_of(body: LlamaCompletionRequest) -> dict[str, Any]:
    """What was asked for, as replies repeat it."""
    asked = body.model_dump(include=body.model_fields_set - set(_SETTINGS))
    return {name: value for name, value in asked.items() if value is not None}


def probabilities(vocabulary: Vocabulary, logprobs: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    """One for each token, with the likeliest in its place."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {
            "id": token,
            "token": vocabulary.text(token),
            "bytes": list(vocabulary.bytes(token)),
            "logprob": finite(logprob),
        }

    return [
        {
            **entry(chosen.token_id, chosen.logprob),
            "top_logprobs": [entry(token, logprob) for token, logprob in chosen.top],
        }
        for chosen in logprobs
    ]


class _PromptReply:
    """To one prompt, so far."""

    def __init__(self, ticket: Ticket, prompt: str, room: ReplyRoom):
        self.ticket = ticket
        self.prompt = prompt
        self.texts: list[str] = []
        self.ids: list[int] = []
        self.tokens = 0
        self.has_new_line = False
        self.probabilities = EncodedLogprobs(room)
        self.finish: Event | None = None

    def timings(self) -> dict[str, Any]:
        spent, cached = self.ticket.timings, self.ticket.cached_tokens
        accepted, rejected = self.ticket.drafts
        computed = len(self.ticket.prompt_ids) - cached
        return {
            "cache_n": cached,
            **_rates("prompt", computed, spent.prompt),
            **_rates("predicted", self.tokens, spent.reply),
            "draft_n": accepted + rejected,
            "draft_n_accepted": accepted,
        }


def _rates(what: str, count: int, seconds: float) -> dict[str, Any]:
    return {
        f"{what}_n": count,
        f"{what}_ms": seconds * 1e3,
        f"{what}_per_token_ms": seconds * 1e3 / count if count else 0.0,
        f"{what}_per_second": count / seconds if seconds > 0 else 0.0,
    }


class LlamaWriter:
    """A `api.response.Writer`. prompts: as texts. several: whether a list was asked for."""

    def __init__(
        self,
        service: Service,
        answer: MultiTicket,
        body: LlamaCompletionRequest,
        model: str,
        prompts: Sequence[str],
    ):
        self._vocabulary = service.vocabulary
        self._context = service.model_info.context if service.model_info else None
        self._body = body
        self._model = model
        self._silent = body.n_predict == 0
        self._settings = msgspec.Raw(_encode(settings_of(body)))
        room = ReplyRoom(service.options.limits.reply_bytes)
        pairs = zip(answer.tickets, prompts, strict=True)
        self._replies = [_PromptReply(ticket, prompt, room) for ticket, prompt in pairs]

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        return b""

    def keepalive(self) -> bytes:
        return sse.KEEPALIVE

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        for event in events:
            reply = self._take(event)
            if event.token_ids and not self._silent:
                chunks.append(sse.data(_encode(self._piece(reply, event))))
            if event.finish_reason is not None:
                chunks.append(sse.data(_encode(self._ended(event.choice, "", []))))
        return b"".join(chunks)

    def _piece(self, reply: _PromptReply, event: Event) -> dict[str, Any]:
        piece: dict[str, Any] = {
            "index": event.choice,
            "content": event.text,
            "tokens": event.token_ids,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": reply.tokens,
            "tokens_evaluated": len(reply.ticket.prompt_ids),
        }
        if self._body.n_probs:
            listed = probabilities(self._vocabulary, event.logprobs)
            piece["completion_probabilities"] = listed
        if self._body.timings_per_token:
            piece["timings"] = reply.timings()
        return piece

    def end(self) -> bytes:
        return b""

    def failed(self, error: ApiError) -> bytes:
        return failed_stream(error)

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            reply = self._take(event)
            if self._silent:
                continue
            reply.texts.append(event.text)
            if self._body.return_tokens:
                reply.ids += event.token_ids
            if self._body.n_probs:
                reply.probabilities.add(probabilities(self._vocabulary, event.logprobs))

    def whole(self) -> bytes:
        ended = []
        for index, reply in enumerate(self._replies):
            made = self._ended(index, "".join(reply.texts), reply.ids)
            if self._body.n_probs:
                made["completion_probabilities"] = reply.probabilities.list()
            ended.append(made)
        return _encode(ended if len(ended) > 1 else ended[0])

    # -- both ------------------------------------------------------------------------------

    def _take(self, event: Event) -> _PromptReply:
        reply = self._replies[event.choice]
        if not self._silent:
            reply.tokens += len(event.token_ids)
            reply.has_new_line = reply.has_new_line or "\n" in event.text
        if event.finish_reason is not None:
            reply.finish = event
        return reply

    def _ended(self, index: int, content: str, ids: list[int]) -> dict[str, Any]:
        reply = self._replies[index]
        prompt = len(reply.ticket.prompt_ids)
        cut = reply.finish is None or reply.finish.finish_reason == "length" or self._silent
        word = "" if cut or reply.finish is None else reply.finish.stop or ""
        return {
            "index": index,
            "content": content,
            "tokens": ids,
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": reply.tokens,
            "tokens_evaluated": prompt,
            "tokens_cached": reply.ticket.cached_tokens,
            "generation_settings": self._settings,
            "prompt": reply.prompt,
            "has_new_line": reply.has_new_line,
            "truncated": self._context is not None and prompt + reply.tokens >= self._context,
            "stop_type": "limit" if cut else "word" if word else "eos",
            "stopping_word": word,
            "timings": reply.timings(),
        }
