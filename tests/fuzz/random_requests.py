"""Requests of every sort, drawn from a seed; nothing here knows of a model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from tests.families.checkpoint import FIRST_SPECIAL, VOCAB

Tokens = tuple[int, ...]

LONGEST_PROMPT = 230  # tokens, of those that are given as tokens
LONGEST_REPLY = 12
TEXTS = ("Why?", "What is it then, and why is it so?", "Look: ab ab ab", "Zürich 今天", "a b c")
SHAPES: tuple[dict[str, Any], ...] = (
    {"choice": ["red", "light green", "blue"]},
    {"regex": "[a-f]{2,9}(-[0-9]{1,3})?"},
    {"json_object": True},
    {"json_schema": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}},
    {"grammar": 'start: "yes" | "no" " "* NAME\nNAME: /[a-z]+/'},
)


@dataclass(frozen=True)
class Turn:
    """A user's message: pictures, as (size, seed), and a text."""

    text: str
    pictures: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Ask:
    """A prompt of tokens, or a conversation (`turns`), perhaps after another ask's.

    after: an earlier ask of the same sort, whose prompt comes first. reply: so many tokens of
    that one's reply, or its whole text in a conversation, follow.
    """

    ids: Tokens = ()
    turns: tuple[Turn, ...] = ()
    system: str = ""
    after: int | None = None
    reply: int = 0
    shape: dict[str, Any] | None = None
    salt: str = ""
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def talks(self) -> bool:
        return bool(self.turns)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is said, whatever was said before."""
        changed = ("penalty", "bias", "min_tokens")
        plain = not any(part in name for name in self.params for part in changed)
        return plain and self.params["temperature"] == 0 and self.shape is None


HEADS = 3  # of `draw_crowded`: its first asks


def draw_crowded(rng: random.Random, knots: int) -> list[Ask]:
    """A few heads; then, again and again, a prompt that goes on from one and may wait for its file,
    one that parts from it early and waits for nothing, and one that takes the room of both.
    """

    def ask(ids: Tokens, share: float) -> Ask:
        whole = {"prompt_logprobs": 0} if rng.random() < share else {}
        return Ask(ids, params={**_params(rng), "max_tokens": rng.randrange(1, 4), **whole})

    heads = [_ids(rng, 110) for _ in range(HEADS)]
    asks = [ask(head + _ids(rng, 1), 0) for head in heads]
    for _ in range(knots):
        head = rng.choice(heads)
        goes_on = head[: rng.choice([40, 60, 109])] + _ids(rng, 3)
        parts = head[: rng.choice([1, 10, 30])] + _ids(rng, rng.choice([3, 30]))
        knot = [ask(goes_on, 0.05), ask(parts, 0.8), ask(_ids(rng, rng.choice([90, 130])), 0.5)]
        asks += knot if rng.random() < 0.7 else rng.sample(knot, 3)
    return asks


def draw_asks(rng: random.Random, count: int, sees: bool) -> list[Ask]:
    heads = [_ids(rng, 110) for _ in range(2)]
    asks: list[Ask] = []
    for _ in range(count):
        talks = rng.random() < (0.6 if sees else 0.25)
        same = [at for at, ask in enumerate(asks) if ask.talks == talks]
        if same and rng.random() < 0.2:
            ask = _again(rng, asks[rng.choice(same)])
        else:
            ask = _talk(rng, same, sees) if talks else _tokens(rng, same, heads)
        asks.append(ask)
    return asks


def _ids(rng: random.Random, count: int) -> Tokens:
    return tuple(rng.choices(range(FIRST_SPECIAL, VOCAB), k=count))


def _tokens(rng: random.Random, same: list[int], heads: list[Tokens]) -> Ask:
    """Something new, the beginning of what many share, or what follows an earlier one."""
    own = _ids(rng, rng.choice([1, 2, 3, 5, 20, 30, 60]))
    sort, params = rng.random(), _params(rng)
    if sort < 0.3 and same:
        return Ask(own, after=rng.choice(same), reply=rng.choice([0, 1, 3, 99]), params=params)
    if sort < 0.8:
        head = rng.choice(heads)[: rng.choice([10, 10, 50, 60, 109, 110])]
        return Ask(head + own, params=params, salt=rng.choice(["", "", "", "salt"]))
    return Ask(own + _ids(rng, rng.choice([0, 1, 10, 130])), params=params)


def _talk(rng: random.Random, same: list[int], sees: bool) -> Ask:
    pictures = tuple((rng.randrange(3), rng.randrange(3)) for _ in range(rng.choice([0, 1, 1, 2])))
    turn = Turn(rng.choice(TEXTS), pictures if sees else ())
    shape, params = rng.choice(SHAPES) if rng.random() < 0.4 else None, _params(rng)
    if shape is not None and rng.random() < 0.9:  # or it may neither end nor go on
        params = {it: params[it] for it in params if it not in ("ignore_eos", "min_tokens")}
    return Ask(
        turns=(turn,),
        system=rng.choice(["", "You see."]),
        after=rng.choice(same) if same and rng.random() < 0.4 else None,
        reply=99,
        shape=shape,
        params=params,
    )


def _again(rng: random.Random, ask: Ask) -> Ask:
    """The same prompt, decoded in another way."""
    return replace(ask, params=_params(rng), shape=None)


def _params(rng: random.Random) -> dict[str, Any]:
    def some(share: float, **said: Any) -> dict[str, Any]:
        return said if rng.random() < share else {}

    warm = rng.random() < 0.6
    return {
        "max_tokens": rng.randrange(1, LONGEST_REPLY + 1),
        "temperature": rng.choice([0.5, 1.0, 2.0]) if warm else 0.0,
        "seed": rng.randrange(1000),
        **some(0.8, ignore_eos=True),
        **some(0.3, top_p=rng.choice([0.1, 0.8, 0.95])),
        **some(0.3, top_k=rng.choice([1, 5, 40])),
        **some(0.2, min_p=rng.choice([0.02, 0.3])),
        **some(0.2, repetition_penalty=rng.choice([0.8, 1.3])),
        **some(0.2, presence_penalty=rng.choice([-1.0, 1.5])),
        **some(0.2, frequency_penalty=rng.choice([-0.5, 1.5])),
        **some(0.15, logit_bias={str(it): rng.choice([-5.0, 5.0]) for it in _ids(rng, 6)}),
        **some(0.15, min_tokens=rng.randrange(6)),
        **some(0.15, stop=rng.sample(["e", "a", "st", " ", "1"], 2)),
        **some(0.15, stop_token_ids=sorted(_ids(rng, 25))),
        **some(0.2, n=rng.choice([2, 3])),
        **some(0.1, prompt_logprobs=0),
    }
