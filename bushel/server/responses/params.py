"""From a Responses request's fields to `SamplingParams`."""

from __future__ import annotations

from bushel.core import SamplingParams
from bushel.server.responses.schema import ResponsesRequest


def response_params(body: ResponsesRequest) -> SamplingParams:
    return SamplingParams(
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        # The field's validator turns JSON's string keys into ids.
        logit_bias=body.logit_bias,  # type: ignore[arg-type]
        min_tokens=body.min_tokens or 0,
        ignore_eos=bool(body.ignore_eos),
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        logprobs=body.logprobs,
    )
