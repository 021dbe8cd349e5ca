"""What a request for `/completion` may say, and how its reply looks.

Fields are obeyed; or hints that need nothing done (`cache_prompt`: every prompt is kept); or known
and refused by name unless they are off.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema, model_validator

from bushel.core.conversation import Shape
from bushel.core.params import BOUNDS
from bushel.server.api.descriptions import about
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import MOST_BIASES, Flag, Prose, TopLogprobs, Unsupported
from bushel.server.api.llama_sampling import LlamaSamplingFields, PredictedTokens
from bushel.server.api.reply_fields import (
    CachedTokens,
    Index,
    PromptTokens,
    ReplyModel,
    ReplyTokens,
)
from bushel.server.api.shared_fields import HELD_TO, IGNORED, TOP_LOGPROBS, Model, Stream
from bushel.server.llama_cpp.prompts import MixedPrompts

# What each sampler is set to where `samplers` leaves it out.
_LEFT_OUT: dict[str, dict[str, float]] = {
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
    "penalties": {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
}
# Others that llama.cpp knows: their own fields say whether they are on.
_OTHERS = ("dry", "top_n_sigma", "typ_p", "typical_p", "xtc")
_SAMPLERS = (*_LEFT_OUT, *_OTHERS)
_NEVER = BOUNDS["logit_bias"].low  # of a token that is not to come

Ignored = Annotated[Any, IGNORED]


def _biases(value: Any) -> dict[int, float]:
    """Pairs of a token id and a number, or false for never; or an object of them."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > MOST_BIASES:
        raise InvalidField("", f"must be at most {MOST_BIASES} pairs of a token id and a number")
    return dict(_bias(f"[{at}]", pair) for at, pair in enumerate(pairs))


def _bias(where: str, pair: Any) -> tuple[int, float]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InvalidField(where, "must be a pair of a token id and a number")
    token, bias = pair
    if isinstance(pair, tuple) and token.isdecimal():  # a key
        token = int(token)
    if type(token) is not int or token < 0:
        raise InvalidField(where, "must be a token id and a number; texts are not taken")
    bound, bias = BOUNDS["logit_bias"], _NEVER if bias is False else bias
    if not isinstance(bias, int | float) or not bound.low <= bias <= bound.high:
        raise InvalidField(where, "must have a finite number, or false")
    return token, float(bias)


_BIAS = {"type": "number", "minimum": _NEVER, "maximum": BOUNDS["logit_bias"].high}
_PAIR = {
    "type": "array",
    "prefixItems": [
        {"type": "integer", "minimum": 0},
        {"anyOf": [_BIAS, {"const": False}]},
    ],
    "minItems": 2,
    "maxItems": 2,
}
_KEYED = {
    "type": "object",
    "patternProperties": {"^[0-9]{1,9}$": _BIAS},
    "additionalProperties": False,
}
LlamaLogitBias = Annotated[
    dict[int, float],
    PlainValidator(_biases),
    WithJsonSchema({"anyOf": [{"type": "array", "items": _PAIR}, _KEYED]}),
]


