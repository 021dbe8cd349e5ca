"""What requests for a reply may say, and how it looks.

A stream is lines of JSON, each of them the reply's next piece; the last one has `done`, why it
ended, and what it took. Durations are nanoseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from bushel.server.api.descriptions import SPEAKER, about
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Flag, Prose, TopLogprobs, Unsupported
from bushel.server.api.reply_fields import ReplyModel
from bushel.server.api.shared_fields import TOP_LOGPROBS, Model
from bushel.server.api.tools import OFFERED
from bushel.server.ollama.messages import Images, Messages
from bushel.server.ollama.options import OllamaOptions
from bushel.server.ollama.tools import Tools

NDJSON = "application/x-ndjson"
STREAMED = "The reply; with `stream`, lines of JSON, of which the last one says that it is done."

_EFFORTS = ("low", "medium", "high", "max")


def _format(value: Any) -> str | dict[str, Any]:
    if isinstance(value, dict) or (isinstance(value, str) and value in ("", "json")):
        return value
    raise InvalidField("", "must be json or a JSON schema")


def _think(value: Any) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value in _EFFORTS):
        return value
    raise InvalidField("", f"must be true, false, or one of {', '.join(_EFFORTS)}")


def _keep_alive(value: Any) -> str | float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise InvalidField("", "must be seconds, or a duration such as 5m")


Format = Annotated[
    str | dict[str, Any],
    PlainValidator(_format),
    WithJsonSchema({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]}),
]
Think = Annotated[
    bool | str,
    PlainValidator(_think),
    WithJsonSchema({"enum": [True, False, *_EFFORTS]}),
]
KeepAlive = Annotated[
    str | float,
    PlainValidator(_keep_alive),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
Streams = Annotated[
    Flag | None,
    BeforeValidator(lambda value: True if value is None else value),
    about("Send the reply as lines of JSON while it is made (default: true)."),
]
KEEP_ALIVE = about(
    "A hint: the server decides how long a model stays loaded. 0 beside an empty prompt unloads "
    "it, with an operator's key."
)
Options = Annotated[
    OllamaOptions | None, about("How tokens are chosen (default: the server's, the model's).")
]


class OllamaRequest(BaseModel):
    """What a conversation and a prompt have in common."""

    model_config = ConfigDict(extra="allow")

    model: Model = None
    stream: Streams = True
    format: Format | None = Field(
        None,
        description="json: a JSON object; or a JSON schema that the reply must match "
        "(default: text).",
    )
    think: Think | None = Field(
        None,
        description="Whether the model thinks, where its template has a switch, or how much "
        "(default: the model's).",
    )
    options: Options = None
    keep_alive: Annotated[KeepAlive | None, KEEP_ALIVE] = None
    logprobs: Flag | None = Field(
        None, description="Whether each token comes with its log-probability (default: false)."
    )
    top_logprobs: TopLogprobs | None = Field(
        None, description=f"{TOP_LOGPROBS}; needs `logprobs` (default: 0)."
    )

    @property
    def settings(self) -> OllamaOptions:
        return self.options or OllamaOptions.model_validate({})

    @property
    def timeout(self) -> float | None:
        return self.settings.timeout

    @property
    def cache_salt(self) -> str | None:
        return self.settings.cache_salt

    @property
    def priority(self) -> int | None:
        return self.settings.priority

    @property
    def unloads(self) -> bool:
        """Whether the model is to go, of a request that says nothing to it."""
        value = self.keep_alive
        digits = value.rstrip("hmsun\u00b5") if isinstance(value, str) else value
        return digits in (0, "0")


class OllamaChatRequest(OllamaRequest):
    messages: Messages = Field(default_factory=list)
    tools: Annotated[Tools | None, about(OFFERED)] = None


class OllamaGenerateRequest(OllamaRequest):
    prompt: Prose | None = Field(
        None, description="What the user says; empty: the model is loaded, and nothing is said."
    )
    system: Prose | None = Field(None, description="What the model is told before it.")
    images: Images | None = Field(
        None, description="Pictures that go with it, in base64 (default: none)."
    )
    raw: Flag | None = Field(
        None,
        description="Whether the prompt goes to the model as it is, without its chat template "
        "(default: false).",
    )
    context: Unsupported = None
    template: Unsupported = None
    suffix: Unsupported = None


# -- replies -------------------------------------------------------------------------------

_NANOSECONDS = "Nanoseconds"
CreatedAt = Annotated[str, about("When this was written, as RFC 3339 has it.")]


class OllamaFunction(BaseModel):
    name: str = Field(description="The tool's name.")
    arguments: dict[str, Any] = Field(
        description="Its arguments; of a call that was cut off, INVALID_JSON and what there is."
    )


class OllamaCall(BaseModel):
    function: OllamaFunction = Field(description="What is called.")


class OllamaMessage(BaseModel):
    role: Annotated[Literal["assistant"], about(SPEAKER)]
    content: str = Field(description="The reply's text; of a stream, its next piece.")
    thinking: str | None = Field(None, description="What the model thought.")
    tool_calls: list[OllamaCall] | None = Field(None, description="Calls that the model makes.")


class OllamaReply(BaseModel):
    model: ReplyModel
    created_at: CreatedAt
    done: bool = Field(description="Whether this is the end.")
    done_reason: Literal["stop", "length", "load", "unload"] | None = Field(
        None,
        description="Why it ended: by itself, a stop or a call, or at its limit; or that the model "
        "was loaded or unloaded.",
    )
    logprobs: list[dict[str, Any]] | None = Field(
        None, description="The reply's tokens, if `logprobs` was asked for."
    )
    total_duration: int | None = Field(None, description=f"{_NANOSECONDS} from start to end.")
    load_duration: int | None = Field(
        None, description=f"{_NANOSECONDS} before the prompt ran, loading included."
    )
    prompt_eval_count: int | None = Field(None, description="Tokens of the prompt.")
    prompt_eval_duration: int | None = Field(
        None, description=f"{_NANOSECONDS} until the first token."
    )
    eval_count: int | None = Field(None, description="Tokens of the reply, thoughts included.")
    eval_duration: int | None = Field(
        None, description=f"{_NANOSECONDS} from the first token to the last."
    )


class OllamaChatReply(OllamaReply):
    message: OllamaMessage = Field(description="The reply, or a piece of it.")


class OllamaGenerateReply(OllamaReply):
    response: str = Field(description="The reply's text; of a stream, its next piece.")
    thinking: str | None = Field(None, description="What the model thought.")
