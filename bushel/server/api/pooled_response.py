"""From jobs whose results are numbers to an HTTP response, some of them at a time.

One request may have more texts than the queue has places; those of like lengths go together, which
is how an encoder's passes have the least padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bushel.core import Event, SamplingParams
from bushel.core.awake_clock import awake
from bushel.server.api.request import GenerationBody, generation_job
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import ClientGone, present
from bushel.server.observability import logs
from bushel.server.observability.request_record import Record
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_TOGETHER = 256  # texts on their way at once: as many as an encoder is given
_ONE = SamplingParams(max_tokens=1)


class PooledWriter(Protocol):
    """One API's form of what texts came to."""

    def take(self, index: int, values: Sequence[float]) -> None:
        """What a text came to; they come in any order. ApiError if that cannot be answered with."""

    def whole(self, id: str, created: int, prompt_tokens: int) -> bytes:
        """The reply, when all have come."""


def pooled_job(
    service: Service,
    request: Request,
    body: GenerationBody,
    prompt: dict[str, Any],
    *,
    model: str,
    api: str,
) -> GenerationJob:
    """prompt: what `chat.embedding_prompt` takes."""
    prompt = {"result": "embedding", **prompt}
    job = generation_job(
        service, request, body, prompt, _ONE, model=model, api=api, reply_tokens=1, reads=False
    )
    return replace(job, result="embedding", part=True)


class PooledResponse(Response):
    """Opens its jobs when it is sent, and ends them when the client goes (B47)."""

    def __init__(
        self,
        service: Service,
        plan: Callable[[], tuple[Sequence[GenerationJob], PooledWriter]],
        question: CountJob | None = None,
    ):
        """plan: what is to be done. question: asked before that, where the plan depends on a model
        that may have to be loaded first.
        """
        super().__init__()
        self._service = service
        self._plan = plan
        self._question = question

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with present(receive):
                response = await self._answer(scope)
        except ClientGone:
            return
        await response(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        if self._question is not None and self._service.model_info is None:
            await self._service.count(self._question)
        jobs, writer = self._plan()
        record = Record("-", jobs[0].api, jobs[0].model, False, len(jobs), awake())
        try:
            response = await self._pooled(scope, record, jobs, writer)
        except ApiError as error:
            record.status, record.error = error.status, error.code
            raise
        except BaseException:  # above all: the client went away
            record.status = 499
            raise
        finally:
            record.finished = awake()
            logs.finished(record)
        return response

    async def _pooled(
        self, scope: Scope, record: Record, jobs: Sequence[GenerationJob], writer: PooledWriter
    ) -> Response:
        """record: of all jobs as one, which is what the log has of them."""
        order = sorted(range(len(jobs)), key=lambda at: _length(jobs[at]))
        created: int | None = None
        for start in range(0, len(order), _TOGETHER):
            some = order[start : start + _TOGETHER]
            async with MultiTicket(self._service, [jobs[at] for at in some]) as answer:
                if created is None:
                    record.id, created = answer.id, answer.created
                    scope["state"]["request_id"] = answer.id
                    logs.started_texts(record, len(jobs))
                await answer.deliver(partial(_fold, writer, some))
                usage = answer.usage(0)
                record.prompt_tokens += usage.prompt_tokens
                record.cached_tokens += usage.cached_tokens
                record.finish_reasons += ["stop"] * len(some)
        assert created is not None
        payload = writer.whole(record.id, created, record.prompt_tokens)
        headers = {"x-request-id": record.id}
        return Response(payload, headers=headers, media_type="application/json")


def _fold(writer: PooledWriter, some: Sequence[int], events: Sequence[Event]) -> None:
    for event in events:
        if event.embedding:
            writer.take(some[event.choice], event.embedding)


def _length(job: GenerationJob) -> int:
    """In characters or tokens: of texts that come together it is the same."""
    prompt = job.request
    text = prompt.get("prompt_token_ids") or prompt.get("prompt") or ""
    return len(text) + len(prompt.get("text_pair") or "")