def _samplers(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(name in _SAMPLERS for name in value):
        raise InvalidField("", f"must be a list of names, of {', '.join(_SAMPLERS)}")
    return value


Samplers = Annotated[
    list[str],
    PlainValidator(_samplers),
    WithJsonSchema({"type": "array", "items": {"enum": list(_SAMPLERS)}}),
]
Off = Annotated[Literal[0, -1] | None, about("Not supported: refused, unless it is 0 or -1.")]


class LlamaCompletionRequest(LlamaSamplingFields):
    model: Model = None
    prompt: MixedPrompts = Field(
        description="A text, token ids, or a list of both; or a list of such prompts."
    )
    n_predict: PredictedTokens | None = Field(
        None,
        description="Tokens of each reply, at most; 0: nothing is said, but the prompt is kept; "
        "-1: until it ends by itself (default: the server's, the model's, or -1).",
    )
    stream: Stream = None
    n_probs: TopLogprobs | None = Field(
        None, description=f"{TOP_LOGPROBS} (default: 0, and no log-probabilities)."
    )
    grammar: Prose | None = Field(None, description="A grammar in GBNF that the reply must follow.")
    json_schema: Annotated[dict[str, Any] | None, HELD_TO] = None
    logit_bias: LlamaLogitBias | None = Field(  # type: ignore[assignment]
        None,
        description="Pairs of a token id and a number that is added to its logit, or false: it "
        "never comes.",
    )
    samplers: Samplers | None = Field(
        None,
        description="Samplers that are used, others are not; their order is Bushel's own "
        "(default: all).",
    )
    return_tokens: Flag | None = Field(
        None, description="Whether a whole reply has its token ids; streams do (default: false)."
    )
    timings_per_token: Flag | None = Field(
        None, description="Whether each piece of a stream has `timings` (default: false)."
    )

    cache_prompt: Ignored = None
    id_slot: Ignored = None
    n_keep: Ignored = None
    n_discard: Ignored = None
    return_progress: Ignored = None
    sse_ping_interval: Ignored = None

    n_cmpl: Literal[1] | None = Field(None, description="One reply for each prompt.")
    n_indent: Off = None
    min_keep: Off = None
    t_max_predict_ms: Off = None
    t_max_prompt_ms: Off = None
    post_sampling_probs: Unsupported = None
    response_fields: Unsupported = None
    lora: Unsupported = None
    image_data: Unsupported = None

    @model_validator(mode="after")
    def _leave_out(self) -> LlamaCompletionRequest:
        if self.samplers is not None:
            for name, off in _LEFT_OUT.items():
                if name not in self.samplers:
                    for field, value in off.items():
                        setattr(self, field, value)
        return self

    @property
    def shape(self) -> Shape | None:
        if self.grammar and self.json_schema is not None:
            raise InvalidField("grammar", "and json_schema cannot both be given")
        if self.json_schema is not None:
            return {"json_schema": self.json_schema}
        return {"grammar": self.grammar} if self.grammar else None


# -- replies -------------------------------------------------------------------------------


class LlamaTimings(BaseModel):
    cache_n: CachedTokens
    prompt_n: int = Field(description="Tokens of the prompt that were computed.")
    prompt_ms: float = Field(description="Milliseconds that the prompt took.")
    prompt_per_token_ms: float = Field(description="The same, for each of them.")
    prompt_per_second: float = Field(description="How many of them in a second.")
    predicted_n: ReplyTokens
    predicted_ms: float = Field(description="Milliseconds from the first token to the last.")
    predicted_per_token_ms: float = Field(description="The same, for each of them.")
    predicted_per_second: float = Field(description="How many of them in a second.")
    draft_n: int = Field(description="Tokens that were guessed ahead.")
    draft_n_accepted: int = Field(description="Of those, how many are part of the reply.")


class LlamaCompletion(BaseModel):
    """The last piece of a stream is the same, without what was said already."""

    index: Index
    content: str = Field(description="The reply.")
    tokens: list[int] = Field(description="Its token ids, if `return_tokens` was asked for.")
    id_slot: int = Field(description="Always -1: slots have no numbers here.")
    stop: Literal[True] = Field(description="Whether the reply has ended.")
    model: ReplyModel
    tokens_predicted: ReplyTokens
    tokens_evaluated: PromptTokens
    tokens_cached: CachedTokens
    generation_settings: dict[str, Any] = Field(description="What was asked for.")
    prompt: str = Field(description="The prompt as text.")
    has_new_line: bool = Field(description="Whether the reply has more than one line.")
    truncated: bool = Field(description="Whether the context was too short for the reply.")
    stop_type: Literal["eos", "word", "limit"] = Field(
        description="What ended it: the model itself, a text of `stop`, or its limit."
    )
    stopping_word: str = Field(description="The text that ended it; empty if none did.")
    timings: LlamaTimings = Field(description="How long it took.")
    completion_probabilities: list[dict[str, Any]] | None = Field(
        None, description="The reply's tokens, if `n_probs` was asked for."
    )
