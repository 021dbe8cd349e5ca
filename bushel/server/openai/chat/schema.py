"""What a chat request may say, and how its reply looks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from bushel.server.api.descriptions import CALL_ID, KIND_OF_OBJECT, about
from bushel.server.api.fields import Flag, Limit, Prose, TopLogprobs, Unsupported
from bushel.server.api.reply_fields import ROLE, USAGE, Created, Index, ReplyId, ReplyModel
from bushel.server.api.shared_fields import (
    REPLY_LIMIT,
    SWITCH,
    TOP_LOGPROBS,
    Effort,
    GenerationPrompt,
    IgnoredHint,
    SeveralCalls,
    TemplateVariables,
    ThoughtLimit,
)
from bushel.server.api.tools import CHOSEN, OFFERED
from bushel.server.openai.chat.messages import Messages
from bushel.server.openai.chat.tools import FunctionChoice, Functions, ToolChoice, Tools
from bushel.server.openai.schema import (
    Finish,
    MatchedStop,
    OpenAIRequest,
    PromptLogprobs,
    PromptTokenIds,
    ReplyTokenIds,
    StopReason,
    UsageShape,
)
from bushel.server.openai.structured_output import StructuredOutputFields


class Reasoning(BaseModel):
    """As OpenRouter's clients ask for it."""

    effort: Effort = None
    max_tokens: ThoughtLimit = None
    enabled: Annotated[Flag | None, SWITCH] = None
    exclude: Flag | None = Field(
        None, description="Leave thoughts out of the reply; they are counted (default: false)."
    )


class ThinkingSwitch(BaseModel):
    """As clients of several hosted models ask for it."""

    type: Literal["enabled", "disabled", "auto", "adaptive"] = Field(
        description="Whether the model thinks, where its template has a switch; auto and adaptive "
        "leave it to the model."
    )
    budget_tokens: ThoughtLimit = None


class PredictedPart(BaseModel):
    type: Literal["text"] = Field(description="What kind of part it is.")
    text: Prose = Field(description="The text itself.")


class Prediction(BaseModel):
    type: Literal["content"] = Field(description="What kind of prediction it is.")
    content: Prose | Annotated[list[PredictedPart], Field(max_length=1024, fail_fast=True)] = Field(
        description="The text, or parts of it."
    )

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


_NEEDS_LOGPROBS = {
    "anyOf": [
        {"properties": {"top_logprobs": {"enum": [None, 0]}}},
        {"properties": {"logprobs": {"const": True}}, "required": ["logprobs"]},
    ]
}


