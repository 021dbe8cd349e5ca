"""Samplers by the names that clients of llama.cpp, mlx-lm and vLLM send."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.server.server_process import PATIENCE, Server

PROMPT = "Once upon a time there was a cat. The cat sat. The cat"
STORY: list[Any] = [{"role": "user", "content": "Tell me a story."}]
# By the field that says it: what it is sent with.
SAMPLERS: dict[str, dict[str, Any]] = {
    "typical_p": {"typical_p": 0.2},
    "top_n_sigma": {"top_n_sigma": 0.2},
    "xtc_probability": {"xtc_probability": 1.0, "xtc_threshold": 0.01},
    "xtc_threshold": {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_k": 10},
    "dry_multiplier": {"dry_multiplier": 50.0},
    "dry_base": {"dry_multiplier": 0.5, "dry_base": 50.0, "dry_allowed_length": 1},
    "dry_allowed_length": {"dry_multiplier": 50.0, "dry_allowed_length": 1},
    "dry_penalty_last_n": {"dry_multiplier": 50.0, "dry_penalty_last_n": 12},
    "dry_sequence_breakers": {"dry_multiplier": 50.0, "dry_sequence_breakers": ["t", "<|im_end|>"]},
    "repeat_last_n": {"repetition_penalty": 3.0, "repeat_last_n": 4},
    "repetition_context_size": {"repetition_penalty": 3.0, "repetition_context_size": 4},
    "repeat_penalty": {"repeat_penalty": 3.0},
}


def drawn(client: openai.OpenAI, seed: int = 3, **fields: Any) -> Any:
    body = {"ignore_eos": True, "temperature": 1.5, **fields}
    [choice] = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=12, seed=seed, logprobs=2, extra_body=body
    ).choices
    return choice


@pytest.fixture(scope="module")
def plain(client: openai.OpenAI) -> str:
    return str(drawn(client).text)


@pytest.fixture(scope="module")
def alone(client: openai.OpenAI) -> dict[str, Any]:
    return {name: drawn(client, **said) for name, said in SAMPLERS.items()}


@pytest.mark.parametrize("name", one_in(2, SAMPLERS))
def test_a_sampler_is_obeyed(alone: dict[str, Any], plain: str, name: str) -> None:
    """Breakers take back what DRY does; all others change what a seed gives."""
    breakers = name == "dry_sequence_breakers"
    assert alone[name].text != (alone["dry_multiplier"].text if breakers else plain)


def test_a_seed_gives_the_same_again_and_another_one_another_reply(
    client: openai.OpenAI, alone: dict[str, Any]
) -> None:
    name = "xtc_probability"
    assert drawn(client, **SAMPLERS[name]).text == alone[name].text
    assert drawn(client, 4, **SAMPLERS[name]).text != alone[name].text


@pytest.mark.long
def test_samplers_of_requests_at_once_do_not_mix(
    client: openai.OpenAI, alone: dict[str, Any]
) -> None:
    """Texts and log-probabilities are those of each request alone."""
    with ThreadPoolExecutor(len(SAMPLERS)) as threads:
        asked = {name: threads.submit(drawn, client, **said) for name, said in SAMPLERS.items()}
        together = {name: future.result() for name, future in asked.items()}
    for name, choice in together.items():
        assert choice.text == alone[name].text, name
        values = zip(
            choice.logprobs.token_logprobs, alone[name].logprobs.token_logprobs, strict=True
        )
        assert max(abs(one - two) for one, two in values) < 1e-4


@pytest.mark.parametrize(
    "off",
    one_in(
        3,
        [
            {"typical_p": 1.0, "top_n_sigma": -1, "xtc_probability": 0, "xtc_threshold": 0.1},
            {
                "dry_multiplier": 0,
                "dry_base": 1.75,
                "dry_allowed_length": 2,
                "dry_penalty_last_n": -1,
            },
            {"dry_multiplier": 9, "dry_penalty_last_n": 0},
            {"dry_sequence_breakers": ["###"]},
            {"repeat_penalty": 1.0, "repeat_last_n": 64},
            {"repeat_penalty": 3.0, "repeat_last_n": 0},
            {"mirostat": 0, "dynatemp_range": 0.0},
        ],
    ),
    ids=str,
)
def test_what_is_sent_to_say_off_is_off(
    client: openai.OpenAI, plain: str, off: dict[str, Any]
) -> None:
    """As clients of llama.cpp do with every request."""
    assert drawn(client, **off).text == plain


@pytest.mark.parametrize(
    ("field", "said"),
    one_in(
        3,
        [
            ("typical_p", {"typical_p": 1.5}),
            ("top_n_sigma", {"top_n_sigma": "one"}),
            ("xtc_probability", {"xtc_probability": 2}),
            ("xtc_threshold", {"xtc_threshold": -1}),
            ("dry_multiplier", {"dry_multiplier": -1}),
            ("dry_base", {"dry_base": 0.5}),
            ("dry_allowed_length", {"dry_allowed_length": 1.5}),
            ("dry_penalty_last_n", {"dry_penalty_last_n": -2}),
            ("dry_sequence_breakers", {"dry_sequence_breakers": "\n"}),
            ("dry_sequence_breakers", {"dry_multiplier": 1, "dry_sequence_breakers": ["\n\n"]}),
            ("repeat_last_n", {"repeat_last_n": -2}),
            ("repetition_context_size", {"repetition_context_size": "x"}),
            ("repeat_penalty", {"repeat_penalty": 0}),
            ("mirostat", {"mirostat": 2}),
            ("dynatemp_range", {"dynatemp_range": 0.5}),
            ("frequency_context_size", {"frequency_context_size": 20}),
        ],
    ),
    ids=str,
)
def test_what_is_wrong_or_cannot_be_done_is_a_400_that_names_it(
    client: openai.OpenAI, field: str, said: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        drawn(client, **said)
    assert str(raised.value.param).startswith(field)
    assert field in raised.value.body["message"]  # type: ignore[index]


@pytest.mark.parametrize("name", one_in(2, ["xtc_probability", "dry_multiplier"]))
def test_other_apis_take_them_too(client: openai.OpenAI, server: Server, name: str) -> None:
    def chat(extra: dict[str, Any]) -> str | None:
        made = client.chat.completions.create(
            model=MODEL, messages=STORY, max_tokens=10, temperature=2, seed=1, extra_body=extra
        )
        return made.choices[0].message.content

    def respond(extra: dict[str, Any]) -> str:
        fields = {"seed": 1, **extra}
        return client.responses.create(
            model=MODEL, input=STORY, max_output_tokens=10, temperature=2, extra_body=fields
        ).output_text

    with anthropic.Anthropic(base_url=server.url, api_key="any", timeout=PATIENCE) as claude:

        def message(extra: dict[str, Any]) -> str:
            fields = {"seed": 1, "temperature": 2, **extra}
            made = claude.messages.create(
                model=MODEL, messages=STORY, max_tokens=10, extra_body=fields
            )
            return "".join(getattr(block, "text", "") for block in made.content)

        said = {**SAMPLERS[name], "dry_allowed_length": 0}
        for ask in (chat, respond, message):
            assert ask(said) != ask({})
