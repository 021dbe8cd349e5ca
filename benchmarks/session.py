"""What an agent sends: a system prompt that lists its tools, questions, and results of tools.

The list stands there as text, and not in `tools`: how long a prompt is does not hang on what a
template makes of them. Results go as messages of the role tool.
"""

from __future__ import annotations

import json
import random
from typing import Any

# Of words like these, to one token of bushel:tiny's tokenizer.
_LETTERS = 2.4
_WORDS = (
    "the river", "a garden", "one bridge", "his hammer", "some coffee", "that castle", "a rabbit",
    "the kitchen", "old paper", "an engineer", "this station", "green grass", "a copper candle",
    "the library", "two lanterns", "sugar and honey", "a forest", "the winter", "some bread",
    "a rocket", "the meadow", "an invoice", "the alarm", "a mirror", "one database", "the cluster",
    "a summer storm", "the harbor", "a pencil", "her window",
)  # fmt: skip
_VERBS = ("carry", "find", "close", "paint", "collect", "rename", "check", "archive", "fetch")


def prose(seed: int | str, tokens: int) -> str:
    """About so many tokens of sentences that do not repeat."""
    chance, found, length = random.Random(f"prose {seed}"), list[str](), 0
    while length < (tokens - 10) * _LETTERS:
        one, two = chance.sample(_WORDS, 2)
        said = f"To {chance.choice(_VERBS)} {one} you need {two} and {chance.randrange(1000)}."
        found.append(said)
        length += len(said) + 1
    return " ".join(found)


def _tool(at: int) -> str:
    verb = _VERBS[at % len(_VERBS)]
    properties = {"name": {"type": "string"}, "number": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": ["name"]}
    function = {"name": f"{verb}_{at}", "description": prose(at, 60), "parameters": parameters}
    return json.dumps({"type": "function", "function": function})


def system(tokens: int) -> dict[str, Any]:
    """Of about so many tokens, half of them for tools."""
    tools, at = "", 0
    while len(tools) < tokens * _LETTERS / 2:
        tools += _tool(at) + "\n"
        at += 1
    rules = prose("rules", max(0, tokens - int(len(tools) / _LETTERS)))
    return {"role": "system", "content": f"You are an agent with tools.\n{tools}{rules}"}


def question(at: int | str) -> dict[str, Any]:
    return {"role": "user", "content": f"{prose(f'question {at}', 20)} What do you need first?"}


def following(turn: int, tokens: int) -> dict[str, Any]:
    """What is new in a turn of about so many tokens: every fourth is a question."""
    if turn % 4 == 1:
        return question(turn)
    return {"role": "tool", "content": prose(f"result {turn}", tokens)}
