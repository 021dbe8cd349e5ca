"""From a chat request to the one form of a conversation (`core.conversation`)."""

from __future__ import annotations

from typing import Any, cast

from bushel.core.conversation import Conversation, Shape, Thinking, Tool, Turn
from bushel.server.errors import ApiError
from bushel.server.http.json_decode import decode
from bushel.server.openai.schema import ChatRequest
from bushel.server.options import Limits

# What turns a model's thinking off, of the efforts that clients name.
_NO_EFFORT = ("none",)
# The id of a call in the older form, which has none: at most one is open at a time.
_LEGACY = "call_function"


def conversation_of(body: ChatRequest) -> Conversation:
    said: Conversation = {"messages": [_turn(message) for message in body.messages]}
    options = dict(body.chat_template_kwargs or {})
    if body.add_generation_prompt is not None:
        options["add_generation_prompt"] = body.add_generation_prompt
    if body.continue_final_message is not None:
        options["continue_final_message"] = body.continue_final_message
    if options:
        said["chat_template_kwargs"] = options
    if tools := offered(body.tools, body.tool_choice, said):
        said["tools"] = tools
        if body.parallel_tool_calls is not None:
            said["parallel"] = body.parallel_tool_calls
    if thinking := _thinking(body):
        said["thinking"] = thinking
    if shape := _shape(body):
        said["shape"] = shape
    return said


def offered(tools: Any, choice: Any, said: Conversation) -> list[Tool]:
    """The tools that the model is told of; notes in `said` what it has to do with them."""
    found: list[Tool] = list(tools or ())
    if choice == "none":
        return []
    names = {it["function"]["name"] for it in found}
    if isinstance(choice, dict):
        wanted = choice.get("allowed", [choice.get("name")])
        if unknown := [it for it in wanted if it not in names]:
            raise ApiError(
                400,
                f"tool_choice names {str(unknown[0])[:80]!r}, which is not among the tools.",
                param="tool_choice",
            )
        if "allowed" in choice:
            allowed = frozenset(wanted)
            found = [it for it in found if it["function"]["name"] in allowed]
            choice = "required" if choice["required"] else "auto"
    if choice == "required" and not found:
        raise ApiError(400, "tool_choice is required, but there are no tools.", param="tool_choice")
    if choice is not None and found:
        said["tool_choice"] = choice
    return found


def _turn(message: dict[str, Any]) -> Turn:
    """Thoughts go by two names, and calls had another form once."""
    turn = dict(message)
    thoughts = turn.pop("reasoning", None)
    if isinstance(thoughts, str) and not turn.get("reasoning_content"):
        turn["reasoning_content"] = thoughts
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


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": part["refusal"]} if part["type"] == "refusal" else part


def _thinking(body: ChatRequest) -> Thinking:
    effort, enabled, budget = body.reasoning_effort, body.enable_thinking, body.thinking_budget
    if body.reasoning is not None:
        effort = effort or body.reasoning.effort
        enabled = body.reasoning.enabled if enabled is None else enabled
        budget = body.reasoning.max_tokens if budget is None else budget
    if body.thinking is not None:
        enabled = body.thinking.type != "disabled" if enabled is None else enabled
        budget = body.thinking.budget_tokens if budget is None else budget
    if effort in _NO_EFFORT:
        effort, enabled = None, False if enabled is None else enabled
    found: Thinking = {}
    if enabled is not None:
        found["enabled"] = enabled
    if effort is not None:
        found["effort"] = effort
    if budget is not None:
        found["budget"] = budget
    return found


def _shape(body: ChatRequest) -> Shape | None:
    shapes: list[Shape] = []
    if body.response_format is not None and (shape := body.response_format.shape):
        shapes.append(shape)
    said = body.structured_outputs
    schema = body.guided_json if said is None else said.json_
    if schema is not None:
        shapes.append({"json_schema": _parsed(schema)})
    if said is not None and said.json_object:
        shapes.append({"json_object": True})
    if (regex := body.guided_regex if said is None else said.regex) is not None:
        shapes.append({"regex": regex})
    if (choice := body.guided_choice if said is None else said.choice) is not None:
        shapes.append({"choice": choice})
    if (lark := body.guided_grammar if said is None else said.grammar) is not None:
        shapes.append({"lark": lark})
    if len(shapes) > 1:
        raise ApiError(
            400, "A reply can be held to one form only; the request names several.",
            param="response_format",
        )  # fmt: skip
    return shapes[0] if shapes else None


def _parsed(schema: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    try:
        found = decode(schema.encode(), Limits())
    except ApiError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(400, "guided_json must be a JSON schema.", param="guided_json")
    return found
