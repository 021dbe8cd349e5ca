"""Requests as callers write them, and what it means for two outputs to be the same."""

import base64
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from bushel import LLM, Choice, Output, SamplingParams
from bushel.text.detokenizer import Decode
from tests.families.checkpoint import FIRST_SPECIAL, VOCAB

# The parity bound of float32: batch against solo, any chunk size.
BOUND = 1e-4


def ids(length: int, seed: int = 0) -> list[int]:
    """Ordinary tokens: none of them ends a reply or stands for an image."""
    first = FIRST_SPECIAL + 40
    return [int(token) for token in np.random.default_rng(seed).integers(first, VOCAB, length)]


def prompt(length: int, seed: int = 0) -> dict[str, Any]:
    return {"prompt_token_ids": ids(length, seed)}


def chat(*content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    """A request of one message; several arguments are its parts."""
    said = content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)
    return {"messages": [{"role": role, "content": said}], **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(source: Any) -> dict[str, Any]:
    url = data_url(source) if isinstance(source, Image.Image) else source
    return {"type": "image_url", "image_url": {"url": url}}


def video(source: Any) -> dict[str, Any]:
    url = data_url(source) if isinstance(source, Image.Image) else source
    return {"type": "video_url", "video_url": {"url": url}}


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def base64_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def data_url(picture: Image.Image) -> str:
    return base64_url(png(picture))


def greedy(max_tokens: int = 12, **more: Any) -> SamplingParams:
    settings = {"temperature": 0.0, "logprobs": 2, "ignore_eos": True, **more}
    return SamplingParams(max_tokens=max_tokens, **settings)


def hot(max_tokens: int = 16, **more: Any) -> SamplingParams:
    settings = {"temperature": 5.0, "seed": 7, "logprobs": 2, "ignore_eos": True, **more}
    return SamplingParams(max_tokens=max_tokens, **settings)


def forcing(*tokens: int) -> dict[int, float]:
    """A bias that leaves the model nothing but these tokens."""
    return dict.fromkeys(tokens, 1000.0)


def stop_string(
    tokens: Sequence[int], decode: Decode, places: Iterable[int]
) -> tuple[str, int] | None:
    """A text that one of these tokens of a reply writes, behind others, and which token that is."""
    for at in places:
        text, whole = decode([tokens[at]]), decode(tokens[: at + 1])
        if text.isprintable() and "\ufffd" not in text and whole.find(text) > 0:
            return text, at
    return None


def solo(llm: LLM, request: Any, params: SamplingParams) -> Output:
    """What the request gets when nobody else is there."""
    [output] = llm.generate([request], params)
    assert output.error is None
    return output


def prompt_ids(output: Output) -> list[int | None]:
    """The prompt as the model saw it, from a request with prompt_logprobs; None for the first."""
    assert output.prompt_logprobs is not None
    return [None if found is None else found.token_id for found in output.prompt_logprobs]


def assert_same(one: Output, two: Output) -> None:
    assert len(one.choices) == len(two.choices)
    for first, second in zip(one.choices, two.choices, strict=True):
        assert_same_choice(first, second)


def assert_same_choice(one: Choice, two: Choice) -> None:
    assert (one.token_ids, one.text) == (two.token_ids, two.text)
    assert (one.finish_reason, one.error) == (two.finish_reason, two.error)
    assert difference(one.logprobs, two.logprobs) < BOUND
    assert difference(one.prompt_logprobs, two.prompt_logprobs) < BOUND


def difference(one: Sequence[Any] | None, two: Sequence[Any] | None) -> float:
    """The largest difference of log-probabilities, or infinity where they are of other tokens.

    Neighbours in the list of the best may swap places when they are equal, so values at the
    same place are compared, and ids only where a token has been chosen.
    """
    if one is None or two is None:
        return 0.0 if one is two else float("inf")
    if len(one) != len(two):
        return float("inf")
    worst = 0.0
    for first, second in zip(one, two, strict=True):
        if first is None or second is None:
            if first is not second:
                return float("inf")
            continue
        if first.token_id != second.token_id or len(first.top) != len(second.top):
            return float("inf")
        mine = [first.logprob, *(value for _, value in first.top)]
        other = [second.logprob, *(value for _, value in second.top)]
        worst = max(worst, *(abs(a - b) for a, b in zip(mine, other, strict=True)))
    return worst
