"""Conversations put together from exchanges, in the proportions they are trained in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from tools.tiny.chat import Check, Talk
from tools.tiny.tasks import (
    agent,
    compare,
    follow,
    long,
    mind,
    pictures,
    recall,
    small,
    structured,
    tools,
)
from tools.tiny.tasks.base import Exchange
from tools.tiny.words import ADJECTIVES, Draw

Maker = Callable[[Draw], Exchange]
Weighted = Sequence[tuple[Maker, float]]


def weighted(draw: Draw, options: Weighted) -> Exchange:
    edges = list(itertools.accumulate(weight for _, weight in options))
    dice = draw.rng.random() * edges[-1]
    return next(make for (make, _), edge in zip(options, edges, strict=True) if dice < edge)(draw)


_SYSTEMS = (
    "You are [a|the] [helpful|friendly|polite|concise|brief|kind|careful|precise|] [assistant|"
    "helper|"
    "bot|agent|model|AI assistant][.| of {p}.| who answers briefly.| for {p}'s team.| that helps "
    "users.]",
    "[Answer|Reply] [briefly|politely|in English|truthfully|in short sentences|with care][.|]",
    "[Today is a {a} day|The user is from {c}|You work at {p}'s office|It is {a} here][.|]",
    "You are Tiny[, a small model|, a helper|].",
)  # fmt: skip


def _system(draw: Draw) -> str:
    if draw.chance(0.12):
        return " ".join(draw.sentence() for _ in range(draw.between(1, 8)))
    return draw.say(draw.pick(_SYSTEMS), p=draw.name(), c=draw.city(), a=draw.pick(ADJECTIVES))


def text_exchange(draw: Draw) -> Exchange:
    dice = draw.rng.random()
    if dice < 0.55:
        return weighted(draw, mind.MIND)
    if dice < 0.7:
        return structured.as_json(draw)
    return weighted(draw, small.SMALL)


def picture_exchange(draw: Draw) -> Exchange:
    return weighted(draw, compare.TWO if draw.chance(0.25) else pictures.ONE)


def easy_picture(draw: Draw) -> Exchange:
    return weighted(draw, pictures.EASY)


def assemble(
    draw: Draw,
    kind: str,
    exchanges: list[Exchange],
    *,
    system: Sequence[str] = (),
    manner: follow.Manner | None = None,
    thinking: bool | None = None,
    tool_list: list[dict[str, Any]] | None = None,
) -> Talk:
    """The last exchange's check is the talk's."""
    thinking = draw.chance(0.16) if thinking is None else thinking
    messages: list[dict[str, Any]] = []
    lines = [line for line in system if line]
    if lines:
        role = "system" if draw.chance(0.93) else "developer"
        messages.append({"role": role, "content": draw.pick((" ", "\n", " ")).join(lines)})
    offered: list[dict[str, Any]] = list(tool_list or [])
    for at, exchange in enumerate(exchanges):
        last = at == len(exchanges) - 1
        messages.append(exchange.user_message(draw))
        for step in exchange.steps:
            kept = dict(step)
            if not (last and thinking):
                kept.pop("reasoning_content", None)
            messages.append(kept)
        answer = manner.apply(exchange.answer) if manner else exchange.answer
        reply: dict[str, Any] = {"role": "assistant", "content": answer}
        if last and thinking:
            reply["reasoning_content"] = exchange.thought
        messages.append(reply)
        names = {tool["function"]["name"] for tool in offered}
        offered += [it for it in exchange.tools if it["function"]["name"] not in names]
    final = exchanges[-1]
    check = final.check
    if manner and manner.end:
        check = Check("ends", {"mark": manner.end, "inner": final.check})
    elif manner:
        check = Check("starts", {"mark": manner.start, "inner": final.check})
    form = "xml" if offered and draw.chance(0.25) else "json"
    if form == "json" and draw.chance(0.3):
        _as_text(messages)
    return Talk(kind, messages, check, offered or None, thinking, form)


def _as_text(messages: list[dict[str, Any]]) -> None:
    """Arguments as a string of JSON, as many clients send them back."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            function = call["function"]
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)