class ChatRequest(OpenAIRequest, StructuredOutputFields):
    model_config = ConfigDict(json_schema_extra=_NEEDS_LOGPROBS)  # type: ignore[typeddict-item]

    messages: Messages
    max_tokens: Annotated[Limit | None, REPLY_LIMIT] = None
    max_completion_tokens: Limit | None = Field(
        None, description="The newer name of `max_tokens`, which wins where both are sent."
    )
    logprobs: Flag | None = Field(
        None,
        description="Whether each token comes with its log-probability (default: false).",
    )
    top_logprobs: TopLogprobs | None = Field(
        None, description=f"{TOP_LOGPROBS}; needs `logprobs` (default: 0)."
    )
    chat_template_kwargs: TemplateVariables = None
    add_generation_prompt: GenerationPrompt = None
    continue_final_message: Flag | None = Field(
        None,
        description="Whether the reply goes on with the last message, which stays open "
        "(default: false).",
    )
    tools: Annotated[Tools | None, about(OFFERED)] = None
    tool_choice: Annotated[ToolChoice | None, about(CHOSEN)] = None
    parallel_tool_calls: SeveralCalls = None
    functions: Functions | None = Field(
        None,
        description="The older form of `tools`: a reply makes one call, as `function_call`; not "
        "beside `tools`.",
    )
    function_call: FunctionChoice | None = Field(
        None,
        description="Which of the `functions` may or must be called (default: auto).",
    )
    # Obeyed by models that can: several spellings of the same wish.
    reasoning_effort: Effort = None
    reasoning: Reasoning | None = Field(
        None, description="Thinking, as OpenRouter's clients ask for it."
    )
    thinking: ThinkingSwitch | None = Field(
        None, description="Thinking, as clients of several hosted models ask for it."
    )
    enable_thinking: Annotated[Flag | None, SWITCH] = None
    thinking_budget: ThoughtLimit = None
    thinking_token_budget: ThoughtLimit = None
    include_reasoning: Flag | None = Field(
        None,
        description="Whether thoughts are part of the reply; they are counted in any case "
        "(default: true).",
    )

    prediction: Prediction | None = Field(
        None,
        description="A text that the reply may repeat much of, such as the file that it changes: "
        "where it does, its tokens come sooner (see `speculate`).",
    )
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = Field(
        None, description="What the reply is made of: text alone."
    )
    verbosity: IgnoredHint = None
    audio: Unsupported = None
    chat_template: Unsupported = None
    documents: Unsupported = None
    echo: Unsupported = None
    moderation: Unsupported = None
    web_search_options: Unsupported = None

    @property
    def custom_tools(self) -> frozenset[str]:
        """Names of tools whose input is text."""
        return frozenset(tool["function"]["name"] for tool in self.tools or () if "input" in tool)

    @property
    def tells_thoughts(self) -> bool:
        excluded = self.reasoning is not None and self.reasoning.exclude
        return self.include_reasoning is not False and not excluded

    @property
    def limit(self) -> int | None:
        """The newer name wins where both are sent."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


# -- replies -------------------------------------------------------------------------------


class TopLogprob(BaseModel):
    token: str = Field(description="Its text.")
    logprob: float = Field(
        description="The logarithm of its probability, before temperature and the like; -9999 if "
        "it cannot come."
    )
    bytes: list[int] | None = Field(description="Its bytes, which may be half a character.")


class TokenLogprobShape(TopLogprob):
    top_logprobs: list[TopLogprob] = Field(
        description="The likeliest tokens in its place, as many as were asked for."
    )


class ChatLogprobs(BaseModel):
    content: list[TokenLogprobShape] = Field(description="One for each token of the reply.")
    refusal: None = Field(description="Always null: no part of a reply is told as a refusal.")


class CalledFunction(BaseModel):
    name: str = Field(description="The name of the function.")
    arguments: str = Field(
        description="Its arguments as JSON; of a call that was cut off, what there is of them."
    )


class CalledTool(BaseModel):
    name: str = Field(description="The name of the custom tool.")
    input: str = Field(description="Its input; of a call that was cut off, what there is of it.")


class ToolCallShape(BaseModel):
    id: Annotated[str, about(CALL_ID)]
    type: Annotated[Literal["function", "custom"], KIND_OF_OBJECT]
    function: CalledFunction | None = Field(None, description="What is called, if a function.")
    custom: CalledTool | None = Field(None, description="What is called, if a custom tool.")


class ChatMessage(BaseModel):
    role: Annotated[Literal["assistant"], ROLE]
    content: str | None = Field(description="The reply's text; null if it is calls alone.")
    refusal: None = Field(description="Always null: a model refuses in its text.")
    reasoning_content: str | None = Field(
        None, description="What the model thought, if it did and its format is known."
    )
    reasoning: str | None = Field(None, description="The same, as other clients read it.")
    tool_calls: list[ToolCallShape] | None = Field(
        None, description="The calls that the model makes, if any."
    )
    function_call: CalledFunction | None = Field(
        None, description="The call that the model makes, if `functions` were offered."
    )


class ChatChoice(BaseModel):
    index: Index
    message: ChatMessage = Field(description="The reply.")
    logprobs: ChatLogprobs | None = Field(description="Its tokens, if `logprobs` was asked for.")
    finish_reason: Finish
    stop_reason: StopReason
    matched_stop: MatchedStop
    token_ids: ReplyTokenIds = None


class ChatCompletion(BaseModel):
    id: ReplyId
    object: Annotated[Literal["chat.completion"], KIND_OF_OBJECT]
    created: Created
    model: ReplyModel
    choices: list[ChatChoice] = Field(description="As many replies as `n` asked for.")
    usage: Annotated[UsageShape, USAGE]
    prompt_token_ids: PromptTokenIds = None
    prompt_logprobs: PromptLogprobs = None
