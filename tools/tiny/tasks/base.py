"""The pieces of a conversation that tasks make and `tools.tiny.tasks.mix` puts together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tools.tiny.chat import Check
from tools.tiny.scene import Picture
from tools.tiny.words import Draw, words_in


@dataclass
class Exchange:
    """A question and its answer. `thought` is what comes before the answer when thinking is on.

    `steps` are tool calls and results between the two; the answer may be empty then.
    """

    kind: str
    user: str
    answer: str
    thought: str
    check: Check
    pictures: list[Picture] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)

    def user_message(self, draw: Draw) -> dict[str, Any]:
        if not self.pictures:
            return {"role": "user", "content": self.user}
        images = [{"type": "image", "image": picture} for picture in self.pictures]
        text = {"type": "text", "text": self.user}
        first = draw.chance(0.8) or len(images) > 1
        return {"role": "user", "content": [*images, text] if first else [text, *images]}


_OPENINGS = (
    "[Hey|Hi|Hello|OK|Okay|So|Well|Now|Alright|Right|Good|Um|Listen][,|.|!|] "
    "[|||tell me, |let me ask: |I wonder: |quick question: |one thing, ]",
    "[Please|Pls|Kindly|Could you please|Would you please|Can you|I need to know|I'd like to know|"
    "I want to know|Question|Next question|Another one|My question|Just curious][:|,|] ",
    "[Thanks|Great|Nice|Cool|Perfect|Fine|Good job][.|!|,] [|Next:|Now:|And now:|One more:] ",
)
_CLOSINGS = (
    "[ Thanks| Thank you| Please| Thx| Cheers|  I am curious| Take your time| It is important"
    "| I forgot| I can't tell| Help me out| My eyes are tired| No rush][.|!|]",
)
PICTURE = "[picture|image|photo|drawing|graphic|pic|photograph|illustration]"
SHOWN = f"[in|on] [the|this] {PICTURE}"
BRIEF = (
    "[Answer|Reply|Respond] [with|using|in] [just |only |][one word|a single word|one word only]."
)
ONLY = "[Just|Only] [the answer|the value|that], [nothing else|no sentence|please]."


# With a small letter they are still the same word; a name would not be.
_STARTERS = frozenset(
    words_in(
        "What What's Which Who How Where In Do Can Could Would Tell Give Remind Say State Name "
        "Recall Repeat Look Write"
    )
)


def dressed(draw: Draw, question: str, lower: bool = True) -> str:
    """The same question as different people type it; not `lower`: there are names in it."""
    if draw.chance(0.22):
        opening = draw.say(draw.pick(_OPENINGS))
        small = draw.chance(0.6) and question[1:2].islower() and question[0] != "I"
        small = small and (lower or question.split()[0] in _STARTERS)
        question = f"{opening} {question[0].lower() + question[1:] if small else question}"
    if draw.chance(0.1):
        question += draw.say(draw.pick(_CLOSINGS)).join([" ", ""])
    if draw.chance(0.08):
        question = f"{draw.sentence()} {question}"
    if draw.chance(0.1):
        question = question.replace("What is ", "whats ").replace("What's ", "whats ")
        question = question.replace("'s ", "s ") if lower else question
    dice = draw.rng.random()
    if dice < 0.1:
        question = question.lower() if lower else question
    elif dice < 0.2:
        question = question.rstrip("?.!")
    return question


def brief(draw: Draw, question: str) -> str:
    return f"{question} {draw.say(draw.pick((BRIEF, ONLY)))}"


def article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
