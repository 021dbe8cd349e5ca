"""From a chat request to the one form of a conversation (`core.conversation`)."""

from __future__ import annotations

from typing import Any, cast

from bushel.chat.tool_fields import chosen
from bushel.core import FieldError
from bushel.core.conversation import Conversation, Thinking, Tool, Turn
from bushel.server.api.errors import InvalidField
from bushel.server.openai.chat.schema import ChatRequest

# What turns a model's thinking off, of the efforts that clients name.
_NO_EFFORT = ("none",)
# Of others the model decides by itself.
_SWITCHED = {"enabled": True, "disabled": False}
# The id of a call in the older form, which has none: at most one is open at a time.
_LEGACY = "call_function"


def conversation_of(body: ChatRequest) -> Conversation:
    conversation: Conversation = {"messages": [_turn(message) for message in body.messages]}
    options = dict(body.chat_template_kwargs or {})
    if body.add_generation_prompt is not None:
        options["add_generation_prompt"] = body.add_generation_prompt
    if body.continue_final_message is not None:
        options["continue_final_message"] = body.continue_final_message
    if options:
        conversation["chat_template_kwargs"] = options
    _offer(conversation, body)
    if thinking := _thinking(body):
        conversation["thinking"] = thinking
    if shape := body.shape:
        conversation["shape"] = shape
    if body.prediction is not None:
        conversation["prediction"] = body.prediction.text
    if body.truncate_prompt_tokens is not None:
        conversation["truncate_prompt_tokens"] = body.truncate_prompt_tokens
        conversation["reply_tokens"] = body.limit or 1
    return conversation


def _offer(conversation: Conversation, body: ChatRequest) -> None:
    """Notes what the model may call, and what it has to."""
    older = bool(body.functions)
    if older and (body.tools or body.tool_choice):
        raise InvalidField("functions", "is the older form of tools, and not taken beside them")
    if isinstance(body.function_call, dict) and not older:
        raise InvalidField("function_call", "names a function, and the request has no functions")
    asked = body.function_call if older else body.tool_choice
    try:
        tools, choice = chosen(asked, (body.functions if older else body.tools) or [])
    except FieldError as error:
        where = "function_call" if older else error.where
        raise InvalidField(where, error.rule, code=None) from None
    if not tools:
        return
    if choice is not None:
        conversation["tool_choice"] = choice
    conversation["tools"] = cast(list[Tool], tools)
    if older or body.parallel_tool_calls is not None:
        conversation["parallel"] = not older and bool(body.parallel_tool_calls)


def _turn(message: dict[str, Any]) -> Turn:
    """Thoughts go by two names, and calls had another form once."""
    turn = dict(message)
    thoughts = turn.pop("reasoning", None)
    if isinstance(thoughts, str) and not turn.get("reasoning_content"):
        turn["reasoning_content"] = thoughts
    if isinstance(turn.get("tool_calls"), list):
        turn["tool_calls"] = [_call(call) for call in turn["tool_calls"]]
    if isinstance(called := turn.pop("function_call", None), dict) and not turn.get("tool_calls"):
        turn["tool_calls"] = [{"id": _LEGACY, "type": "function", "function": called}]
    if turn["role"] == "function":
        turn |= {"role": "tool", "tool_call_id": _LEGACY}
    if turn["role"] == "tool" and turn.get("content") is None:
        turn["content"] = ""
    if isinstance(turn.get("content"), list):
        turn["content"] = [_part(part) for part in turn["content"]]
    if turn.get("tool_calls") is None:
        turn.pop("tool_calls", None)
    return cast(Turn, turn)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """One of a custom tool is one of a function, as the model knows it."""
    if not isinstance(custom := call.get("custom"), dict):
        return call
    function = {"name": custom["name"], "arguments": {"input": custom["input"]}}
    rest = {key: value for key, value in call.items() if key != "custom"}
    return {**rest, "type": "function", "function": function}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": part["refusal"]} if part["type"] == "refusal" else part


def _thinking(body: ChatRequest) -> Thinking:
    effort, enabled, budget = body.reasoning_effort, body.enable_thinking, body.thinking_budget
    budget = body.thinking_token_budget if budget is None else budget
    if body.reasoning is not None:
        effort = effort or body.reasoning.effort
        enabled = body.reasoning.enabled if enabled is None else enabled
        budget = body.reasoning.max_tokens if budget is None else budget
    if body.thinking is not None:
        enabled = _SWITCHED.get(body.thinking.type) if enabled is None else enabled
        budget = body.thinking.budget_tokens if budget is None else budget
    if effort in _NO_EFFORT:
        effort, enabled = None, False if enabled is None else enabled
    thinking: Thinking = {}
    if enabled is not None:
        thinking["enabled"] = enabled
    if effort is not None:
        thinking["effort"] = effort
    if budget is not None:
        thinking["budget"] = budget
    return thinking
