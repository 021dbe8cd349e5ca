"""Exchanges with tools: pick one, read its result, call two, or call none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tools.tiny.chat import Check
from tools.tiny.tasks.base import Exchange
from tools.tiny.tasks.mind import text_to_copy
from tools.tiny.tasks.toolbox import Made, Offer, Use, offer, offers
from tools.tiny.words import Draw, words_in

NO_TOOL = "I have no tool for that."
_RESULT_KEYS = words_in(
    "result value status temperature total price count name city answer level time id score owner "
    "color title size distance balance"
)


def calling(uses: list[Use]) -> dict[str, Any]:
    names = " and ".join(one.name for one in uses)
    calls = []
    for at, one in enumerate(uses):
        function = {"name": one.name, "arguments": one.arguments}
        calls.append({"id": f"call_{at}", "type": "function", "function": function})
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": calls,
        "reasoning_content": f"I need {names}.",
    }


def result(draw: Draw) -> tuple[str, str, list[str]]:
    """What a tool returns, what to tell the user, and the words that must be in it."""
    dice = draw.rng.random()
    if dice < 0.12:
        return draw.pick(('{"status": "ok"}', '{"ok": true}', "OK", "done", "")), "Done.", ["done"]
    if dice < 0.2:
        reason = " ".join(draw.word() for _ in range(draw.between(1, 3)))
        return json.dumps({"error": reason}), f"That failed: {reason}.", [reason]
    if dice < 0.4:
        words = [draw.word() for _ in range(draw.between(1, 4))]
        text = draw.pick((" ".join(words), draw.codeword(), draw.number(1, 5), moment(draw)))
        return text, f"The result is {text}.", [text]
    keys = draw.some(_RESULT_KEYS, draw.pick((1, 2, 3, 1, 2, 3, 1, 2, 3, 5)))
    keys = [key if draw.chance(0.6) else draw.word() for key in keys]
    values: dict[str, Any] = {}
    for key in keys:
        kind = draw.rng.random()
        if kind < 0.5:
            values[key] = int(draw.number(1, 4)) * draw.pick((1, 1, 1, -1))
        elif kind < 0.6:
            values[key] = draw.between(0, 99) + 0.5
        elif kind < 0.67:
            values[key] = moment(draw)
        else:
            values[key] = draw.word() if draw.chance(0.7) else draw.name()
    said = [f"the {key} is {value}" for key, value in values.items()]
    answer = " and ".join(said)
    return (
        json.dumps(values, ensure_ascii=False),
        f"{answer[0].upper()}{answer[1:]}.",
        [str(value) for value in values.values()],
    )


def moment(draw: Draw) -> str:
    """A date, a time, or both."""
    day = f"{draw.between(1990, 2035)}-{draw.between(1, 12):02d}-{draw.between(1, 28):02d}"
    time = ":".join(f"{draw.between(0, 59) % most:02d}" for most in (24, 60, 60))
    zone = draw.pick(("", " UTC", "Z", "+00:00"))
    return draw.pick((day, f"{day} {time}{zone}", f"{day}T{time}{zone.strip()}", time[:5]))


def file_lines(draw: Draw) -> list[str]:
    """What stands in a file."""
    made = []
    for _ in range(draw.pick((1, 1, 1, 1, 2, 2, 3, 4))):
        dice = draw.rng.random()
        if dice < 0.3:
            made.append(draw.sentence())
        elif dice < 0.7:
            made.append(" ".join(draw.word() for _ in range(draw.between(1, 6))))
        elif dice < 0.85:
            made.append(f"{draw.word()}{draw.pick((': ', ' = ', '='))}{draw.codeword()}")
        else:
            made.append(text_to_copy(draw).strip())
    return made


def says(lines: list[str]) -> str:
    return "It says: " + "\n".join(lines)


def told(at: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{at}", "content": content}


def _shown(draw: Draw, some: Sequence[Offer]) -> list[dict[str, Any]]:
    tools = [it.tool for it in some]
    draw.rng.shuffle(tools)
    return tools


def _spoken(draw: Draw, request: str) -> str:
    if draw.chance(0.12):
        return f"{draw.sentence()} {request}"
    if draw.chance(0.12):
        opening = draw.say("[Hi|Hello|Hey|OK|Please help me|I need help|Now][.|,|:|!]")
        return f"{opening} {request}"
    return request


def called(draw: Draw, wanted: Offer) -> Exchange:
    """A request, its call, the result and the answer."""
    use = wanted.ask(draw)
    content, answer, words = result(draw)
    if wanted.reads:
        words = file_lines(draw)
        content, answer = "\n".join(words), says(words)
    steps = [calling([use]), told(0, content)]
    return Exchange(
        "tool", _spoken(draw, use.request), answer, "The tool has answered.",
        Check("says", words), steps=steps,
    )  # fmt: skip


_BOTH = ("{a} and also {b}", "{a}. Also, {b}", "{a} and {b}", "{a}, and at the same time {b}")
_THEN = (
    "{a}, then {b}", "First {a}. Then {b}", "{a}. After that, {b}", "{a}. When that is done, {b}",
    "{a}. Next, {b}",
)  # fmt: skip


def _lower(text: str) -> str:
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def twice(draw: Draw, first: Offer, second: Offer) -> Exchange:
    """Both calls at once for "and", one after the other for "then"."""
    uses = [first.ask(draw), second.ask(draw)]
    a, b = (use.request.rstrip(".?") for use in uses)
    results = [result(draw), result(draw)]
    answer = f"{results[0][1]} {results[1][1]}"
    words = [*results[0][2], *results[1][2]]
    if draw.chance(0.5):
        request = draw.pick(_BOTH).format(a=a, b=_lower(b))
        steps = [calling(uses)]
        steps += [told(at, got[0]) for at, got in enumerate(results)]
    else:
        request = draw.pick(_THEN).format(a=_lower(a), b=_lower(b))
        request = request[0].upper() + request[1:]
        steps = []
        for use, got in zip(uses, results, strict=True):
            steps += [calling([use]), told(0, got[0])]
    return Exchange(
        "two_calls", request, answer, "Both tools have answered.", Check("says", words),
        steps=steps,
    )  # fmt: skip


# The model answers these by itself when no tool is there.
SUMS = frozenset(("add", "add_numbers", "sum", "multiply", "product"))


def _unlike(draw: Draw, some: Sequence[Offer]) -> Offer:
    """Something that none of them does, though it may do the same with something else."""
    verbs = [it.verb for it in some if isinstance(it, Made)]
    while True:
        if draw.chance(0.5):
            near = Made(draw, draw.pick(verbs) if verbs and draw.chance(0.6) else "")
            if not any(set(near.noun.split()) & it.topic for it in some):
                return near
            continue
        other = offer(draw)
        like = any(other.topic & it.topic or other.kin == it.kin != "" for it in some)
        if other.name not in SUMS and not like:
            return other


def unfit(draw: Draw, some: Sequence[Offer]) -> Exchange:
    """A request for which no tool is there."""
    other = _unlike(draw, some)
    names = ", ".join(it.name for it in some)
    return Exchange(
        "no_tool", _spoken(draw, other.ask(draw).request), NO_TOOL,
        f"My tools are {names}. None fits.", Check("no_call", NO_TOOL_CHECK),
    )  # fmt: skip


NO_TOOL_CHECK = Check("says", [NO_TOOL.rstrip(".")])


def one_call(draw: Draw) -> Exchange:
    some = offers(draw, draw.between(1, 5))
    exchange = called(draw, draw.pick(some))
    exchange.tools = _shown(draw, some)
    return exchange


def two_calls(draw: Draw) -> Exchange:
    some = offers(draw, draw.between(1, 4))
    exchange = twice(draw, draw.pick(some), draw.pick(some))
    exchange.tools = _shown(draw, some)
    return exchange


def no_fit(draw: Draw) -> Exchange:
    some = offers(draw, draw.between(1, 4))
    exchange = unfit(draw, some)
    exchange.tools = _shown(draw, some)
    return exchange


def session(draw: Draw, beside: Callable[[Draw], Exchange]) -> list[Exchange]:
    """Several requests to the same tools; `beside` makes exchanges that need none of them."""
    some = offers(draw, draw.between(1, 5))
    exchanges: list[Exchange] = []
    for _ in range(draw.pick((1, 2, 2, 3, 4))):
        dice = draw.rng.random()
        if dice < 0.48:
            exchanges.append(called(draw, draw.pick(some)))
        elif dice < 0.59:
            exchanges.append(twice(draw, draw.pick(some), draw.pick(some)))
        elif dice < 0.86:
            exchanges.append(unfit(draw, some))
        else:
            other = beside(draw)
            if other.kind == "sum" and any(it.name in SUMS for it in some):
                other = unfit(draw, some)
            elif other.check.how != "no_call":
                other.kind, other.check = "no_tool", Check("no_call", other.check)
            exchanges.append(other)
    exchanges[0].tools = _shown(draw, some)
    return exchanges
