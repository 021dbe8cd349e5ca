"""Small conversations, rendered to find out what a template can take: see `template_abilities`.

Each asks one question. Words that stand for nothing are looked for in what comes out: they must
be there once each and in order. A template that raises does not take what it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bushel.core import RequestError
from bushel.text.template_abilities import (
    LADDER,
    OFF,
    Abilities,
    ArgumentsForm,
    Effort,
    IdForm,
    Switch,
    ThoughtsKey,
    ToolsForm,
)
from bushel.text.tokenizer import Tokenizer

Turn = dict[str, Any]

_SYSTEM, _LATER, _ASKED, _AGAIN = "q7sys", "q7later", "q7asked", "q7again"
_REPLY, _MORE, _RESULT, _OTHER = "q7reply", "q7more", "q7result", "q7other"
_NAME, _VALUE, _SECOND, _THOUGHT = "q7name", "q7value", "q7second", "q7thought"
_ABOUT = "q7about"
_NINE, _NEXT = "a1b2c3d4e", "a1b2c3d4f"
_FIRST, _THEN = "q7_a", "q7_b"
_INDEXED = (f"functions.{_NAME}:0", f"functions.{_NAME}:1")
_IDS: Mapping[IdForm, tuple[str, str]] = {
    "any": (_FIRST, _THEN),
    "nine": (_NINE, _NEXT),
    "indexed": _INDEXED,
    "numbered": _INDEXED,
}
_ARGUMENTS: tuple[ArgumentsForm, ...] = ("object", "text")
_ID_FORMS: tuple[IdForm, ...] = ("any", "nine", "indexed")
_SWITCHES = (
    *(Switch(name, on=True, off=False) for name in ("enable_thinking", "thinking", "reasoning")),
    Switch("thinking_mode", on="enabled", off="disabled"),
    Switch("reasoning_mode", on="think", off="no_think"),
)
_EFFORTS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_BUDGETS = ("thinking_budget", "thinking_token_budget")
_THOUGHTS: tuple[ThoughtsKey, ...] = (*("reasoning_content", "reasoning", "thinking", "thought"),)
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
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}

# Of one that does not even render a question: what is sent is given to it, and it may say why not.
UNKNOWN = Abilities(
    tools="nested", calls="object", text_arguments=True, text_with_calls="beside", parallel=True,
    results=True, orphans=True, unanswered=True, after_results=True, thoughts="reasoning_content",
)  # fmt: skip


class TemplateProbe:
    """Asks one template. `abilities` is what is known so far; questions build on one another."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.abilities = Abilities()
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
        self._find_text_with_calls()
        return self.abilities

    # -- asking ----------------------------------------------------------------------------

    def render(self, *turns: Turn, tools: Any = None, **options: Any) -> str:
        """Empty if the template raises."""
        given = tools if tools is not None else [] if self.abilities.needs_tools else None
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
        return {"role": role, "content": [_text(text)] if self.abilities.as_parts else text, **more}

    def system(self, text: str = _SYSTEM) -> Turn:
        return self._say("system", text)

    def user(self, text: str = _ASKED) -> Turn:
        return self._say("user", text)

    def reply(self, text: str = _REPLY, **more: Any) -> Turn:
        return self._say("assistant", text, **more)

    def calling(self, *values: str, text: str | None = "", **more: Any) -> Turn:
        """An assistant that calls the tool once for each value."""
        as_text = self.abilities.calls == "text"
        calls = [
            {
                "id": id,
                "type": "function",
                "function": {
                    "name": _NAME,
                    "arguments": f'{{"{_ABOUT}": "{value}"}}' if as_text else {_ABOUT: value},
                },
            }
            for id, value in zip(_IDS[self.abilities.ids], values, strict=False)
        ]
        if text == "":
            text = self.abilities.silence
        turn = {**self.reply(text or ""), "tool_calls": calls, **more}
        return turn if text is not None else {**turn, "content": None}

    def result(self, text: str = _RESULT, at: int = 0) -> Turn:
        id = _IDS[self.abilities.ids][at]
        return self._say("tool", text, tool_call_id=id, name=_NAME)

    # -- questions -------------------------------------------------------------------------

    def _find_form(self) -> bool:
        """What the simplest conversation must look like."""
        for as_parts in (False, True):
            for needs_tools in (False, True):
                self.abilities = Abilities(as_parts=as_parts, needs_tools=needs_tools)
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
        tool = {"type": "function", "function": function}
        forms: tuple[tuple[ToolsForm, Any], ...] = (("nested", tool), ("flat", function))
        for below, turns in ((False, [self.user()]), (True, [self.system(), self.user()])):
            for form, shown in forms:
                text = self.render(*turns, tools=[shown])
                if "q7tool" in text and _ASKED in text:
                    self.tools = [shown]
                    any_schema = self._takes_any_schema(turns, function, form)
                    self.abilities = replace(
                        self.abilities, tools=form, below_system=below, any_schema=any_schema
                    )
                    return

    def _takes_any_schema(
        self, turns: Sequence[Turn], function: Mapping[str, Any], form: ToolsForm
    ) -> bool:
        functions = [{**function, "parameters": _LOOSE}, {"name": "q7bare"}]
        nested = [{"type": "function", "function": loose} for loose in functions]
        return "q7bare" in self.render(*turns, tools=nested if form == "nested" else functions)

    def _find_messages(self) -> None:
        system, later = self.system(), self.system(_LATER)
        asked, again = self.user(), self.user(_AGAIN)
        reply, more = self.reply(), self.reply(_MORE)
        takes = self.takes
        self.abilities = replace(
            self.abilities,
            system=takes(system, asked) and takes(system, asked, reply, again),
            alone=takes(system),
            middle=takes(system, asked, reply, later, again)
            and takes(asked, later, reply, again)
            and takes(asked, later),
            users=takes(asked, again) and takes(asked, reply, again, self.user(_OTHER)),
            assistants=takes(asked, reply, more, again),
            reply_first=takes(reply, asked),
        )

    def _find_calls(self) -> None:
        words = (_ASKED, _VALUE, _RESULT)
        known = self._with_call_form(words)
        if known is None:
            self._find_orphans()
            return
        self.abilities = known
        asked, again, result = self.user(), self.user(_AGAIN), self.result()
        call, later = self.calling(_VALUE), self.system(_LATER)

        def takes(*turns: Turn, words: Sequence[str]) -> bool:
            return self.takes(*turns, words=words, tools=self.tools)

        both = self.calling(_VALUE, _SECOND), result, self.result(_OTHER, 1)
        self.abilities = replace(
            self.abilities,
            results=True,
            parallel=takes(asked, *both, words=(_ASKED, _VALUE, _SECOND, _RESULT, _OTHER)),
            orphans=takes(asked, _nameless(result), words=(_ASKED, _RESULT)),
            unanswered=takes(asked, call, again, words=(_ASKED, _VALUE, _AGAIN)),
            after_results=takes(asked, call, result, again, words=(*words, _AGAIN)),
            gap=takes(asked, call, result, self.reply(""), again, words=(*words, _AGAIN)),
        )
        untold = self.takes(asked, call, result, words=words)
        # Where a system message cannot follow results, none is taken anywhere.
        behind = takes(asked, call, result, later, words=(*words, _LATER))
        before = takes(self.system(), asked, call, result, words=(_SYSTEM, *words))
        self.abilities = replace(
            self.abilities,
            calls_need_tools=not untold and self.takes(asked, call, result, words=words, tools=[]),
            system=self.abilities.system and before,
            middle=self.abilities.middle and behind,
        )

    def _find_text_with_calls(self) -> None:
        """Where a text goes that comes with calls, also after thoughts."""
        if not self.abilities.calls:
            return
        key = self.abilities.thoughts
        thought = {key: _THOUGHT} if key in _THOUGHTS else {}
        words = (_ASKED, _REPLY, _VALUE, _RESULT)
        asked, result = self.user(), self.result()
        spoken = self.calling(_VALUE, text=_REPLY, **thought)
        if self.takes(asked, spoken, result, words=words, tools=self.tools):
            self.abilities = replace(self.abilities, text_with_calls="beside")
            return
        split = asked, self.reply(**thought), self.calling(_VALUE), result
        end = self.reply(_MORE), self.user(_AGAIN)
        if self.takes(*split, *end, words=(*words, _MORE, _AGAIN), tools=self.tools):
            kept = _THOUGHT in self.render(*split, tools=self.tools)
            self.abilities = replace(
                self.abilities, text_with_calls="before", thoughts_with_text=kept
            )

    def _find_orphans(self) -> None:
        """Of a template that has no place for calls."""
        turns = self.user(), _nameless(self.result()), self.user(_AGAIN)
        taken = self.takes(*turns[:2], tools=self.tools)
        behind = taken and self.takes(*turns, tools=self.tools)
        self.abilities = replace(self.abilities, results=taken, orphans=taken, after_results=behind)

    def _with_call_form(self, words: Sequence[str]) -> Abilities | None:
        """With how calls must be written; None if they cannot be."""
        before = self.abilities
        try:
            for calls in _ARGUMENTS:
                for ids in _ID_FORMS:
                    for silence in ("", None):
                        self.abilities = replace(before, calls=calls, ids=ids, silence=silence)
                        if text := self._called(words):
                            return self._improved(text, words)
        finally:
            self.abilities = before
        return None

    def _called(self, words: Sequence[str]) -> str:
        """One round of a tool, if it comes out as it should."""
        turns = self.user(), self.calling(_VALUE), self.result()
        text = self.render(*turns, tools=self.tools)
        behind = text[text.find(_ASKED) :]
        named = _NAME in behind[: behind.find(_VALUE)]
        # Python's own form of an object, or of nothing, or a text inside a text.
        wrong = any(trace in behind for trace in (f"{{'{_ABOUT}'", "None", f'\\"{_ABOUT}'))
        good = named and not wrong and self.takes(*turns, words=words, tools=self.tools)
        return text if good else ""

    def _improved(self, text: str, words: Sequence[str]) -> Abilities:
        """Of the forms that are taken, those that leave no trace of their own."""
        form = self.abilities
        if form.ids == "any" and _INDEXED[0] in text and _FIRST in text:
            form = replace(form, ids="numbered")  # made for calls, and not for results
        if form.silence == "":
            self.abilities = replace(form, silence=None)
            other = self._called(words)
            form = replace(form, silence=None if other and len(other) < len(text) else "")
        self.abilities = replace(form, calls="text")
        return replace(form, text_arguments=bool(self._called(words)))

    def _find_images(self) -> None:
        """Where a picture leaves something in its place that it leaves in a user's message."""
        parts = [_text(_REPLY), _IMAGE, _text(_MORE)]
        mark = self._between(self.render({"role": "user", "content": parts}))
        if not mark:
            return
        images = {"user"}
        if self.abilities.calls:
            result = {**self.result(), "content": parts}
            text = self.render(self.user(), self.calling(_VALUE), result, tools=self.tools)
            images |= {"tool"} if mark in self._between(text) else set()
        self.abilities = replace(self.abilities, images=frozenset(images))

    def _between(self, text: str) -> str:
        """Empty also where the parts were printed instead of shown."""
        start, end = text.find(_REPLY), text.find(_MORE)
        between = text[start + len(_REPLY) : end].strip() if 0 <= start < end else ""
        return "" if "type" in between and "text" in between else between

    def _find_switches(self) -> None:
        options = self.tokenizer.options
        for switch in _SWITCHES:
            if switch.name in options and self._turns(switch):
                self.abilities = replace(self.abilities, switch=switch)
                self.options = {switch.name: switch.on}
                break
        for name in _EFFORTS:
            if name in options and (effort := self._effort(name)):
                self.abilities = replace(self.abilities, effort=effort)
                break
        budget = next((name for name in _BUDGETS if name in options), "")
        self.abilities = replace(self.abilities, budget=budget)

    def _turns(self, switch: Switch) -> bool:
        """Whether it makes a difference."""
        on, off = (
            self.render(self.user(), **{switch.name: setting})
            for setting in (switch.on, switch.off)
        )
        return bool(on and off) and on != off

    def _effort(self, name: str) -> Effort | None:
        odd = self.render(self.user(), **{name: _OTHER})
        if _OTHER in odd:  # whatever it is told is repeated; these are what models know
            return Effort(name, frozenset(("low", "medium", "high")), strict=True)
        texts = {word: self.render(self.user(), **{name: word}) for word in (*OFF, *LADDER)}
        values = frozenset(word for word, text in texts.items() if text and text != odd)
        return Effort(name, values, strict=not odd) if values else None

    def _find_thoughts(self) -> None:
        """Under the options that let the model think, if there are any."""
        for key in _THOUGHTS:
            if self._recalls({key: _THOUGHT}):
                self.abilities = replace(self.abilities, thoughts=key)
                self._find_forgetting(key)
                return
        tagged = f"<think>\n{_THOUGHT}\n</think>\n\n{_REPLY}"
        text = self.render(self.user(), self.reply(tagged), self.user(_AGAIN))
        if _REPLY in text and _THOUGHT not in text:
            self.abilities = replace(self.abilities, thoughts="content")
            return
        parts = [{"type": "thinking", "thinking": _THOUGHT}, _text(_REPLY)]
        turn = {"role": "assistant", "content": parts}
        text = self.render(self.user(), turn, self.user(_AGAIN))
        if _THOUGHT in self._before(text) and "type" not in self._before(text):
            self.abilities = replace(self.abilities, thoughts="part")

    def _before(self, text: str) -> str:
        return text[text.find(_ASKED) : max(text.find(_REPLY), 0)]

    def _recalls(self, thought: dict[str, str]) -> bool:
        conversations: list[tuple[Turn, ...]] = [(self.user(), self.reply(**thought))]
        conversations.append((*conversations[0], self.user(_AGAIN)))
        if self.abilities.calls:
            call = self.calling(_VALUE, **thought)
            conversations.insert(0, (self.user(), call, self.result()))
        return any(
            _THOUGHT in self.render(*conversation, tools=self.tools)
            for conversation in conversations
        )

    def _find_forgetting(self, key: str) -> None:
        if self.abilities.calls:
            turns = self.user(), self.calling(_VALUE, **{key: _THOUGHT}), self.result()
            kept = _THOUGHT in self.render(*turns, tools=self.tools)
            asked = self.render(*turns, self.user(_AGAIN), tools=self.tools)
            forgets = kept and _THOUGHT not in asked
            self.abilities = replace(self.abilities, forgets=forgets)


