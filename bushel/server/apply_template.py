"""`POST /apply-template`: a conversation as the text that its model reads, as llama.cpp has it.

The text, sent to `/completion`, runs the tokens that the conversation itself would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from bushel.core.wire import Encode, Made, Prepare
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import documented
from bushel.server.api.unread_fields import note_unread
from bushel.server.callers import owner_of
from bushel.server.counting import CountJob
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute, make_conversation
from bushel.server.llama_cpp.errors import LlamaError
from bushel.server.openai.chat.conversation import conversation_of
from bushel.server.openai.chat.schema import ChatRequest

if TYPE_CHECKING:
    from bushel.server.service.services import Services
    from bushel.text.vocabulary import Vocabulary

_API = "apply_template"


class AppliedTemplate(BaseModel):
    prompt: str = Field(description="What the model reads.")


def template_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/apply-template",
        response_model=AppliedTemplate,
        responses=documented(body=True, work=True, model=LlamaError),
        summary="A conversation as the text that its model reads",
    )
    async def apply_template(body: ChatRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        model = service.names.resolve(body.model)
        owner, name = (
            owner_of(service.options, request.headers),
            request.scope["state"]["request_id"],
        )
        conversation = await make_conversation(request, lambda: conversation_of(body))

        async def counted(message: Prepare | Encode) -> Made:
            made = await service.count(CountJob(message, _API, model, owner))
            assert isinstance(made, Made)
            return made

        async def work() -> AppliedTemplate:
            made = await counted(Prepare(name, dict(conversation)))
            if made.media:
                raise InvalidField("messages", "must be text: pictures have no place in a prompt")
            text = _written(service.vocabulary, made.ids)
            again = await counted(Encode(f"{name}-again", text))
            if again.ids[1:] == made.ids:  # what the tokenizer begins every text with
                text = _written(service.vocabulary, made.ids[1:])
            return AppliedTemplate(prompt=text)

        return Awaited(work)

    return routes


def _written(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    """With the names of special tokens."""
    return b"".join(map(vocabulary.bytes, ids)).decode("utf-8", errors="replace")
