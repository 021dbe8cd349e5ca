"""Where prompts to come may part from this one, found by rendering such prompts.

    this prompt     system + tools | turns | user | rounds of tools | generation prompt
    other user      system + tools | other user …
    next round      system + tools | turns | user | rounds of tools | call | result …
    next question   system + tools | turns | user | rounds, rewritten? | reply | user …

A border is the number of tokens that this prompt and such a rendering have in common. Rendering is
cheap and tokenizing is not, so no long text is tokenized a second time: a control token splits a
text into parts that are tokenized by themselves, so up to the last one that both texts have they
have the same tokens, and only the few words behind it are tokenized and compared. Where none is
near, as in templates that have none, the last words that both texts have are tokenized by
themselves, and their tokens looked for in the prompt's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from operator import eq
from typing import Any

import numpy as np

from bushel.chat.parse_messages import Arguments
from bushel.core import Borders, Media, Prepared, RequestError
from bushel.models import Preparer
from bushel.text.tokenizer import Tokenizer

# What texts in the renderings say: nothing that a template could take for anything else.
_WORDS = ("7f3a", "Q9c1")
_CALL = "a1b2c3d4e"  # of nine letters and digits, as some templates demand
_THOUGHTS = "reasoning_content"
# Nearer borders are one: each is a cut of its own, and the planner would merge them.
_NEAR = 32
_LOOK_BACK = 4096  # characters, for the last control token; then eight times as far
# Of a text without any: characters that are tokenized by themselves, and how many of their tokens,
# on both sides, may come out otherwise than in the middle of a text.
_WORDS_BACK, _EDGE = 512, 8

Turn = Mapping[str, Any]


@dataclass(frozen=True)
class TemplateCall:
    """A conversation, and how it is written for the template.

    turns: as `chat.parse_messages` has them. tools, options: as the template is given them, with
    control strings marked. write: from turns to what the template is given. read: from what it
    rendered to the prompt.
    """

    tokenizer: Tokenizer
    turns: Sequence[Turn]
    tools: Sequence[Any] | None
    options: Mapping[str, Any]
    write: Callable[[Sequence[Turn]], Sequence[Turn]] = list
    read: Callable[[str], str] = str

    def render(self) -> str:
        return self._rendered(self.turns, self.options)

    def _rendered(self, turns: Sequence[Turn], options: Mapping[str, Any]) -> str:
        return self.read(self.tokenizer.render(self.write(turns), tools=self.tools, **options))

    @property
    def is_open(self) -> bool:
        """Whether a reply begins where the prompt ends: it continues no turn."""
        continues = self.options.get("continue_final_message", False)
        return bool(self.options.get("add_generation_prompt", True)) and not continues

    @property
    def has_tools(self) -> bool:
        return bool(self.tools) or any(turn.get("role") == "tool" for turn in self.turns)

    def other_user(self) -> str | None:
        """The same beginning, another question; None if nothing is at the beginning."""
        roles = [turn.get("role") for turn in self.turns]
        lead = len(list(takewhile("system".__eq__, roles)))
        if not lead and not self.tools:
            return None
        rest = self.turns[lead].get("content") if lead < len(self.turns) else None
        first = rest.lstrip()[:1] if isinstance(rest, str) else ""
        question = next(word for word in _WORDS if word[0] != first)
        return self._other([*self.turns[:lead], {"role": "user", "content": question}])

    def next_question(self) -> str | None:
        question = {"role": "user", "content": _WORDS[1]}
        return self._other([*self.turns, self._reply(_WORDS[0]), question])

    def next_round(self) -> str | None:
        """None also where the model has no tools to call."""
        if not self.has_tools or self.turns[-1].get("role") == "assistant":
            return None
        call = {
            "id": _CALL,
            "type": "function",
            "function": {"name": self._tool, "arguments": Arguments({"a": _WORDS[0]}, None)},
        }
        result = {"role": "tool", "tool_call_id": _CALL, "name": self._tool, "content": _WORDS[1]}
        return self._other([*self.turns, {**self._reply(""), "tool_calls": [call]}, result])

    def unanswered(self) -> str | None:
        return self._other(self.turns, add_generation_prompt=False)

    def _reply(self, text: str) -> Turn:
        """With thoughts, if the client has sent those of earlier replies."""
        thinks = any(turn.get(_THOUGHTS) for turn in self.turns)
        thoughts = {_THOUGHTS: _WORDS[1]} if thinks else {}
        return {"role": "assistant", "content": text, **thoughts}

    @property
    def _tool(self) -> str:
        for tool in self.tools if isinstance(self.tools, list | tuple) else ():
            function = tool.get("function", tool) if isinstance(tool, Mapping) else {}
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                return str(function["name"])
        return _WORDS[0]

    def _other(self, turns: Sequence[Turn], **options: Any) -> str | None:
        kwargs = {**self.options, **options}
        kwargs.pop("continue_final_message", None)
        try:
            return self._rendered(turns, kwargs)
        except RequestError:  # a template need not take what we make up
            return None


@dataclass(frozen=True)
class _Kept:
    """How much of a prompt another one begins with."""

    tokens: int
    whole: bool  # all of its text, even if its last tokens are drawn together with what follows


class BorderFinder:
    """Measures in tokens how far other renderings agree with a prompt."""

    def __init__(self, host: Preparer, text: str, ids: Sequence[int], mark: str):
        self._host = host
        self._text = text
        self._ids = ids
        self._mark = mark
        self._found: dict[str, np.ndarray | None] = {}

    def kept(self, other: str | None) -> _Kept | None:
        if other is None:
            return None
        same = agreeing(self._text, other)
        start, index, name = self._anchor(same)
        if same - start > 4 * _WORDS_BACK and (words := self._last_words(same)) is not None:
            low, index = words
            tokens = self._encoded(other[low : self._end(other, low, same)])
            return self._kept(index, tokens[_EDGE:], same)
        tail = other[start : self._end(other, start + len(name), same)]
        tokens = self._encoded(tail) if start else self._host.encode(tail, self._mark)
        return self._kept(index, tokens, same)

    def _kept(self, index: int, tokens: Sequence[int], same: int) -> _Kept:
        here = self._ids[index : index + len(tokens)]
        equal = len(list(takewhile(bool, map(eq, here, tokens))))
        return _Kept(index + equal, same == len(self._text))

    def _end(self, other: str, start: int, same: int) -> int:
        """What follows a control token has no say in what comes before it."""
        later = self._host.tokenizer.split.finditer(other, start)
        return next((match.end() for match in later if match.end() > same), len(other))

    def _encoded(self, text: str) -> list[int]:
        """Of text from the middle of another."""
        return self._host.tokenizer.encode_marked(text, self._mark, add_special_tokens=False)

    def _last_words(self, same: int) -> tuple[int, int] | None:
        """A place shortly before `same` in the text, and one among the ids: that of the token after
        the first `_EDGE` from there on. None if it cannot be told.
        """
        low = same - _WORDS_BACK
        words = np.array(self._encoded(self._text[low:same])[_EDGE:-_EDGE], self._array.dtype)
        if len(words) < _EDGE:
            return None
        whole, part, size = self._array.tobytes(), words.tobytes(), words.itemsize
        at = whole.find(part)
        told = at >= 0 and at % size == 0 and whole.find(part, at + 1) < 0
        return (low, at // size) if told else None

    def _anchor(self, same: int) -> tuple[int, int, str]:
        """The last control token before `same`: its place in the text and in the ids.

        The beginning of both where there is none.
        """
        back = _LOOK_BACK
        while True:
            low = max(0, same - back)
            near = list(self._host.tokenizer.split.finditer(self._text, low, same))
            for token in reversed(near):
                if (places := self._places(token[0])) is not None:
                    before = self._text.count(token[0], 0, token.start())
                    return token.start(), int(places[before]), token[0]
            if low == 0:
                return 0, 0, ""
            back *= 8

    def _places(self, name: str) -> np.ndarray | None:
        """Where the ids have it; None if that cannot be told from where the text has it.

        Processors of images multiply theirs, and tokenizers may add one of their own.
        """
        if name not in self._found:
            controls = self._host.tokenizer.controls
            places = np.flatnonzero(self._array == controls.get(name, -1))
            # One that is inside another may be either.
            alone = not any(name in control for control in controls if control != name)
            known = alone and len(places) == self._text.count(name)
            self._found[name] = places if known else None
        return self._found[name]

    @cached_property
    def _array(self) -> np.ndarray:
        return np.array(self._ids)


def agreeing(one: str, two: str) -> int:
    """Characters at the beginning that are the same."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def find_borders(
    host: Preparer, call: TemplateCall, text: str, prompt: Prepared, mark: str
) -> Borders:
    """text: what the call rendered, of which `prompt` was made. Never raises for its templates."""
    finder = BorderFinder(host, text, prompt.ids, mark)

    def border(tokens: int) -> int:
        return _outside(tokens, prompt.media) if tokens < len(prompt.ids) else 0

    opening = finder.kept(call.other_user())
    system = border(opening.tokens) if opening else 0
    if not call.is_open:
        return Borders(system)
    nexts = [finder.kept(call.next_round()), finder.kept(call.next_question())]
    kept = [beginning for beginning in nexts if beginning is not None]
    if not kept:
        rest = finder.kept(call.unanswered())
        return Borders(system, history=border(rest.tokens) if rest else 0, reply=False)
    furthest = max(beginning.tokens for beginning in kept)
    near = [beginning.tokens for beginning in kept if furthest - beginning.tokens < _NEAR]
    far = [beginning.tokens for beginning in kept if furthest - beginning.tokens >= _NEAR]
    return Borders(
        system,
        user=border(min(far, default=0)),
        history=border(min(near)),
        reply=any(beginning.whole for beginning in kept),
    )


def _outside(tokens: int, media: Sequence[Media]) -> int:
    """No prompt parts from another inside an image: it is the same one, or another."""
    return next((image.start for image in media if image.start < tokens < image.end), tokens)
