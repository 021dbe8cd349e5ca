"""How tokens are chosen, as OpenAI's APIs let a request say it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from bushel.core import SamplingParams
from bushel.server.api.fields import (
    Flag,
    FrequencyPenalty,
    LogitBias,
    MinP,
    PresencePenalty,
    RepetitionPenalty,
    Salt,
    Seconds,
    Seed,
    Stops,
    Temperature,
    TokenIds,
    TokensOrNone,
    TopK,
    TopP,
)


class SamplingFields(BaseModel):
    model_config = ConfigDict(extra="allow")

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    presence_penalty: PresencePenalty | None = None
    frequency_penalty: FrequencyPenalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: LogitBias | None = None
    stop: Stops | None = None
    stop_token_ids: TokenIds | None = None
    min_tokens: TokensOrNone | None = None
    ignore_eos: Flag | None = None
    timeout: Seconds | None = None
    cache_salt: Salt | None = None

    def params(self, limit: int | None, logprobs: int | None, n: int = 1) -> SamplingParams:
        """limit: tokens of the reply, at most."""
        return SamplingParams(
            max_tokens=limit,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            repetition_penalty=self.repetition_penalty,
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
        )
