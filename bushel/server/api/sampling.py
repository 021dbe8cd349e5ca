"""How tokens are chosen, as OpenAI's APIs let a request say it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from bushel.core import SamplingParams
from bushel.server.api.fields import (
    FrequencyPenalty,
    LogitBias,
    MinP,
    PresencePenalty,
    RepeatLastN,
    RepetitionPenalty,
    Seed,
    Stops,
    Temperature,
    TokenIds,
    TokensOrNone,
    Unsupported,
)
from bushel.server.api.sampler_fields import SamplerFields
from bushel.server.api.shared_fields import (
    SEED,
    STOPS,
    TEMPERATURE,
    CacheSalt,
    IgnoreEos,
    LikeliestTokens,
    NucleusMass,
    RequestPriority,
    Timeout,
    sampled,
)


class SamplingFields(SamplerFields):
    model_config = ConfigDict(extra="allow")

    temperature: Annotated[Temperature | None, TEMPERATURE] = None
    top_p: NucleusMass = None
    top_k: LikeliestTokens = None
    min_p: Annotated[
        MinP | None,
        sampled("min_p", "Draw from tokens that have this part of the likeliest one's probability"),
    ] = None
    seed: Annotated[Seed | None, SEED] = None
    presence_penalty: PresencePenalty | None = Field(
        None, description="Taken from the logits of tokens that the reply has (default: 0)."
    )
    frequency_penalty: FrequencyPenalty | None = Field(
        None,
        description="Taken from the logits of tokens, as often as the reply has them (default: 0).",
    )
    repetition_penalty: Annotated[
        RepetitionPenalty | None,
        sampled(
            "repetition_penalty",
            "Tokens that the prompt or the reply has become less likely above 1, likelier below",
        ),
    ] = None
    repeat_penalty: RepetitionPenalty | None = Field(
        None, description="The same, as llama.cpp calls it; `repetition_penalty` wins."
    )
    repeat_last_n: RepeatLastN | None = Field(
        None,
        description="Of how many of the last tokens, prompt included, `repetition_penalty` knows; "
        "-1: of all; 0: it is off. The other two penalties know the whole reply (default: -1).",
    )
    repetition_context_size: RepeatLastN | None = Field(
        None, description="The same, as mlx-lm calls it; `repeat_last_n` wins."
    )
    presence_context_size: Unsupported = None
    frequency_context_size: Unsupported = None
    logit_bias: LogitBias | None = Field(
        None, description="Numbers that are added to the logits of token ids."
    )
    stop: Annotated[Stops | None, STOPS] = None
    stop_token_ids: TokenIds | None = Field(
        None, description="Token ids that end the reply, beside the model's own."
    )
    min_tokens: TokensOrNone | None = Field(
        None, description="Tokens before which none that ends the reply is chosen (default: 0)."
    )
    ignore_eos: IgnoreEos = None
    timeout: Timeout = None
    cache_salt: CacheSalt = None
    priority: RequestPriority = None

    def params(self, limit: int | None, logprobs: int | None, n: int = 1) -> SamplingParams:
        """limit: tokens of the reply, at most."""
        return SamplingParams(
            max_tokens=limit,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            repetition_penalty=_first(self.repetition_penalty, self.repeat_penalty),
            repeat_last_n=_first(self.repeat_last_n, self.repetition_context_size, -1),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            # The field's validator turns JSON's string keys into ids.
            logit_bias=self.logit_bias,  # type: ignore[arg-type]
            min_tokens=self.min_tokens or 0,
            ignore_eos=bool(self.ignore_eos),
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            n=n,
            logprobs=logprobs,
            **self.sampler_params(),
        )


def _first(*said: Any) -> Any:
    """Of several names for one thing, what the first says that says anything."""
    return next((value for value in said if value is not None), None)