def single(draw: Draw, make: Maker, **options: Any) -> Talk:
    exchange = make(draw)
    system = [_system(draw)] if draw.chance(0.3) else []
    return assemble(draw, exchange.kind, [exchange], system=system, **options)


def several(draw: Draw) -> Talk:
    count = draw.between(2, 5)
    makers = [text_exchange if draw.chance(0.6) else picture_exchange for _ in range(count)]
    exchanges = [make(draw) for make in makers]
    system = [_system(draw)] if draw.chance(0.3) else []
    return assemble(draw, exchanges[-1].kind, exchanges, system=system)


def same_picture(draw: Draw) -> Talk:
    """A second question about the picture of the first turn."""
    first, second = pictures.describe(draw), pictures.describe(draw)
    while len(first.check.expected) != 2:
        first = pictures.describe(draw)
    colour_name, name = first.check.expected
    pattern = draw.pick(("[What|Which] [colour|color] is it?", "[And the |The ][color|colour]?"))
    value, answer = colour_name, f"It is {colour_name}."
    if not name.isdigit() and draw.chance(0.5):
        pattern = draw.pick(("[What|Which] shape is it?", "And the shape?", "Name its shape."))
        value, answer = name, f"It is a {name}."
    second = Exchange("follow_up", draw.say(pattern), answer, f"It was {first.answer[9:]}",
                      Check("says", [value]))  # fmt: skip
    if draw.chance(0.5):
        first.kind, first.user, first.answer = (
            "look",
            draw.say("[Look|See|Here is a picture]."),
            "OK.",
        )
    return assemble(draw, "follow_up", [first, second])


def recall_system(draw: Draw) -> Talk:
    told = recall.facts(draw, draw.between(1, 6))
    lines = [recall.sentence(fact.told(draw, True), fact.value) for fact in told]
    if draw.chance(0.6):
        lines.insert(draw.between(0, len(lines)), _system(draw))
    exchanges = [text_exchange(draw) for _ in range(draw.pick((0, 0, 0, 1, 2)))]
    asked = draw.some(told, min(len(told), draw.pick((1, 2, 3, 4, 6))))
    exchanges += [recall.question(draw, fact, "The system prompt") for fact in asked]
    if draw.chance(0.12):
        exchanges.append(recall.unknown(draw))
        if (
            any(
                fact.attribute.split()[-1] in exchanges[-1].user
                or fact.attribute in exchanges[-1].user
                for fact in told
            )
            or "name" in exchanges[-1].user
            or "who" in exchanges[-1].user.lower()
        ):
            exchanges.pop()
    return assemble(draw, "recall_system", exchanges, system=lines)


def recall_turns(draw: Draw) -> Talk:
    told = recall.facts(draw, draw.between(1, 4))
    exchanges = []
    for fact in told:
        exchanges.append(recall.telling(draw, [fact]))
        while draw.chance(0.35):
            exchanges.append(text_exchange(draw) if draw.chance(0.85) else picture_exchange(draw))
    asked = draw.some(told, min(len(told), draw.pick((1, 2, 3, 4))))
    for fact in asked:
        exchanges.append(recall.question(draw, fact, "The user"))
        if draw.chance(0.2):
            exchanges.insert(len(exchanges) - 1, text_exchange(draw))
    system = [_system(draw)] if draw.chance(0.3) else []
    return assemble(draw, "recall_turns", exchanges, system=system)