def _nameless(turn: Turn) -> Turn:
    return {key: value for key, value in turn.items() if key != "name"}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def written_call(tokenizer: Tokenizer) -> str:
    """A conversation with a call, as the template writes it; empty if it writes none.

    A template may know several formats of calls, and write one of them.
    """
    for arguments in ({"q": _VALUE}, f'{{"q": "{_VALUE}"}}'):
        function = {"name": _NAME, "arguments": arguments}
        call = {"id": _NINE, "type": "function", "function": function}
        turns: list[Turn] = [
            {"role": "user", "content": _ASKED},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": _NINE, "name": _NAME, "content": _RESULT},
        ]
        try:
            text = tokenizer.render(turns, tools=[_TOOL], add_generation_prompt=False)
        except RequestError:
            continue
        if _NAME in text and _VALUE in text:
            return text
    return ""


def thinks_by_itself(tokenizer: Tokenizer, switch: Switch | None) -> bool:
    """Whether turning thinking off changes what is rendered where nobody says anything."""
    if switch is None:
        return True
    turns = [{"role": "user", "content": _ASKED}]
    off: dict[str, Any] = {switch.name: switch.off}
    try:
        return tokenizer.render(turns) != tokenizer.render(turns, **off)
    except RequestError:  # it will be said when the template is used
        return True
