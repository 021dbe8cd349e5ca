"""What a model's chat template can take.

Templates are programs, and differ in what they refuse, lose or move. Nothing is concluded from
their names or texts: `template_probe` renders small conversations and looks at what came out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bushel.core.conversation import Thinking

# From little to much.
LADDER = ("minimal", "low", "medium", "high", "xhigh", "max")
# Words for no effort at all.
OFF = ("none", "no_think")

# How a tool is told: below "function", or not.
ToolsForm = Literal["nested", "flat"]
# What the arguments of calls must be.
ArgumentsForm = Literal["object", "text"]
# nine: letters and digits. indexed, numbered: functions.name:0, counting the conversation's calls,
# or those of a message.
IdForm = Literal["any", "nine", "indexed", "numbered"]
# Key of the thoughts of earlier replies; content: inside <think> in the text; part: a part of it.
ThoughtsKey = Literal["reasoning_content", "reasoning", "thinking", "thought"]
ThoughtsPlace = ThoughtsKey | Literal["content", "part"]


@dataclass(frozen=True)
class Switch:
    """An option that turns thinking on and off, and the values that do."""

    name: str
    on: bool | str
    off: bool | str


@dataclass(frozen=True)
class Effort:
    """An option that says how much to think.

    values: words that make a difference. strict: others are refused, or mean nothing to the model;
    if not, they mean what is said without the option.
    """

    name: str
    values: frozenset[str]
    strict: bool

    def nearest(self, asked: str) -> str | None:
        """The word to give for another server's; None: the option had better not be given."""
        if asked in self.values or asked not in LADDER:
            return asked if asked in self.values else None
        at = LADDER.index(asked)
        known = [LADDER.index(word) for word in LADDER if word in self.values]
        if not self.strict:  # only beyond what is known is the nearest one meant
            low, high = LADDER.index("low"), LADDER.index("high")
            known = [n for n in known if (at < low and n <= low) or (at > high and n >= high)]
        return LADDER[min(known, key=lambda n: (abs(n - at), n))] if known else None


@dataclass(frozen=True)
class Abilities:
    """Of a template; "takes" means: rendered in its place, once, and not as something else."""

    # -- messages
    as_parts: bool = False  # texts must be lists of parts
    system: bool = True  # takes a system message at the beginning
    alone: bool = True  # … and nothing else
    middle: bool = True  # takes one anywhere
    users: bool = True  # takes two users' messages in a row
    assistants: bool = True  # … and two assistants'
    reply_first: bool = True  # takes an assistant's message before any user's
    images: frozenset[str] = frozenset()  # roles whose messages may hold images
    # -- tools
    tools: ToolsForm | Literal[""] = ""
    needs_tools: bool = False  # renders nothing without a list of tools, be it empty
    calls_need_tools: bool = False  # … or no calls
    any_schema: bool = True  # takes tools whose parameters leave out what they are
    below_system: bool = False  # tells tools only if there is a system message
    calls: ArgumentsForm | Literal[""] = ""
    text_arguments: bool = False  # takes arguments as text, too, and prints that
    ids: IdForm = "any"
    silence: str | None = ""  # what says nothing beside calls
    text_with_calls: Literal["beside", "before", ""] = ""  # where a text goes that comes with calls
    thoughts_with_text: bool = False  # … and whether thoughts are kept with it, before
    parallel: bool = False  # takes several calls in a message
    results: bool = False  # takes messages of tools
    orphans: bool = False  # … also where no call came before, nor a name
    unanswered: bool = False  # takes calls without results
    after_results: bool = False  # takes a user's message right behind results
    gap: bool = False  # … or behind an assistant's that says nothing
    forgets: bool = False  # at a user's message there, leaves out thoughts before it
    # -- thoughts
    thoughts: ThoughtsPlace | Literal[""] = ""  # where those of earlier replies go
    switch: Switch | None = None
    effort: Effort | None = None
    budget: str = ""  # an option that takes a number of tokens

    def thinking_options(self, asked: Thinking) -> dict[str, Any]:
        """Options for what a conversation says of thinking, of those that the template knows."""
        effort, enabled, budget = asked.get("effort"), asked.get("enabled"), asked.get("budget")
        if enabled is None and (effort in OFF or budget == 0):
            enabled = False
        elif enabled is None and (budget or effort in LADDER[1:]):
            enabled = True
        options: dict[str, Any] = {}
        if self.switch is not None and enabled is not None:
            options[self.switch.name] = self.switch.on if enabled else self.switch.off
        if self.effort is not None:
            off = next((word for word in OFF if word in self.effort.values), None)
            word = self.effort.nearest(effort) if effort and enabled is not False else None
            if enabled is False and self.switch is None:
                word = off
            if word is not None:
                options[self.effort.name] = word
        if self.budget and budget and enabled is not False:
            options[self.budget] = budget
        return options