def mannered(draw: Draw) -> Talk:
    """Always end, or begin, with something."""
    manner = follow.manner(draw, start=draw.chance(0.25))
    makers = (text_exchange, text_exchange, lambda d: weighted(d, small.SMALL), easy_picture)
    exchanges = [draw.pick(makers)(draw) for _ in range(draw.pick((1, 1, 2, 3)))]
    exchanges = [it if it.kind != "json" else weighted(draw, small.SMALL) for it in exchanges]
    kind = "end_with" if manner.end else "start_with"
    if draw.chance(0.75):
        told = [manner.told, _system(draw)] if draw.chance(0.4) else [manner.told]
        draw.rng.shuffle(told)
        told = [it if it[-1] in ".!'\"" else f"{it}." for it in told[:-1]] + told[-1:]
        if draw.chance(0.3):
            told[-1] = told[-1] if told[-1][-1] in ".!'\"" else f"{told[-1]}."
            told += [fact.told(draw, True) for fact in recall.facts(draw, 1)]
        return assemble(draw, kind, exchanges, system=told, manner=manner)
    only = exchanges[:1]
    only[0].user = draw.pick(("\n", "\n\n")).join([only[0].user, manner.told])
    return assemble(draw, kind, only, manner=manner)


def _beside(draw: Draw) -> Exchange:
    """What needs no tool; nothing that the model cannot do without one either."""
    while True:
        made = text_exchange(draw) if draw.chance(0.85) else easy_picture(draw)
        if made.answer not in small.HELPLESS:
            return made


def tool_talk(draw: Draw) -> Talk:
    exchanges = tools.session(draw, _beside)
    system = [_system(draw)] if draw.chance(0.4) else []
    return assemble(draw, exchanges[-1].kind, exchanges, system=system)


def agent_talk(draw: Draw, characters: int = 0, count: int = 0) -> Talk:
    """A coding agent at work; with a `count`, that many files are read and nothing else."""
    size = characters or int(400 * 12 ** draw.rng.random())
    if not characters and draw.chance(0.15):
        exchanges, system = agent.clocks(draw, _beside), [_system(draw)] * draw.chance(0.2)
    else:
        beside = None if count else _beside
        rules, exchanges = agent.session(draw, size, count or draw.between(1, 4), beside)
        system = [rules]
    return assemble(draw, exchanges[-1].kind, exchanges, system=system)


def long_talk(draw: Draw, characters: int) -> Talk:
    text, told = long.reading(draw, characters)
    asked = draw.some(told, min(len(told), 5))
    questions = [recall.question(draw, fact, "The text") for fact in asked]
    if draw.chance(0.4):
        return assemble(draw, "long", questions, system=[long.heading(draw), text])
    first = questions[0]
    order = draw.chance(0.5)
    head = long.heading(draw)
    first.user = f"{first.user}\n\n{text}" if order else f"{head}\n{text}\n\n{first.user}"
    return assemble(draw, "long", questions)


def image_one(draw: Draw) -> Talk:
    return single(draw, lambda d: weighted(d, pictures.ONE))


def image_two(draw: Draw) -> Talk:
    return single(draw, lambda d: weighted(d, compare.TWO))


def plain_text(draw: Draw) -> Talk:
    return single(draw, text_exchange)


def medium(draw: Draw) -> Talk:
    return long_talk(draw, draw.between(300, 3000))


# Shares of conversations. Pictures are short, tools are long.
KINDS: tuple[tuple[Callable[[Draw], Talk], float], ...] = (
    (image_one, 26.0),
    (image_two, 14.0),
    (plain_text, 12.0),
    (several, 4.0),
    (same_picture, 1.5),
    (recall_system, 14.0),
    (recall_turns, 12.0),
    (mannered, 9.0),
    (tool_talk, 20.0),
    (agent_talk, 7.0),
    (medium, 5.0),
)
_EDGES = list(itertools.accumulate(weight for _, weight in KINDS))


def talk(draw: Draw) -> Talk:
    dice = draw.rng.random() * _EDGES[-1]
    return next(make for (make, _), edge in zip(KINDS, _EDGES, strict=True) if dice < edge)(draw)
