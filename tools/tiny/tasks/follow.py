"""Standing instructions on how to answer: end or start with something."""

from __future__ import annotations

from dataclasses import dataclass

from tools.tiny.tasks.mind import EMOJI
from tools.tiny.words import Draw

_END = (
    "[Always|You must always|Please always|From now on,|In every reply,|Every time,|Make sure to|]"
    " [end|finish|close|conclude] [your replies|each reply|every answer|your answers|every message|"
    "all messages|each response|your answer|everything you say] with [the word |the phrase |"
    "]{x}[.|]",
    "[Every reply|Each answer|All your replies|Your answers|Every response|Each message] [must|"
    "should|"
    "has to|shall|needs to] [end|finish|close] with [the word |]{x}[.|]",
    "[Add|Append|Put|Write] {x} [at|to] the end of [each reply|every answer|all replies|every "
    "message|"
    "your answer][.|]",
    "[The last word|The final word|The last thing] of [each reply|every answer|your replies] [is|"
    "must be"
    "|should be] {x}[.|]",
    "[Whatever you say|Whatever I ask|No matter what|In any case], [end|finish|close] with {x}[.|]",
    "[End|Finish|Close] [everything you say|whatever you write|all of your messages|all your "
    "replies|"
    "anything you answer|each sentence group] with {x}[.|]",
    "[Put|Place|Add] {x} [at the end of|after] [everything you say|whatever you write|what you say|"
    "all you write|your words][.|]",
    "[Your messages|Your replies|All answers|Your responses] [must|should|have to] always [end|"
    "finish]"
    " with [the word |][{x}|{x}, no matter what][.|]",
    "[You are a [cat|pirate|robot|king|bird|ghost]|We play a game|This is a test]. [Always|] [end|"
    "finish] [your answers|what you say|each reply] with {x}[.|]",
    "[Sign|Sign off] [each reply|every answer|your messages] with {x}[.|]",
)
_START = (
    "[Always|You must always|Please always|From now on,|In every reply,|]"
    " [begin|start|open] [your replies|each reply|every answer|your answers|every message|"
    "all messages|each response|your answer] with [the word |the phrase |]{x}[.|]",
    "[Every reply|Each answer|All your replies|Your answers] [must|should|has to|shall] [begin|"
    "start] "
    "with [the word |]{x}[.|]",
    "[Put|Write] {x} [at|] the [beginning|start] of [each reply|every answer|all replies][.|]",
)


@dataclass
class Manner:
    """An instruction and what it does to an answer."""

    told: str
    start: str = ""
    end: str = ""

    def apply(self, answer: str) -> str:
        return " ".join(part for part in (self.start, answer, self.end) if part)


def _mark(draw: Draw) -> str:
    dice = draw.rng.random()
    if dice < 0.2:
        return draw.pick(EMOJI)
    if dice < 0.5:
        return draw.word()
    if dice < 0.6:
        return draw.word().upper()
    if dice < 0.75:
        return draw.word().capitalize() + draw.pick((".", "!", ""))
    if dice < 0.9:
        return " ".join(draw.word() for _ in range(draw.between(2, 3)))
    return draw.codeword()


def manner(draw: Draw, start: bool = False) -> Manner:
    mark = _mark(draw)
    # Without quotes a final point would be read as part of the sentence.
    styles = ("'{m}'", '"{m}"') if mark[-1] in ".!" else ("{m}", "'{m}'", '"{m}"')
    quoted = draw.pick(styles).format(m=mark)
    told = draw.say(draw.pick(_START if start else _END), x=quoted)
    told = told[0].upper() + told[1:]
    return Manner(told, start=mark if start else "", end="" if start else mark)
