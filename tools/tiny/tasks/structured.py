"""Answers as JSON, for a schema or a list of keys."""

from __future__ import annotations

import json
from typing import Any

from tools.tiny.chat import Check
from tools.tiny.tasks.base import Exchange
from tools.tiny.words import Draw

_FIELDS: dict[str, tuple[str, str]] = {
    "name": ("string", "name"), "age": ("integer", "age"), "city": ("string", "city"),
    "job": ("string", "noun"), "pet": ("string", "noun"), "price": ("number", "price"),
    "color": ("string", "colour"), "quantity": ("integer", "count"), "code": ("string", "code"),
    "active": ("boolean", "yes"), "country": ("string", "city"), "item": ("string", "noun"),
    "score": ("integer", "count"), "member": ("boolean", "yes"), "email": ("string", "email"),
    "year": ("integer", "year"), "tags": ("array", "words"), "title": ("string", "word"),
}  # fmt: skip


def _value(draw: Draw, how: str) -> Any:
    match how:
        case "name":
            return draw.name()
        case "city":
            return draw.city()
        case "age":
            return draw.between(2, 99)
        case "noun":
            return draw.noun()
        case "price":
            return draw.between(1, 99) + draw.pick((0.5, 0.25, 0.75, 0.99, 0.95))
        case "colour":
            return draw.pick(("red", "blue", "green", "yellow", "black", "white"))
        case "count":
            return draw.between(0, 500)
        case "code":
            return draw.codeword()
        case "yes":
            return draw.chance(0.5)
        case "email":
            return f"{draw.made_word()}@{draw.made_word()}.com"
        case "year":
            return draw.between(1900, 2030)
        case "words":
            return [draw.word() for _ in range(draw.between(1, 3))]
    return draw.word()


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _told(draw: Draw, record: dict[str, Any]) -> str:
    style = draw.between(0, 2)
    if style == 0:
        return ", ".join(f"{key} {_plain(value)}" for key, value in record.items())
    if style == 1:
        return " ".join(f"The {key} is {_plain(value)}." for key, value in record.items())
    return "; ".join(f"{key}: {_plain(value)}" for key, value in record.items())


_ASK = (
    "[Give|Write|Return|Output|Show|Answer|Reply with] [this|the data|it|the following] [as|in] "
    "JSON "
    "with [the |][keys|fields] {k}: {t}",
    "[Extract|Get|Find] {k} [as|in] JSON [from|out of]: {t}",
    "{t}\n\n[Return|Write|Give me|Answer with] a JSON object with {k}.",
    "[Convert|Turn] [this|the text] [to|into] JSON ({k}): {t}",
)
_SCHEMA = (
    "[Answer|Reply|Respond] [only |][in|with|as] JSON [that matches|for|that follows|according to] "
    "[this|the] schema: {s}\n\n{t}",
    "{t}\n\n[Use|Follow|Obey] this JSON schema: {s}",
    "Schema: {s}\n[Text|Data|Input]: {t}",
)


def as_json(draw: Draw) -> Exchange:
    keys = draw.some(tuple(_FIELDS), draw.between(2, 4))
    record = {key: _value(draw, _FIELDS[key][1]) for key in keys}
    told = _told(draw, record)
    shown = list(record.items())
    if draw.chance(0.4):  # the answer's order is that of the request
        draw.rng.shuffle(shown)
        told = _told(draw, dict(shown))
    answer = json.dumps(record, ensure_ascii=False)
    if draw.chance(0.5):
        asked = draw.say(draw.pick(_ASK), k=", ".join(keys), t=told)
    else:
        properties: dict[str, Any] = {}
        for key in keys:
            kind = _FIELDS[key][0]
            properties[key] = {"type": kind}
            if kind == "array":
                properties[key]["items"] = {"type": "string"}
        schema = {"type": "object", "properties": properties, "required": keys}
        asked = draw.say(draw.pick(_SCHEMA), s=json.dumps(schema), t=told)
    thought = f"The keys are {', '.join(keys)}."
    return Exchange("json", asked, answer, thought, Check("json", record))
