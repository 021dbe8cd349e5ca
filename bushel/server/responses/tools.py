"""The tools of a request: what the model is offered, and what the client calls each of them.

A model knows functions only, by flat names. A custom tool (free text) is offered as a function of
one string; a tool inside a namespace under a name that holds both. Tools that OpenAI's servers
run themselves (web search and the like) do not exist here and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bushel.core.conversation import Tool, ToolFunction
from bushel.server.api.custom_tools import custom_tool
from bushel.server.api.errors import InvalidField
from bushel.server.api.tools import checked_description, checked_name
from bushel.server.api.unread_fields import note_ignored
from bushel.server.responses.items import Item

MOST_TOOLS = 4096
# The namespace that functions are in when nobody names one.
_DEFAULT = "functions"
# Items that bring tools along.
BRINGING = ("additional_tools", "tool_search_output")


@dataclass(frozen=True)
class Offer:
    """tool: as the model sees it. name, namespace: as the client does."""

    tool: Tool
    kind: Literal["function", "custom"]
    name: str
    namespace: str | None

    @property
    def identity(self) -> dict[str, str]:
        """What an item says of the tool it calls."""
        named = {"name": self.name}
        return named if self.namespace is None else {**named, "namespace": self.namespace}


# By the names that the model uses.
Offers = dict[str, Offer]


def flat_name(name: str, namespace: Any) -> str:
    """One tool's name is the same in every turn, whatever other tools there are."""
    if not isinstance(namespace, str) or namespace in ("", _DEFAULT):
        return name
    return f"{namespace}__{name}"


def offers_of(tools: Any, items: Iterable[Item]) -> Offers:
    """Of a body's `tools` and of what its items bring; of two with one name the first counts."""
    offers: Offers = {}
    _gather("tools", tools, None, offers)
    for item in items:
        if item["type"] in BRINGING:
            _gather(f"{item['type']}.tools", item.get("tools"), None, offers)
    return offers


def _gather(where: str, tools: Any, namespace: str | None, offers: Offers) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS:
        raise InvalidField(where, f"must be a list of at most {MOST_TOOLS} tools")
    for at, tool in enumerate(tools):
        here = f"{where}[{at}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise InvalidField(here, "must be an object with a type")
        if tool["type"] == "namespace" and namespace is None:
            name = checked_name(f"{here}.name", tool.get("name"))
            _gather(f"{here}.tools", tool.get("tools"), name, offers)
        elif tool["type"] in ("function", "custom"):
            offer = _offer(here, tool, namespace)
            offers.setdefault(offer.tool["function"]["name"], offer)
        else:
            note_ignored(f"tools: {tool['type']}", "such tools are not run here")


def _offer(where: str, tool: Mapping[str, Any], namespace: str | None) -> Offer:
    name = checked_name(f"{where}.name", tool.get("name"))
    if tool["type"] == "custom":
        custom = custom_tool(where, tool)
        custom["function"]["name"] = flat_name(name, namespace)
        return Offer(custom, "custom", name, namespace)
    description = checked_description(f"{where}.description", tool.get("description"))
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidField(f"{where}.parameters", "must be a JSON schema")
    function: ToolFunction = {"name": flat_name(name, namespace)}
    if description:
        function["description"] = description
    function["parameters"] = parameters or {"type": "object", "properties": {}}
    if tool.get("strict") is True:
        function["strict"] = True
    return Offer({"type": "function", "function": function}, "function", name, namespace)


# -- which of them may be called ----------------------------------------------------------------

Choice = Literal["auto", "required"] | dict[str, str]


def chosen(choice: Any, offers: Offers) -> tuple[Offers, Choice | None]:
    """What `tool_choice` leaves of the tools, and what it demands."""
    if choice == "none":
        return {}, None
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("tools")
        if not isinstance(allowed, list) or choice.get("mode") not in ("auto", "required"):
            raise InvalidField(
                "tool_choice", "must have a list of tools and a mode, auto or required"
            )
        names = {_called(offers, tool) for tool in allowed}
        offers = {name: offer for name, offer in offers.items() if name in names}
        choice = choice["mode"]
    if choice is None or choice == "auto":
        return offers, ("auto" if offers else None)
    if choice == "required":
        if not offers:
            raise InvalidField("tool_choice", "needs a tool of type function or custom")
        return offers, "required"
    name = _called(offers, choice)
    if name is None:
        raise InvalidField(
            "tool_choice", "must name one of the request's functions or custom tools"
        )
    return offers, {"name": name}


def _called(offers: Offers, tool: Any) -> str | None:
    """The flat name of what a client names, if it is offered."""
    if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
        return None
    name = tool.get("name")
    flat = flat_name(name, tool.get("namespace")) if isinstance(name, str) else ""
    return flat if flat in offers else None
