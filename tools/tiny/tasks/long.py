"""Long texts with a few facts somewhere in them."""

from __future__ import annotations

from tools.tiny.tasks.recall import Fact, facts
from tools.tiny.words import Draw


def haystack(draw: Draw, characters: int, told: list[str]) -> str:
    """Sentences of about that many characters, with those told at random places."""
    # A paragraph is repeated with other words around it; making every one is slow.
    pool = [draw.sentence() for _ in range(min(60, characters // 50 + 2))]
    lines: list[str] = []
    total = 0
    while total < characters:
        line = draw.pick(pool) if draw.chance(0.6) else draw.sentence()
        if draw.chance(0.04):
            line += "\n"
        lines.append(line)
        total += len(line) + 1
    for sentence in told:
        lines.insert(draw.between(0, len(lines)), sentence)
    return " ".join(lines).replace("\n ", "\n")


_KINDS = ("notes", "report", "text", "document", "log", "diary", "article", "letter")


def reading(draw: Draw, characters: int) -> tuple[str, list[Fact]]:
    told = facts(draw, draw.between(2, 7))
    told = [fact for fact in told if fact.owner] or told
    text = haystack(draw, characters, [fact.told(draw, True) for fact in told])
    return text, told


def heading(draw: Draw) -> str:
    return draw.say(f"[Here is|This is|Read|Please read] [the|a|my] [{'|'.join(_KINDS)}][:|.]")
