"""The response object around a reply's items, and the framing of events."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from bushel.server.errors import ApiError
from bushel.server.responses.items import Item
from bushel.server.responses.schema import ResponsesRequest

Status = Literal["in_progress", "completed", "incomplete", "failed"]
_encode = msgspec.json.encode
# What clients know; Codex compacts its history at the first one.
_CODES = {429: "rate_limit_exceeded", 400: "invalid_prompt"}
_OVERFLOW = "context_length_exceeded"


class Envelope:
    """One response. asked: `fields_of` its request."""

    def __init__(self, name: str, created: int, asked: dict[str, msgspec.Raw]):
        self.id = name
        self._head = {"id": name, "object": "response", "created_at": created}
        self._asked = asked

    def response(
        self,
        status: Status,
        output: list[Item] | None = None,
        usage: dict[str, Any] | None = None,
        error: ApiError | None = None,
    ) -> msgspec.Raw:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        response = {
            **self._head,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": None if error is None else _error_object(error),
            "incomplete_details": cut,
            "output": output or [],
            "usage": usage,
            **self._asked,
        }
        return msgspec.Raw(_encode(response))


def fields_of(body: ResponsesRequest, model: str) -> dict[str, msgspec.Raw]:
    """What was asked for, as the response repeats it; encoded once."""
    return {key: msgspec.Raw(_encode(value)) for key, value in _asked(body, model).items()}


def _asked(body: ResponsesRequest, model: str) -> dict[str, Any]:
    fields = body.as_dict()
    reasoning = fields["reasoning"] or {}
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    text = {"format": {"type": "text"}}
    parallel = body.parallel_tool_calls
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": model,
        "parallel_tool_calls": True if parallel is None else parallel,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.get("effort"), "summary": summary},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.kept,
        "temperature": body.temperature,
        "text": {**text, **{key: value for key, value in (fields["text"] or {}).items() if value}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }


def _error_object(error: ApiError) -> dict[str, Any]:
    """An error in the words that the API has for it."""
    if error.code == _OVERFLOW:
        return {"code": _OVERFLOW, "message": error.message}
    return {"code": _CODES.get(error.status, "server_error"), "message": error.message}


class Frames:
    """Events as they are sent, numbered."""

    def __init__(self) -> None:
        self._number = 0

    def frame(self, kind: str, fields: dict[str, Any]) -> bytes:
        data = _encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def refused(envelope: Envelope, error: ApiError) -> bytes | None:
    """The stream of a request whose prompt is too long (B50): HTTP errors are not understood by
    the clients that would shorten it. Other refusals are HTTP errors.
    """
    return failed_stream(envelope, error) if error.code == _OVERFLOW else None


def failed_stream(envelope: Envelope, error: ApiError) -> bytes:
    """The whole stream of a request that comes to nothing."""
    frames = Frames()
    return frames.frame(
        "response.created", {"response": envelope.response("in_progress")}
    ) + frames.frame("response.failed", {"response": envelope.response("failed", error=error)})
