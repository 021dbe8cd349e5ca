"""Conversations of coding agents: long rules, many tools with long schemas, and files to read.

Names of tools and of their parameters are those that agents really send. Rules, descriptions,
files and what stands in them are made, and how a person asks is split like everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.tiny.chat import Check
from tools.tiny.tasks.agent_tools import NOTHING, REQUESTS, ROLES
from tools.tiny.tasks.base import Exchange
from tools.tiny.tasks.toolbox import Offer, Use
from tools.tiny.tasks.tools import calling, file_lines, result, says, told, unfit
from tools.tiny.words import ADJECTIVES, NOUNS, VERBS, Draw, words_in

_TYPES = {"s": "string", "i": "integer", "n": "number", "b": "boolean", "l": "array"}
_ENDINGS = words_in("txt txt txt md md py json csv log toml yml js ts html cfg sh rs go ini")
_BARE = words_in("README LICENSE Makefile Dockerfile NOTES TODO CHANGELOG")
_ROOTS = ("/home/user/project", "/work", "/tmp", "/workspace", "/Users/me/code", "/root", "/app")
_RULES = (
    "[Always|Never|Please|Do not|You must|You should|Try to|Remember to] {v} the {n} [before|after|"
    "when|unless|while] you {w} the {m}.",
    "[If|When|Whenever] [the user|a user|someone] [asks|wants] you to {v} [a|the] {n}, [first |]"
    "{w} the {m}[ and report it| and stop| with care|].",
    "[Use|Prefer|Call|Take] {t} [for|with|only for] [a|the|every] {n}[, not the {m}| and the {m}|]"
    ".",
    "[The|A|This] {n} [parameter|argument|field|option] [is|must be|should be] {a}[ and never {b}|]"
    ".",
    "[For example|Example|See|Compare]: {p}[ or the {n}| and the {m}|].",
    "[Keep|Make] [answers|replies|output|messages] {a} and {b}[, with no {n}|].",
    "[Results|Files|Lines|Paths] are {a}[ and {b}|], [so|and] {v} [them|the {n}] [first|again|"
    "once].",
)  # fmt: skip
_HEADINGS = ("# {n}", "## {a} {n}", "{n}:", "<{n}>", "**{n}**", "IMPORTANT:", "Notes:", "# Rules")


def file_name(draw: Draw) -> str:
    word = draw.word() if draw.chance(0.9) else f"{draw.word()}_{draw.word()}"
    name = draw.pick(_BARE) if draw.chance(0.06) else f"{word}.{draw.pick(_ENDINGS)}"
    dice = draw.rng.random()
    if dice < 0.5:
        return name
    if dice < 0.75:
        return f"{draw.word()}/{name}"
    return f"{draw.pick((*_ROOTS, '.', '..', '~'))}/{name}"


def _rule(draw: Draw, names: list[str]) -> str:
    if draw.chance(0.25):
        return draw.sentence()
    if draw.chance(0.15):
        return " ".join(draw.word() for _ in range(draw.between(5, 20)))
    return draw.say(
        draw.pick(_RULES), n=draw.one_of(NOUNS), m=draw.one_of(NOUNS), v=draw.pick(VERBS),
        w=draw.pick(VERBS), a=draw.pick(ADJECTIVES), b=draw.pick(ADJECTIVES),
        t=draw.pick(names or ["this"]), p=file_name(draw),
    )  # fmt: skip


class Prose:
    """Rules as an agent's authors write them; sentences come again, for making them is slow."""

    def __init__(self, draw: Draw, names: list[str], characters: int):
        self.draw, self.names = draw, names
        self.pool = [_rule(draw, names) for _ in range(min(50, characters // 80 + 6))]

    def line(self) -> str:
        fresh = self.draw.chance(0.25)
        return _rule(self.draw, self.names) if fresh else self.draw.pick(self.pool)

    def text(self, characters: int) -> str:
        parts: list[str] = []
        total = 0
        while total < characters:
            line = self.line()
            dice = self.draw.rng.random()
            if dice < 0.2:
                line = f"\n- {line}"
            elif dice < 0.3:
                line = f"\n{line}"
            elif dice < 0.34:
                head = self.draw.pick(_HEADINGS)
                noun, kind = self.draw.pick(NOUNS), self.draw.pick(ADJECTIVES)
                line = f"\n\n{head.format(n=noun.capitalize(), a=kind)}\n{line}"
            parts.append(line)
            total += len(line) + 1
        return re.sub(" \n", "\n", " ".join(parts)).strip()


class Instrument(Offer):
    """One of an agent's tools, in that agent's style of names."""

    def __init__(self, draw: Draw, role: str, style: int, paths: str):
        self.role = role
        names, others, purpose, spec = ROLES[role]
        usual = draw.chance(0.75) or not others
        name = names.split()[style] if usual else draw.pick(others.split())
        camel = style in (0, 3) and draw.chance(0.6)
        self.keys: dict[str, str] = {}
        properties: dict[str, Any] = {}
        required: list[str] = []
        for part in spec.split():
            slot, kind, *options = part.split(":")
            optional = kind.endswith("?")
            if optional and draw.chance(0.45):
                continue
            key = paths if slot == "path" and role in _FILES else draw.pick(options or [slot])
            key = re.sub(r"_(.)", lambda hit: hit[1].upper(), key) if camel else key
            self.keys[slot] = key
            properties[key] = _entry(draw, kind[0])
            if not optional:
                required.append(key)
        parameters: dict[str, Any] = {"type": "object", "properties": properties}
        if required or draw.chance(0.5):
            parameters["required"] = required
        if draw.chance(0.3):
            parameters["additionalProperties"] = False
        if draw.chance(0.2):
            parameters = {"$schema": "http://json-schema.org/draft-07/schema#", **parameters}
        about = draw.say(purpose)
        function = {"name": name, "description": about, "parameters": parameters}
        self.tool = {"type": "function", "function": function}
        self.kin = "read_file" if role in _FILES else "search"

    @property
    def topic(self) -> set[str]:
        return set(re.sub(r"([a-z])([A-Z])", r"\1 \2", self.name).lower().split("_")) | {self.role}

    def describe(self, prose: Prose, characters: int) -> None:
        """More about the tool and its parameters."""
        function = self.tool["function"]
        function["description"] += prose.draw.pick((" ", "\n", "\n\n")) + prose.text(characters)
        for entry in function["parameters"]["properties"].values():
            if prose.draw.chance(0.7):
                entry["description"] = prose.line()

    def call(self, **values: object) -> Use:
        return Use(self.tool, "", {self.keys[slot]: value for slot, value in values.items()})


_FILES = frozenset(("read", "write", "edit"))
_PATHS = words_in("path path file_path file_path filepath absolute_path target_file file filename")


def _entry(draw: Draw, kind: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": _TYPES[kind]}
    if kind == "l":
        inner = {"content": {"type": "string"}, "status": {"type": "string"}}
        objects = {"type": "object", "properties": inner, "required": list(inner)}
        entry["items"] = draw.pick(({"type": "string"}, objects))
    elif kind in "in" and draw.chance(0.3):
        entry.update(draw.pick(({"minimum": 0}, {"default": draw.between(1, 2000)})))
    elif kind == "i" and draw.chance(0.15):
        entry["type"] = ["integer", "null"]
    return entry


@dataclass
class Desk:
    """What one agent has: its tools by role, and the rules it was given."""

    tools: dict[str, Instrument]
    system: str
    prose: Prose


def desk(draw: Draw, characters: int) -> Desk:
    """Rules and tools of about that many characters, with something that can read a file."""
    style, paths = draw.between(0, 3), draw.pick(_PATHS)
    most = max(1, min(len(ROLES), characters // 380))
    others = [role for role in ROLES if role not in ("read", "shell")]
    first = ["read", "shell"] if draw.chance(0.7) else [draw.pick(("read", "read", "shell"))]
    roles = [*first, *draw.some(others, min(len(others), draw.between(0, most)))]
    draw.rng.shuffle(roles)
    tools = {role: Instrument(draw, role, style, paths) for role in roles}
    left = max(0, characters - 330 * len(tools))
    prose = Prose(draw, [it.name for it in tools.values()], left)
    system = ""
    if draw.chance(0.85):
        ruled = int(left * draw.rng.random() * 0.7)
        system, left = _system(draw, prose, ruled), left - ruled
    for tool in tools.values():
        if draw.chance(0.85):
            tool.describe(prose, int(1.5 * draw.rng.random() * left / len(tools)))
    return Desk(tools, system, prose)


_IDENTITY = (
    "You are {p}, [a|an interactive|a careful|a small|an expert] [coding agent|command line agent|"
    "software agent|coding assistant|programming helper|agent in a terminal][.| for {q}.| that "
    "helps with files.| made by {q}.]"
)


def _system(draw: Draw, prose: Prose, characters: int) -> str:
    parts = [draw.say(_IDENTITY, p=draw.name(), q=draw.name())] if draw.chance(0.8) else []
    if characters > 60:
        parts.append(prose.text(characters))
    if draw.chance(0.5):
        lines = [
            f"{draw.say('[Working directory|Current directory|cwd|Folder]')}: {draw.pick(_ROOTS)}",
            f"Platform: {draw.pick(('linux', 'darwin', 'win32'))}",
            f"{draw.say('[Date|Today|Current date]')}: {draw.between(2024, 2027)}-0"
            f"{draw.between(1, 9)}-{draw.between(10, 28)}",
        ]
        shown = "\n".join(draw.some(lines, draw.between(1, 3)))
        parts.append(f"<env>\n{shown}\n</env>" if draw.chance(0.4) else shown)
    return draw.pick(("\n", "\n\n")).join(parts)


_NUMBERED = ("{n:6d}→{t}", "{n:6d}\t{t}", "{n:05d}| {t}", "{n}| {t}", "{n}: {t}", "{n}\t{t}")


def _shown(draw: Draw, prose: Prose, path: str, lines: list[str]) -> str:
    """A file's lines as one tool or another returns them."""
    text = "\n".join(lines)
    if draw.chance(0.5):
        form = draw.pick(_NUMBERED)
        text = "\n".join(form.format(n=at + 1, t=line) for at, line in enumerate(lines))
    if draw.chance(0.15):
        text += f"\n\n({draw.say('[End of file|EOF|End]')} - total {len(lines)} lines)"
    dice = draw.rng.random()
    if dice < 0.14:
        text = f"<file>\n{text}\n</file>"
    elif dice < 0.22:
        text = f"<path>{path}</path>\n<type>file</type>\n<content>\n{text}\n</content>"
    elif dice < 0.27:
        text = f"```\n{text}\n```"
    elif dice < 0.32:
        text = f"File: {path}\n{text}"
    elif dice < 0.38 and len(lines) == 1:
        key = draw.pick(("content", "output", "text", "result"))
        text = json.dumps({key: lines[0]}, ensure_ascii=False)
    if draw.chance(0.12):
        text += f"\n\n<system-reminder>\n{prose.text(draw.between(40, 300))}\n</system-reminder>"
    return text + draw.pick(("", "", "\n"))


def _printed(draw: Draw, lines: list[str]) -> str:
    """What a shell returns."""
    text = "\n".join(lines)
    if draw.chance(0.35):
        seconds = f"{draw.between(0, 2)}.{draw.number(2, 4)}"
        text = f"Wall time: {seconds} seconds\nProcess exited with code 0\nOutput:\n{text}"
        if draw.chance(0.5):
            text = f"Chunk ID: {draw.number(4, 6)}\n{text}"
    elif draw.chance(0.15) and len(lines) == 1:
        text = json.dumps({"output": lines[0], "exit_code": 0}, ensure_ascii=False)
    return text + draw.pick(("", "\n"))


_MISSING = (
    "[File not found|No such file|Cannot open|Cannot read|Unknown file]: {p}",
    "[Error|error|Failed]: {p} [not found|does not exist|is missing|cannot be read]",
    "[cat|open|read]: {p}: [No such file or directory|Permission denied|Is a directory]",
)


Result = tuple[str, str, list[str]]


def read_result(draw: Draw, prose: Prose, path: str, shell: bool = False) -> Result:
    """What comes back for a file, what to tell of it, and the words that must be in that."""
    dice = draw.rng.random()
    if dice < 0.07:
        reason = draw.say(draw.pick(_MISSING), p=path)
        return reason, f"That failed: {reason}", [reason]
    if dice < 0.09:
        return "", "It is empty.", ["empty"]
    lines = file_lines(draw)
    shown = _printed(draw, lines) if shell else _shown(draw, prose, path, lines)
    return shown, says(lines), lines


class Session:
    """Requests to one agent's tools."""

    def __init__(self, draw: Draw, chosen: Desk):
        self.draw, self.desk, self.tools = draw, chosen, chosen.tools

    def _exchange(self, request: str, steps: list[dict[str, Any]], outcome: Result) -> Exchange:
        _, answer, words = outcome
        return Exchange(
            "agent", request, answer, "The tool has answered.", Check("says", words), steps=steps
        )

    def _asked(self, role: str, tool: str, **values: object) -> str:
        draw = self.draw
        request = draw.say(draw.pick(REQUESTS[role]), **values)
        if tool and draw.chance(0.12):
            opening = draw.say("[Use|Call|Take] [the {tool} tool|{tool}][.|:| for this.| now.]")
            request = f"{opening.replace('{tool}', tool)} {request}"
        return f'"{request}"' if draw.chance(0.05) else request

    def read(self) -> Exchange:
        draw, path = self.draw, file_name(self.draw)
        tool = self.tools.get("read")
        if tool:
            use = tool.call(path=path)
        else:
            tool = self.tools["shell"]
            use = tool.call(command=f"cat {path}")
        outcome = read_result(draw, self.desk.prose, path, tool.role == "shell")
        steps = [calling([use]), told(0, outcome[0])]
        return self._exchange(self._asked("read", tool.name, p=path), steps, outcome)

    def read_two(self) -> Exchange:
        draw, tool = self.draw, self.tools.get("read")
        if not tool:
            return self.read()
        files = [file_name(draw), file_name(draw)]
        found = [file_lines(draw)[:1] for _ in files]
        uses = [tool.call(path=path) for path in files]
        shown = [_shown(draw, self.desk.prose, p, it) for p, it in zip(files, found, strict=True)]
        steps = [calling(uses), *(told(at, text) for at, text in enumerate(shown))]
        request = self._asked("read_two", tool.name, p=files[0], q=files[1])
        answer = "\n".join(says(lines) for lines in found)
        return self._exchange(request, steps, ("", answer, [lines[0] for lines in found]))

    def run(self) -> Exchange:
        draw, tool = self.draw, self.tools["shell"]
        command = draw.pick(words_in("ls pwd cat echo grep git make pytest python3 head wc node"))
        command += f" {draw.pick(('-l', '-a', '-n', ''))} {draw.word()}".replace("  ", " ")
        lines = file_lines(draw)
        steps = [calling([tool.call(command=command)]), told(0, _printed(draw, lines))]
        request = self._asked("shell", tool.name, c=command)
        return self._exchange(request, steps, ("", says(lines), lines))

    def write(self) -> Exchange:
        draw, tool, path = self.draw, self.tools["write"], file_name(self.draw)
        text = " ".join(draw.word() for _ in range(draw.between(1, 5)))
        use = tool.call(path=path, content=text)
        steps = [calling([use]), told(0, self._saved(path))]
        return self._exchange(
            self._asked("write", tool.name, p=path, t=text), steps, ("", "Done.", ["done"])
        )

    def _saved(self, path: str) -> str:
        saved = "[The file {p} has been [updated|saved|written]|Wrote {p}|OK|done|Edit applied]"
        return self.draw.say(f"{saved}[.|]", p=path)

    def edit(self) -> Exchange:
        """It is read first: many agents refuse to change a file that was not."""
        draw, path = self.draw, file_name(self.draw)
        old, new = draw.word(), draw.word()
        lines = file_lines(draw)
        words = lines[0].split(" ")
        words.insert(draw.between(0, len(words)), old)
        lines[0] = " ".join(words)
        steps = []
        reader, tool = self.tools.get("read"), self.tools["edit"]
        if reader:
            shown = _shown(draw, self.desk.prose, path, lines)
            steps = [calling([reader.call(path=path)]), told(0, shown)]
        use = tool.call(path=path, old_string=old, new_string=new)
        steps += [calling([use]), told(0, self._saved(path))]
        request = self._asked("edit", "", p=path, a=old, b=new)
        return self._exchange(request, steps, ("", "Done.", ["done"]))

    def look(self, role: str) -> Exchange:
        """A folder, a pattern, a word or an address, each with one argument."""
        draw, tool = self.draw, self.tools[role]
        if role == "list":
            slot, value = "path", f"{draw.pick(('', './', '/', 'src/'))}{draw.word()}"
        elif role == "glob":
            slot, value = "pattern", f"{draw.pick(('', '**/', 'src/'))}*.{draw.pick(_ENDINGS)}"
        elif role == "grep":
            slot, value = "pattern", draw.word()
        else:
            slot, value = "url", f"https://{draw.made_word()}.{draw.pick(('com', 'org'))}"
            value += f"/{draw.word()}" if draw.chance(0.5) else ""
        lines = [file_name(draw) for _ in range(draw.between(1, 4))]
        lines = file_lines(draw) if role == "fetch" else lines
        steps = [calling([tool.call(**{slot: value})]), told(0, "\n".join(lines))]
        request = self._asked(role, tool.name, x=value)
        return self._exchange(request, steps, ("", says(lines), lines))

    def plain(self, role: str) -> Exchange:
        """A tool that takes nothing."""
        outcome = result(self.draw)
        steps = [calling([self.tools[role].call()]), told(0, outcome[0])]
        return self._exchange(self._asked(role, self.tools[role].name), steps, outcome)

    def makers(self) -> list[Callable[[], Exchange]]:
        """What these tools can be asked for, reading most of all."""
        found: list[Callable[[], Exchange]] = [self.read] * 5 + [self.read_two]
        single = {"shell": self.run, "write": self.write, "edit": self.edit}
        found += [make for role, make in single.items() if role in self.tools]
        for role in self.tools:
            if role in ("list", "glob", "grep", "fetch"):
                found.append(lambda role=role: self.look(role))
            elif role in NOTHING:
                found += [lambda role=role: self.plain(role)] * 2
        return found


def _among(draw: Draw, prose: Prose, request: str) -> str:
    """The request with what agents put around it."""
    for _ in range(draw.pick((0, 0, 0, 1, 2))):
        reminder = f"<system-reminder>\n{prose.text(draw.between(30, 400))}\n</system-reminder>"
        joint = draw.pick(("", "\n"))
        after = draw.chance(0.25)
        request = f"{request}\n\n{reminder}" if after else f"{reminder}{joint}{request}"
    return request + draw.pick(("", "", "", "\n"))


def session(
    draw: Draw, characters: int, count: int, beside: Callable[[Draw], Exchange] | None = None
) -> tuple[str, list[Exchange]]:
    """The rules, and `count` requests; without `beside` files are read and nothing else."""
    mine = desk(draw, characters)
    asked = Session(draw, mine)
    makers = asked.makers() if beside else [asked.read]
    exchanges = []
    for _ in range(count):
        dice = draw.rng.random()
        if beside and dice < 0.1:
            exchanges.append(unfit(draw, list(mine.tools.values())))
        elif beside and dice < 0.2:
            other = beside(draw)
            if other.check.how != "no_call":
                other.kind, other.check = "no_tool", Check("no_call", other.check)
            exchanges.append(other)
        else:
            exchanges.append(draw.pick(makers)())
    exchanges[0].user = _among(draw, mine.prose, exchanges[0].user)
    if draw.chance(0.12):  # some agents add rules behind the first request
        more = {"role": "system", "content": mine.prose.text(draw.between(30, 500))}
        exchanges[0].steps.insert(0, more)
    exchanges[0].tools = [tool.tool for tool in mine.tools.values()]
    return mine.system, exchanges


def clocks(draw: Draw, beside: Callable[[Draw], Exchange]) -> list[Exchange]:
    """One or two tools that take nothing, and nothing else."""
    style = draw.between(0, 3)
    roles = draw.some(sorted(NOTHING), draw.between(1, 2))
    tools = {role: Instrument(draw, role, style, "path") for role in roles}
    asked = Session(draw, Desk(tools, "", Prose(draw, [], 100)))
    exchanges = []
    for _ in range(draw.pick((1, 1, 2))):
        dice = draw.rng.random()
        if dice < 0.7:
            exchanges.append(asked.plain(draw.pick(roles)))
        elif dice < 0.85:
            exchanges.append(unfit(draw, list(tools.values())))
        else:
            other = beside(draw)
            if other.check.how != "no_call":
                other.kind, other.check = "no_tool", Check("no_call", other.check)
            exchanges.append(other)
    exchanges[0].tools = [tool.tool for tool in tools.values()]
    return exchanges
