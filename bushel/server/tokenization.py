"""How many tokens something has, and which: `/tokenize` and `/detokenize`.

A conversation is counted as a chat request would have it: any body of a chat may be sent, and what
is counted is the prompt that it would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from bushel.core.wire import Decode, Encode, Made, Prepare
from bushel.core.wire import DecodedText as Decoded
from bushel.server.api.fields import Flag, Prose, TokenId
from bushel.server.api.openapi import documented
from bushel.server.api.shared_fields import MODEL
from bushel.server.api.unread_fields import note_unread
from bushel.server.callers import owner_of
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute, make_conversation
from bushel.server.openai.chat.conversation import conversation_of
from bushel.server.openai.chat.messages import Messages
from bushel.server.openai.chat.schema import ChatRequest

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_MOST_IDS = 1 << 19  # checking them keeps the event loop for 0.1 s
_FORMS = {"prompt": "string", "content": "string", "messages": "array"}
_ONE_OF: dict[str, Any] = {
    "oneOf": [
        {
            "properties": {
                form: {"type": kind if form == one else "null"} for form, kind in _FORMS.items()
            },
            "required": [one],
        }
        for one in _FORMS
    ]
}
_SPECIAL = "Whether the text begins and ends as the tokenizer has it (default: {})."


class TokenizeRequest(ChatRequest):
    """A text, or a conversation with all that a chat request may say."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_ONE_OF)

    prompt: Prose | None = Field(None, description="A text, as clients of vLLM send it.")
    add_special_tokens: Flag | None = Field(None, description=_SPECIAL.format("true"))
    content: Prose | None = Field(None, description="A text, as clients of llama.cpp send it.")
    add_special: Flag | None = Field(None, description=_SPECIAL.format("false"))
    messages: Messages | None = Field(  # type: ignore[assignment]
        None, description="A conversation, as a chat request has it."
    )
    return_token_strs: Flag | None = Field(
        None, description="Whether each token's text comes, too (default: false)."
    )
    with_pieces: Flag | None = Field(
        None, description="Whether `tokens` are objects of an id and a piece (default: false)."
    )


class TokenPiece(BaseModel):
    id: int = Field(description="Its id.")
    piece: str | list[int] = Field(description="Its text; of half a character, its bytes.")


class Tokens(BaseModel):
    count: int = Field(description="How many there are.")
    max_model_len: int | None = Field(description="Tokens that the model's context has room for.")
    tokens: list[int] | list[TokenPiece] = Field(
        description="Their ids; with `with_pieces`, with their texts."
    )
    token_strs: list[str] | None = Field(description="Their texts, with `return_token_strs`.")


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: Annotated[Prose | None, MODEL] = None
    tokens: Annotated[list[TokenId], Field(max_length=_MOST_IDS, fail_fast=True)] = Field(
        description="Token ids of the model's vocabulary."
    )


class DetokenizedText(BaseModel):
    prompt: str = Field(description="Their text.")
    content: str = Field(description="The same, as clients of llama.cpp read it.")


def tokenization_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    errors = documented(body=True, work=True)

    @routes.post(
        "/tokenize",
        response_model=Tokens,
        responses=errors,
        summary="A text's or a conversation's tokens",
    )
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        job = _job(service, body, request, await _to_encode(body, request), "tokenize")

        async def work() -> Tokens:
            made = await service.count(job)
            assert isinstance(made, Made)
            vocabulary, ids = service.vocabulary, list(made.ids)
            texts = [vocabulary.text(token) for token in ids] if body.return_token_strs else None
            pieces = [_piece(token, vocabulary.bytes(token)) for token in ids if body.with_pieces]
            context = service.model_info.context if service.model_info else None
            return Tokens(
                count=len(ids), max_model_len=context, tokens=pieces or ids, token_strs=texts
            )

        return Awaited(work)

    @routes.post(
        "/detokenize",
        response_model=DetokenizedText,
        responses=errors,
        summary="The text of tokens",
    )
    async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        message = Decode(request.scope["state"]["request_id"], tuple(body.tokens))
        job = _job(service, body, request, message, "detokenize")

        async def work() -> DetokenizedText:
            made = await service.count(job)
            assert isinstance(made, Decoded)
            return DetokenizedText(prompt=made.text, content=made.text)

        return Awaited(work)

    return routes


def _job(
    service: Service,
    body: TokenizeRequest | DetokenizeRequest,
    request: Request,
    message: Prepare | Encode | Decode,
    api: str,
) -> CountJob:
    owner = owner_of(service.options, request.headers)
    return CountJob(message, api, service.names.resolve(body.model), owner)


async def _to_encode(body: TokenizeRequest, request: Request) -> Encode | Prepare:
    name = request.scope["state"]["request_id"]
    given = [form for form in _FORMS if getattr(body, form) is not None]
    if len(given) != 1:
        raise ApiError(400, "Send exactly one of prompt, content and messages.", param="prompt")
    if body.prompt is not None:
        return Encode(name, body.prompt, body.add_special_tokens is not False)
    if body.content is not None:
        return Encode(name, body.content, bool(body.add_special))
    conversation = await make_conversation(request, lambda: conversation_of(body))
    return Prepare(name, dict(conversation))


def _piece(token: int, encoded: bytes) -> TokenPiece:
    try:
        return TokenPiece(id=token, piece=encoded.decode())
    except UnicodeDecodeError:
        return TokenPiece(id=token, piece=list(encoded))
