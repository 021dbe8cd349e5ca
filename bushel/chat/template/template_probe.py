"""Small conversations, rendered to find out what a template can take: see `abilities`.

Each asks one question. Words that stand for nothing are looked for in what comes out: they must
be there once each and in order. A template that raises does not take what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from bushel.chat.template.abilities import LADDER, OFF, Abilities, Effort, Switch
from bushel.core import RequestError
from bushel.text.tokenizer import Tokenizer

Turn = dict[str, Any]

_SYSTEM, _LATER, _ASKED, _AGAIN = "q7sys", "q7later", "q7asked", "q7again"
_REPLY, _MORE, _RESULT, _OTHER = "q7reply", "q7more", "q7result", "q7other"
_NAME, _VALUE, _SECOND, _THOUGHT = "q7name", "q7value", "q7second", "q7thought"
_ABOUT = "q7about"
_NINE, _NEXT = "a1b2c3d4e", "a1b2c3d4f"
_FIRST, _THEN = "q7_a", "q7_b"
_INDEXED = (f"functions.{_NAME}:0", f"functions.{_NAME}:1")
_IDS = {
    **{"any": (_FIRST, _THEN), "nine": (_NINE, _NEXT)},
    **{"indexed": _INDEXED, "numbered": _INDEXED},
}
_SWITCHES = (
    *((name, True, False) for name in ("enable_thinking", "thinking", "reasoning")),
    ("thinking_mode", "enabled", "disabled"),
    ("reasoning_mode", "think", "no_think"),
)
_EFFORTS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_BUDGETS = ("thinking_budget", "thinking_token_budget")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thought")
_IMAGE = {"type": "image"}
# As clients write them.
_LOOSE = {
    "type": "object",
    "properties": {
        "q7a": {"type": ["integer", "null"]},
        "q7b": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "q7c": {"enum": ["x", "y"]},
        "q7d": {"type": "object"},
        "q7e": {"type": "array"},
        "q7f": {},
    },
}

# Of one that does not even render a question: what is sent is given to it, and it may say why not.
UNKNOWN = Abilities(
    tools="nested", calls="object", call_text=True, said="beside", parallel=True, results=True,
    orphans=True, unanswered=True, after_results=True, thoughts="reasoning_content",
)  # fmt: skip

_known: WeakKeyDictionary[Tokenizer, Abilities] = WeakKeyDictionary()


def abilities_of(tokenizer: Tokenizer) -> Abilities:
    """Found once for each tokenizer, by a few dozen renderings."""
    if tokenizer not in _known:
        with tokenizer.trial():
            _known[tokenizer] = _Probe(tokenizer).find()
    return _known[tokenizer]


class _Probe:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.found: dict[str, Any] = {}
        self.tools: list[Any] | None = None
        self.options: dict[str, Any] = {}

    def find(self) -> Abilities:
        if not self._find_form():
            return UNKNOWN
        self._find_tools()
        self._find_messages()
        self._find_calls()
        self._find_images()
        self._find_switches()
        self._find_thoughts()
        self._find_said()
        return Abilities(**self.found)

    # -- asking ----------------------------------------------------------------------------

    def render(self, *turns: Turn, tools: Any = None, **options: Any) -> str:
        """Empty if the template raises."""
        given = tools if tools is not None else [] if self.found.get("needs_tools") else None
        try:
            return self.tokenizer.render(turns, tools=given, **{**self.options, **options})
        except RequestError:
            return ""

    def takes(self, *turns: Turn, words: Sequence[str] = (), **more: Any) -> bool:
        """Whether the texts of these turns come out, or `words`."""
        text = self.render(*turns, **more)
        places = [text.find(word) for word in words or map(self._words, turns)]
        counts = [text.count(word) for word in words or map(self._words, turns)]
        return bool(text) and places == sorted(places) and set(counts) == {1}

    def _words(self, turn: Turn) -> str:
        content = turn["content"]
        return str(content[0]["text"] if isinstance(content, list) else content)

    def _say(self, role: str, text: str, **more: Any) -> Turn:
        listed = self.found.get("as_parts")
        return {"role": role, "content": [_text(text)] if listed else text, **more}

    def system(self, text: str = _SYSTEM) -> Turn:
        return self._say("system", text)

    def user(self, text: str = _ASKED) -> Turn:
        return self._say("user", text)

    def reply(self, text: str = _REPLY, **more: Any) -> Turn:
        return self._say("assistant", text, **more)

    def calling(self, *values: str, said: str | None = "", **more: Any) -> Turn:
        """An assistant that calls the tool once for each value."""
        ids = _IDS[self.found.get("ids", "any")]
        form = self.found.get("calls", "object")
        calls = [
            {
                "id": id,
                "type": "function",
                "function": {
                    "name": _NAME,
                    "arguments": {_ABOUT: it} if form == "object" else f'{{"{_ABOUT}": "{it}"}}',
                },
            }
            for id, it in zip(ids, values, strict=False)
        ]
        if said == "":
            said = self.found.get("silence", "")
        turn = {**self.reply(said or ""), "tool_calls": calls, **more}
        return turn if said is not None else {**turn, "content": None}

    def result(self, text: str = _RESULT, at: int = 0) -> Turn:
        id = _IDS[self.found.get("ids", "any")][at]
        return self._say("tool", text, tool_call_id=id, name=_NAME)

    # -- questions -------------------------------------------------------------------------

    def _find_form(self) -> bool:
        """What the simplest conversation must look like."""
        for as_parts in (False, True):
            for needs_tools in (False, True):
                self.found |= {"as_parts": as_parts, "needs_tools": needs_tools}
                if self.takes(self.user()):
                    return True
        return False

    def _find_tools(self) -> None:
        parameters = {
            "type": "object",
            "properties": {_ABOUT: {"type": "string", "description": "q7"}},
            "required": [_ABOUT],
        }
        function = {"name": "q7tool", "description": "q7told", "parameters": parameters}
        nested = {"type": "function", "function": function}
        for below, turns in ((False, [self.user()]), (True, [self.system(), self.user()])):
            for form, tool in (("nested", nested), ("flat", function)):
                text = self.render(*turns, tools=[tool])
                if "q7tool" in text and _ASKED in text:
                    self.found |= {"tools": form, "below_system": below}
                    self.tools = [tool]
                    loose = {**function, "parameters": _LOOSE}
                    bare = {"name": "q7bare"}
                    loosely = [{**nested, "function": it} for it in (loose, bare)]
                    given = loosely if form == "nested" else [loose, bare]
                    self.found["any_schema"] = "q7bare" in self.render(*turns, tools=given)
                    return

    def _find_messages(self) -> None:
        system, later, asked, again = self.system(), self.system(_LATER), self.user(), self.user()
        again, reply, more = self.user(_AGAIN), self.reply(), self.reply(_MORE)
        takes = self.takes
        self.found |= {
            "system": takes(system, asked) and takes(system, asked, reply, again),
            "alone": takes(system),
            "middle": takes(system, asked, reply, later, again)
            and takes(asked, later, reply, again)
            and takes(asked, later),
            "users": takes(asked, again) and takes(asked, reply, again, self.user(_OTHER)),
            "assistants": takes(asked, reply, more, again),
            "reply_first": takes(reply, asked),
        }

    def _find_calls(self) -> None:
        words = (_ASKED, _VALUE, _RESULT)
        form = self._call_form(words)
        if form is None:
            self._find_orphans()
            return
        self.found |= form
        asked, again, result = self.user(), self.user(_AGAIN), self.result()
        call, later = self.calling(_VALUE), self.system(_LATER)

        def takes(*turns: Turn, words: Sequence[str]) -> bool:
            return self.takes(*turns, words=words, tools=self.tools)

        both = self.calling(_VALUE, _SECOND), result, self.result(_OTHER, 1)
        self.found |= {
            "results": True,
            "parallel": takes(asked, *both, words=(_ASKED, _VALUE, _SECOND, _RESULT, _OTHER)),
            "orphans": takes(asked, _nameless(result), words=(_ASKED, _RESULT)),
            "unanswered": takes(asked, call, again, words=(_ASKED, _VALUE, _AGAIN)),
            "after_results": takes(asked, call, result, again, words=(*words, _AGAIN)),
            "gap": takes(asked, call, result, self.reply(""), again, words=(*words, _AGAIN)),
        }
        if not self.takes(asked, call, result, words=words):  # without tools
            needs = self.takes(asked, call, result, words=words, tools=[])
            self.found["calls_need_tools"] = needs
        system = self.system()
        self.found["system"] &= takes(system, asked, call, result, words=(_SYSTEM, *words))
        # Where one cannot follow results, none is taken anywhere.
        self.found["middle"] &= takes(asked, call, result, later, words=(*words, _LATER))

    def _find_said(self) -> None:
        """Where a text goes that comes with calls, also after thoughts."""
        if not self.found.get("calls"):
            return
        key = self.found.get("thoughts", "")
        thought = {key: _THOUGHT} if key in _THOUGHTS else {}
        words = (_ASKED, _REPLY, _VALUE, _RESULT)
        asked, result = self.user(), self.result()
        spoken = self.calling(_VALUE, said=_REPLY, **thought)
        if self.takes(asked, spoken, result, words=words, tools=self.tools):
            self.found["said"] = "beside"
            return
        split = asked, self.reply(**thought), self.calling(_VALUE), result
        end = self.reply(_MORE), self.user(_AGAIN)
        if self.takes(*split, *end, words=(*words, _MORE, _AGAIN), tools=self.tools):
            self.found["said"] = "before"
            self.found["said_thoughts"] = _THOUGHT in self.render(*split, tools=self.tools)

    def _find_orphans(self) -> None:
        """Of a template that has no place for calls."""
        turns = self.user(), _nameless(self.result()), self.user(_AGAIN)
        taken = self.takes(*turns[:2], tools=self.tools)
        self.found |= {"results": taken, "orphans": taken}
        self.found["after_results"] = taken and self.takes(*turns, tools=self.tools)

    def _call_form(self, words: Sequence[str]) -> dict[str, Any] | None:
        """How calls must be written; None if they cannot be."""
        kept = dict(self.found)
        try:
            for form in ("object", "text"):
                for ids in ("any", "nine", "indexed"):
                    for silence in ("", None):
                        self.found |= {"calls": form, "ids": ids, "silence": silence}
                        if text := self._called(words):
                            return self._improved(text, words)
        finally:
            self.found = kept
        return None

    def _called(self, words: Sequence[str]) -> str:
        """One round of a tool, if it comes out as it should."""
        turns = self.user(), self.calling(_VALUE), self.result()
        text = self.render(*turns, tools=self.tools)
        said = text[text.find(_ASKED) :]
        named = _NAME in said[: said.find(_VALUE)]
        # Python's own form of an object, or of nothing, or a text inside a text.
        wrong = any(it in said for it in (f"{{'{_ABOUT}'", "None", f'\\"{_ABOUT}'))
        good = named and not wrong and self.takes(*turns, words=words, tools=self.tools)
        return text if good else ""

    def _improved(self, text: str, words: Sequence[str]) -> dict[str, Any]:
        """Of the forms that are taken, those that leave no trace of their own."""
        form = {key: self.found[key] for key in ("calls", "ids", "silence")}
        if form["ids"] == "any" and _INDEXED[0] in text and _FIRST in text:
            form["ids"] = self.found["ids"] = "numbered"  # made for calls, and not for results
        if form["silence"] == "":
            self.found["silence"] = None
            other = self._called(words)
            form["silence"] = None if other and len(other) < len(text) else ""
        self.found |= {"silence": form["silence"], "calls": "text"}
        form["call_text"] = bool(self._called(words))
        return form

    def _find_images(self) -> None:
        """Where a picture leaves something in its place that it leaves in a user's message."""
        parts = [_text(_REPLY), _IMAGE, _text(_MORE)]
        mark = self._between(self.render({"role": "user", "content": parts}))
        if not mark:
            return
        images = {"user"}
        if self.found.get("calls"):
            result = {**self.result(), "content": parts}
            text = self.render(self.user(), self.calling(_VALUE), result, tools=self.tools)
            images |= {"tool"} if mark in self._between(text) else set()
        self.found["images"] = frozenset(images)

    def _between(self, text: str) -> str:
        """Empty also where the parts were printed instead of shown."""
        start, end = text.find(_REPLY), text.find(_MORE)
        between = text[start + len(_REPLY) : end].strip() if 0 <= start < end else ""
        return "" if "type" in between and "text" in between else between

    def _find_switches(self) -> None:
        options = self.tokenizer.options
        for name, on, off in _SWITCHES:
            if name in options:
                yes, no = (self.render(self.user(), **{name: it}) for it in (on, off))
                if yes and no and yes != no:
                    self.found["switch"] = Switch(name, on, off)
                    self.options = {name: on}
                    break
        for name in _EFFORTS:
            if name in options and (effort := self._effort(name)):
                self.found["effort"] = effort
                break
        self.found["budget"] = next((it for it in _BUDGETS if it in options), "")

    def _effort(self, name: str) -> Effort | None:
        odd = self.render(self.user(), **{name: _OTHER})
        if _OTHER in odd:  # whatever it is told is repeated; these are what models know
            return Effort(name, frozenset(("low", "medium", "high")), strict=True)
        words = {it: self.render(self.user(), **{name: it}) for it in (*OFF, *LADDER)}
        values = frozenset(it for it, text in words.items() if text and text != odd)
        return Effort(name, values, strict=not odd) if values else None

    def _find_thoughts(self) -> None:
        """Under the options that let the model think, if there are any."""
        for key in _THOUGHTS:
            if self._recalls({key: _THOUGHT}):
                self.found["thoughts"] = key
                self._find_forgetting(key)
                return
        tagged = f"<think>\n{_THOUGHT}\n</think>\n\n{_REPLY}"
        text = self.render(self.user(), self.reply(tagged), self.user(_AGAIN))
        if _REPLY in text and _THOUGHT not in text:
            self.found["thoughts"] = "content"
            return
        parts = [{"type": "thinking", "thinking": _THOUGHT}, _text(_REPLY)]
        turn = {"role": "assistant", "content": parts}
        text = self.render(self.user(), turn, self.user(_AGAIN))
        if _THOUGHT in self._before(text) and "type" not in self._before(text):
            self.found["thoughts"] = "part"

    def _before(self, text: str) -> str:
        return text[text.find(_ASKED) : max(text.find(_REPLY), 0)]

    def _recalls(self, thought: dict[str, str]) -> bool:
        talks: list[tuple[Turn, ...]] = [(self.user(), self.reply(**thought))]
        talks.append((*talks[0], self.user(_AGAIN)))
        if self.found.get("calls"):
            call = self.calling(_VALUE, **thought)
            talks.insert(0, (self.user(), call, self.result()))
        return any(_THOUGHT in self.render(*turns, tools=self.tools) for turns in talks)

    def _find_forgetting(self, key: str) -> None:
        if self.found.get("calls"):
            turns = self.user(), self.calling(_VALUE, **{key: _THOUGHT}), self.result()
            kept = _THOUGHT in self.render(*turns, tools=self.tools)
            asked = self.render(*turns, self.user(_AGAIN), tools=self.tools)
            self.found["forgets"] = kept and _THOUGHT not in asked


def _nameless(turn: Turn) -> Turn:
    return {key: it for key, it in turn.items() if key != "name"}


def _text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}
