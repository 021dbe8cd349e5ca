"""From a request to the one form of a conversation (`core.conversation`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from bushel.core.conversation import Conversation, Shape, Thinking, Tool, ToolCall, Turn
from bushel.server.ollama.schema import OllamaChatRequest, OllamaGenerateRequest


def chat_conversation(body: OllamaChatRequest) -> Conversation:
    conversation: Conversation = {"messages": _turns(body.messages)}
    last = conversation["messages"][-1]
    if last["role"] == "assistant" and last.get("content") and "tool_calls" not in last:
        conversation["chat_template_kwargs"] = {"continue_final_message": True}
    if body.tools:
        conversation["tools"] = cast(list[Tool], body.tools)
    return _held(conversation, body.think, body.format)


def generate_conversation(body: OllamaGenerateRequest) -> Conversation:
    turns: list[Turn] = [{"role": "system", "content": body.system}] if body.system else []
    turns.append({"role": "user", "content": _content(body.prompt, body.images)})
    return _held({"messages": turns}, body.think, body.format)


def shape_of(form: str | dict[str, Any] | None) -> Shape | None:
    if isinstance(form, dict):
        return {"json_schema": form}
    return {"json_object": True} if form else None


def _held(
    conversation: Conversation, think: bool | str | None, form: str | dict[str, Any] | None
) -> Conversation:
    if think is not None:
        thinking: Thinking = {"enabled": think is not False}
        if isinstance(think, str):
            thinking["effort"] = think
        conversation["thinking"] = thinking
    if shape := shape_of(form):
        conversation["shape"] = shape
    return conversation


def _content(text: str | None, images: Sequence[str] | None) -> str | list[dict[str, Any]]:
    """Pictures come before the text. What they are, their bytes tell."""
    if not images:
        return text or ""
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": _url(image)}} for image in images
    ]
    return [*parts, {"type": "text", "text": text}] if text else parts


def _url(image: str) -> str:
    return image if image.startswith("data:") else f"data:image/*;base64,{image}"


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    turns: list[Turn] = []
    calls: list[ToolCall] = []  # that have no result yet
    made = 0
    for message in messages:
        content = _content(message.get("content"), message.get("images"))
        turn: Turn = {"role": message["role"], "content": content}
        if message["role"] == "tool":
            call = _answered(calls, message)
            turn["tool_call_id"] = call["id"] if call else message.get("tool_call_id") or "call_0"
            name = message.get("tool_name") or message.get("name")
            if name or call:
                turn["name"] = name or call["function"]["name"]  # type: ignore[index]
        elif message["role"] == "assistant":
            if message.get("thinking"):
                turn["reasoning_content"] = message["thinking"]
            calls = [
                _call(call, made + number)
                for number, call in enumerate(message.get("tool_calls") or (), 1)
            ]
            made += len(calls)
            if calls:
                turn["tool_calls"] = list(calls)
        turns.append(turn)
    return turns


def _call(call: Mapping[str, Any], number: int) -> ToolCall:
    function = call["function"]
    return {
        "id": call.get("id") or f"call_{number}",
        "type": "function",
        "function": {"name": function["name"], "arguments": function.get("arguments") or {}},
    }


def _answered(calls: list[ToolCall], message: Mapping[str, Any]) -> ToolCall | None:
    """The call that a result is of: by its id, or by the tool's name, or else the first. Taken out
    of those that wait.
    """
    name = message.get("tool_name") or message.get("name")
    for key in (
        lambda call: call["id"] == message.get("tool_call_id"),
        lambda call: call["function"]["name"] == name,
        lambda call: name is None,
    ):
        for at, call in enumerate(calls):
            if key(call):
                return calls.pop(at)
    return None
