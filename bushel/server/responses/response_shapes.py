"""Answers as the OpenAPI document describes them. The writer makes the JSON itself."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class ResponseObject(BaseModel):
    """Of a reply that has ended; `error` is that of a stream."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: IncompleteDetails | None
    output: list[dict[str, Any]]
    usage: ResponseUsage
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    model: str
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float | None
    truncation: str
    user: str | None


class Deleted(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ItemList(BaseModel):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


def streamed() -> dict[str, Any]:
    """The other form of a response, beside JSON."""
    return {
        "description": "The response; with `stream`, server-sent events that end with it.",
        "content": {"text/event-stream": {}},
    }
