"""From a body of the Messages API to the one form of a conversation (`core.conversation`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bushel.core.conversation import Conversation, Shape, Thinking, ToolCall, Turn
from bushel.server.anthropic.blocks_to_parts import (
    Part,
    blocks_of,
    joined,
    parts_of,
    text,
    unsupported_block,
)
from bushel.server.anthropic.foreign_blocks import carried
from bushel.server.anthropic.tools import offer
from bushel.server.api.errors import InvalidField
from bushel.server.api.opaque_thoughts import unseal

MOST_MESSAGES = 16384
# Makes parts of a block at a place; of earlier turns also of what this server cannot do.
BlockReader = Callable[[str, str, Mapping[str, Any]], list[Part]]


def conversation_of(body: Mapping[str, Any]) -> Conversation:
    """Raises InvalidField, which names the place, for what cannot be said to the model.

    A text and a list of one text give the same. Cache marks, signatures that are not ours, and
    other keys that say nothing to the model are left out.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MOST_MESSAGES:
        raise InvalidField("messages", f"must be a list of 1 to {MOST_MESSAGES} messages")
    turns: list[Turn] = []
    if (system := _system("system", body.get("system") or "")) is not None:
        turns.append(system)
    asked = _last_of_user(messages)
    for at, message in enumerate(messages):
        turns += _turns(f"messages[{at}]", message, passed=at < asked)
    if not turns:
        raise InvalidField("messages", "say nothing")
    conversation: Conversation = {"messages": turns}
    if _is_begun(turns[-1]):
        conversation["chat_template_kwargs"] = {"continue_final_message": True}
    offer(conversation, body.get("tools"), body.get("tool_choice"))
    if thinking := _thinking(body, messages):
        conversation["thinking"] = thinking
    if shape := _shape(body):
        conversation["shape"] = shape
    return conversation


def _last_of_user(messages: list[Any]) -> int:
    places = [at for at, message in enumerate(messages) if _object(message).get("role") == "user"]
    return places[-1] if places else -1


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _turns(where: str, message: Any, *, passed: bool) -> list[Turn]:
    """passed: a message of the user follows."""
    if not isinstance(message, dict):
        raise InvalidField(where, "must be an object")
    role, content, here = message.get("role"), message.get("content"), f"{where}.content"
    if role == "system":
        if content is None and message.get("output_config"):
            return []
        if passed and message.get("clear_at") == "next_user_message":
            return []
        system = _system(here, content)
        return [] if system is None else [system]
    if role == "user":
        return _of_user(here, content, carried if passed else parts_of)
    if role == "assistant":
        return [_of_assistant(here, content)]
    raise InvalidField(f"{where}.role", "must be user, assistant or system")


def _system(where: str, content: Any) -> Turn | None:
    """Its blocks as lines of one text; the first may be a header (`chat.client_headers`)."""
    parts: list[Part] = []
    for here, kind, block in blocks_of(where, content):
        if kind != "text":
            raise unsupported_block(here, f"a block of type {kind[:64]!r} in a system prompt")
        parts += parts_of(here, kind, block)
    content = joined(parts)
    return {"role": "system", "content": content} if content else None


def _of_user(where: str, content: Any, read: BlockReader) -> list[Turn]:
    """Results come first, where the calls they answer are."""
    results: list[Turn] = []
    parts: list[Part] = []
    for here, kind, block in blocks_of(where, content):
        if kind == "tool_result":
            results.append(_result(here, block, read))
        else:
            parts += read(here, kind, block)
    if not results and not parts:
        raise InvalidField(where, "must not be empty")
    return [*results, {"role": "user", "content": joined(parts)}] if parts else results


def _result(where: str, block: Mapping[str, Any], read: BlockReader) -> Turn:
    content = block.get("content")
    parts: list[Part] = []
    for here, kind, inner in blocks_of(f"{where}.content", "" if content is None else content):
        if kind == "tool_reference":
            parts.append({"type": kind, "name": text(here, inner, "tool_name")})
        else:
            parts += read(here, kind, inner)
    result = joined(parts)
    if not result and block.get("is_error") is True:
        result = "Error"  # the only thing that is known
    call = text(where, block, "tool_use_id")
    return {"role": "tool", "tool_call_id": call, "content": result}


def _of_assistant(where: str, content: Any) -> Turn:
    """What was said between calls comes before them, where a template has room for it."""
    parts: list[Part] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for here, kind, block in blocks_of(where, content):
        if kind == "thinking":
            shown = text(here, block, "thinking")
            thoughts.append(shown or unseal(block.get("signature")) or "")
        elif kind == "redacted_thinking":
            continue  # nobody here can read it
        elif kind == "tool_use":
            calls.append(_call(here, block))
        else:
            parts += carried(here, kind, block)
    turn: Turn = {"role": "assistant", "content": joined(parts)}
    if thought := "\n".join(passage for passage in thoughts if passage):
        turn["reasoning_content"] = thought
    if calls:
        turn["tool_calls"] = calls
    return turn


def _call(where: str, block: Mapping[str, Any]) -> ToolCall:
    given = block.get("input")
    if not isinstance(given, dict | None):
        raise InvalidField(f"{where}.input", "must be an object")
    function = {"name": text(where, block, "name"), "arguments": given or {}}
    return {"id": text(where, block, "id"), "type": "function", "function": function}  # type: ignore[typeddict-item]


def _is_begun(last: Turn) -> bool:
    """Whether the conversation ends with the beginning of the reply."""
    content = last.get("content")
    begun = last["role"] == "assistant" and "tool_calls" not in last
    return begun and isinstance(content, str) and bool(content)


def _thinking(body: Mapping[str, Any], messages: list[Any]) -> Thinking:
    """A message of the system's may change the effort from there on. "adaptive" leaves it to the
    model, as saying nothing does.
    """
    config, thinking = _object(body.get("thinking")), Thinking()
    if config.get("type") in ("enabled", "disabled"):
        thinking["enabled"] = config["type"] == "enabled"
    if config.get("type") == "enabled" and config.get("budget_tokens") is not None:
        thinking["budget"] = config["budget_tokens"]
    for place in (body, *(message for message in messages if message.get("role") == "system")):
        effort = _object(place.get("output_config")).get("effort")
        if isinstance(effort, str):
            thinking["effort"] = effort
    return thinking


def _shape(body: Mapping[str, Any]) -> Shape | None:
    # The second name is the older one.
    form = _object(body.get("output_config")).get("format") or body.get("output_format")
    if form is None:
        return None
    schema = _object(form).get("schema")
    if _object(form).get("type") != "json_schema" or not isinstance(schema, dict):
        raise InvalidField("output_config.format", "must be of type json_schema, with a schema")
    return {"json_schema": schema}
