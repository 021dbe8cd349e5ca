"""From a Responses body to the internal conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bushel.core.conversation import Conversation, Shape, Thinking
from bushel.server.api.errors import InvalidField
from bushel.server.responses.items import Find, Item, items_of
from bushel.server.responses.items_to_messages import turns_of
from bushel.server.responses.tools import Offers, chosen, offers_of


@dataclass(frozen=True)
class ResponseConversation:
    """A request as it was understood.

    items: its own input, complete, without what came before it. offers: the tools by the names
    that the model calls them.
    """

    conversation: Conversation
    items: list[Item]
    offers: Offers


def conversation_of(
    body: Mapping[str, Any],
    earlier: Sequence[Item] = (),
    find: Find = lambda name: None,
) -> Conversation:
    return parse_request(body, earlier, find).conversation


def parse_request(
    body: Mapping[str, Any], earlier: Sequence[Item], find: Find
) -> ResponseConversation:
    """earlier: the items of the response that this one goes on from. InvalidField names what is
    wrong, and where.
    """
    given = body.get("input")
    if given is None and not earlier:
        raise InvalidField("input", "is missing")
    items = [] if given is None else items_of(given, find)
    everything = [*earlier, *items]
    offers, choice = chosen(body.get("tool_choice"), offers_of(body.get("tools"), everything))
    conversation: Conversation = {"messages": turns_of(body.get("instructions"), earlier, items)}
    if offers:
        conversation["tools"] = [offer.tool for offer in offers.values()]
        if choice is not None:
            conversation["tool_choice"] = choice
        if body.get("parallel_tool_calls") is not None:
            conversation["parallel"] = bool(body["parallel_tool_calls"])
    if thinking := _thinking(body.get("reasoning")):
        conversation["thinking"] = thinking
    if (shape := _shape(body.get("text"))) is not None:
        conversation["shape"] = shape
    if body.get("chat_template_kwargs"):
        conversation["chat_template_kwargs"] = dict(body["chat_template_kwargs"])
    return ResponseConversation(conversation, items, offers)


def _thinking(reasoning: Mapping[str, Any] | None) -> Thinking | None:
    effort = (reasoning or {}).get("effort")
    if effort is None:
        return None
    return {"enabled": False} if effort == "none" else {"effort": str(effort)}


def _shape(text: Mapping[str, Any] | None) -> Shape | None:
    form = (text or {}).get("format") or {}
    kind = form.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"json_object": True}
    schema = form.get("schema")
    if kind != "json_schema":
        raise InvalidField("text.format.type", "must be one of text, json_object, json_schema")
    if not isinstance(schema, dict):
        raise InvalidField("text.format.schema", "must be a JSON schema")
    return {"json_schema": schema}
