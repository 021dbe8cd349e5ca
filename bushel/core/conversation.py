"""The one form of a conversation, whatever API it came by.

Every API translates what its clients send into this form; normalisation, templates, grammars and
the reading of replies know no other. It is what `bushel.LLM` takes as a request, and plain JSON,
so that it can travel.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Function(TypedDict):
    name: str
    arguments: str | dict[str, Any]  # JSON; as text where a client sent text


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: Function


class Turn(TypedDict):
    """A message.

    content: text, or parts in order: {"type": "text", "text"}, {"type": "image_url",
    "image_url": {"url"}}, {"type": "video_url", …}, {"type": "video", "video": URL or a list of
    frames}, both with what `chat.media.frame_sampling` reads beside it, and in a tool's result also
    {"type": "tool_reference", "name"}, which stands for the definition of a deferred tool.
    """

    role: Role
    content: NotRequired[str | list[dict[str, Any]] | None]
    reasoning_content: NotRequired[str]  # of an assistant: what it thought
    tool_calls: NotRequired[list[ToolCall]]  # of an assistant
    tool_call_id: NotRequired[str]  # of a tool's result
    name: NotRequired[str]


class ToolFunction(TypedDict):
    name: str
    description: NotRequired[str]
    parameters: NotRequired[dict[str, Any]]  # a JSON schema of an object
    strict: NotRequired[bool]


class InputFormat(TypedDict):
    """What the text of a custom tool must look like."""

    type: Literal["text", "grammar"]
    syntax: NotRequired[Literal["lark", "regex"]]
    definition: NotRequired[str]


class Tool(TypedDict):
    """deferred: not told to the model until a tool_reference names it. input: of a custom tool,
    which the model knows as a function of one string, `input`.
    """

    type: Literal["function"]
    function: ToolFunction
    deferred: NotRequired[bool]
    input: NotRequired[InputFormat]


class Thinking(TypedDict):
    """None or absent: as the model does by itself."""

    enabled: NotRequired[bool | None]
    effort: NotRequired[str | None]  # minimal, low, medium, high, …
    budget: NotRequired[int | None]  # tokens, after which the thoughts are closed


class StructuralTag(TypedDict):
    """Free text in which a trigger begins one of the structures that start with it."""

    structures: list[dict[str, Any]]  # begin, schema, end
    triggers: list[str]


class Shape(TypedDict):
    """What the answer must look like: exactly one of them. grammar: in Lark's notation, or GBNF."""

    json_object: NotRequired[bool]
    json_schema: NotRequired[dict[str, Any] | bool]
    regex: NotRequired[str]
    choice: NotRequired[list[str]]
    grammar: NotRequired[str]
    structural_tag: NotRequired[StructuralTag]


class Conversation(TypedDict):
    """What a request says to the model.

    tool_choice: "auto" (also where tools are given and it is absent), "required", or the name of
    one tool as {"name": …}. With "none" an API gives no tools. parallel: more than one call in
    a reply.
    """

    messages: list[Turn]
    tools: NotRequired[list[Tool] | None]
    tool_choice: NotRequired[Literal["auto", "required"] | dict[str, str]]
    parallel: NotRequired[bool]
    thinking: NotRequired[Thinking]
    shape: NotRequired[Shape | None]
    chat_template_kwargs: NotRequired[dict[str, Any]]
    truncate_prompt_tokens: NotRequired[int]  # see `chat.truncation`
    prediction: NotRequired[str]  # what the reply may repeat; it is no part of the prompt
    reply_tokens: NotRequired[int]  # that the context keeps room for then
