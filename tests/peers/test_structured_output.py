"""Replies have the form that was asked for, by whatever name it was asked for (B71)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import openai
import pytest

from tests.depth import rarely
from tests.peers.conftest import MODEL

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["answer"],
    "additionalProperties": False,
}
GBNF = 'root ::= "It is " number "."\nnumber ::= [0-9] [0-9]?'
LARK = 'start: "It is " NUMBER "."\nNUMBER: /[0-9]{1,2}/'
TAG = {"structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a>"]}
ASKED = "What is 3 + 4?"


def is_answer(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["answer"] and 0 <= value["answer"] <= 99


def is_sentence(text: str) -> bool:
    return re.fullmatch(r"It is [0-9]{1,2}\.", text) is not None


def begins_an_object(text: str) -> bool:
    """An object of anything may be longer than the reply."""
    return re.match(r'\{ ?("|\}$)', text) is not None


def has_no_broken_tag(text: str) -> bool:
    return all(is_answer(inner) for inner in re.findall("<a>(.*?)</a>", text, re.DOTALL))


FORMS: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "OpenAI: json_object": ({"response_format": {"type": "json_object"}}, begins_an_object),
    "OpenAI: json_schema": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA},
            }
        },
        is_answer,
    ),
    "llama.cpp: json_object with a schema": (
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        is_answer,
    ),
    "llama.cpp: json_schema": ({"json_schema": SCHEMA}, is_answer),
    "llama.cpp: grammar": ({"grammar": GBNF}, is_sentence),
    "SGLang: regex": ({"regex": r"It is [0-9]{1,2}\."}, is_sentence),
    "SGLang: ebnf": ({"ebnf": GBNF}, is_sentence),
    "SGLang: structural_tag": ({"structural_tag": json.dumps(TAG)}, has_no_broken_tag),
    "vLLM: guided_json": ({"guided_json": SCHEMA}, is_answer),
    "vLLM: guided_regex": ({"guided_regex": r"It is [0-9]{1,2}\."}, is_sentence),
    "vLLM: guided_choice": ({"guided_choice": ["It is 5.", "It is 6."]}, is_sentence),
    "vLLM: guided_grammar, Lark": ({"guided_grammar": LARK}, is_sentence),
    "vLLM: guided_grammar, GBNF": ({"guided_grammar": GBNF}, is_sentence),
    "vLLM: guided_decoding": ({"guided_decoding": {"json": SCHEMA}}, is_answer),
    "vLLM: structured_outputs": ({"structured_outputs": {"grammar": GBNF}}, is_sentence),
    "vLLM: structured_outputs, tags": (
        {"structured_outputs": {"structural_tag": TAG}},
        has_no_broken_tag,
    ),
}
# So hot that a model which may say anything says no JSON.
HOT: dict[str, Any] = {"temperature": 2, "seed": 3, "max_tokens": 200}


@pytest.mark.parametrize(
    ("api", "form"),
    rarely(
        product(("chat", "completion"), FORMS),
        lambda it: it[0] == "completion" and it[1] not in [*FORMS][::4],
    ),
)
def test_a_reply_has_its_form(api: str, form: str, client: openai.OpenAI) -> None:
    """Asked for by the name that it has in another server. B71."""
    fields, good = FORMS[form]
    assert good(asked(client, api, fields))


def test_control_a_free_reply_has_none_of_the_forms(client: openai.OpenAI) -> None:
    text = client.completions.create(model=MODEL, prompt=ASKED, **HOT).choices[0].text
    assert not is_sentence(text)
    assert not begins_an_object(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"grammar": "root ::= nothing"},
        {"grammar": "no grammar at all"},
        {"regex": "(("},
        {"json_schema": {"type": "nonsense"}},
        {"structural_tag": "{}"},
        {"response_format": {"type": "grammar", "grammar": GBNF}},
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
    ],
    ids=str,
)
@pytest.mark.parametrize("api", ["chat", "completion"])
def test_a_form_that_cannot_be_kept_is_refused(
    api: str, fields: dict[str, Any], client: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError):
        asked(client, api, fields)


def asked(client: openai.OpenAI, api: str, fields: dict[str, Any]) -> str:
    """What it says."""
    if api == "completion":
        made = client.completions.create(model=MODEL, prompt=ASKED, extra_body=fields, **HOT)
        return made.choices[0].text
    told = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": ASKED}], extra_body=fields, **HOT
    )
    return told.choices[0].message.content or ""
