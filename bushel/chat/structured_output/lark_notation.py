"""Reads a grammar in Lark's notation into rules; of llguidance's additions to it, none.

start: "add" SP INT ("," INT)~0..3      rules begin small, terminals with capitals
SP: " "+
%import common.INT
%ignore /#[^\\n]*/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# What `%import common.NAME` brings.
_COMMON = {
    "CNAME": r"[_a-zA-Z][_a-zA-Z0-9]*",
    "CR": r"\r",
    "DIGIT": r"[0-9]",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "FLOAT": r"[0-9]+(?:\.[0-9]*)?[eE][+\-]?[0-9]+|[0-9]+\.[0-9]*|\.[0-9]+",
    "HEXDIGIT": r"[0-9a-fA-F]",
    "INT": r"[0-9]+",
    "LCASE_LETTER": r"[a-z]",
    "LETTER": r"[a-zA-Z]",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "NUMBER": r"[0-9]+(?:\.[0-9]*)?(?:[eE][+\-]?[0-9]+)?|\.[0-9]+(?:[eE][+\-]?[0-9]+)?",
    "SIGNED_FLOAT": r"[+\-]?(?:[0-9]+(?:\.[0-9]*)?[eE][+\-]?[0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)",
    "SIGNED_INT": r"[+\-]?[0-9]+",
    "SIGNED_NUMBER": r"[+\-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+\-]?[0-9]+)?",
    "UCASE_LETTER": r"[A-Z]",
    "WORD": r"[a-zA-Z]+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
}
_DEEPEST = 100  # brackets inside of each other

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\f\r]+|//[^\n]*|\#[^\n]*|\\\n)
    | (?P<line>\n)
    | (?P<string>"(?:[^"\\\n]|\\.)*"i?)
    | (?P<regex>/(?!/)(?:[^/\\\n]|\\.)+/[imslux]*)
    | (?P<directive>%[a-z]+)
    | (?P<arrow>->)
    | (?P<range>\.\.)
    | (?P<name>_?[A-Za-z][A-Za-z0-9_]*)
    | (?P<number>[0-9]+)
    | (?P<sign>[:|()\[\]?*+~,.!])
    """,
    re.VERBOSE,
)


_ESCAPE = re.compile(r"\\(?:x(?P<code>[0-9a-fA-F]{2})|u(?P<wide>[0-9a-fA-F]{4})|(?P<sign>.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


class NotLark(ValueError):
    """What a grammar has that is not in this notation, for a message to go on with."""


@dataclass(frozen=True)
class TextNode:
    text: str
    any_case: bool = False


@dataclass(frozen=True)
class PatternNode:
    regex: str
    flags: str = ""


@dataclass(frozen=True)
class RangeNode:
    first: str
    last: str


@dataclass(frozen=True)
class NameNode:
    name: str


@dataclass(frozen=True)
class SequenceNode:
    items: tuple[LarkNode, ...]


@dataclass(frozen=True)
class ChoiceNode:
    items: tuple[LarkNode, ...]


@dataclass(frozen=True)
class RepeatNode:
    item: LarkNode
    least: int
    most: int | None


LarkNode = TextNode | PatternNode | RangeNode | NameNode | SequenceNode | ChoiceNode | RepeatNode


@dataclass(frozen=True)
class LarkRules:
    by_name: dict[str, LarkNode]
    ignored: tuple[LarkNode, ...]


def is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def read_rules(definition: str) -> LarkRules:
    """NotLark for anything else."""
    return _Reader(definition).rules()


class _Reader:
    def __init__(self, definition: str):
        self._tokens = [*_split(definition), ("end", "")]
        self._at = 0
        self._depth = 0
        self._rules: dict[str, LarkNode] = {}
        self._ignored: list[LarkNode] = []

    def rules(self) -> LarkRules:
        statements: dict[str, Callable[[], None]] = {"directive": self._directive}
        while self._kind != "end":
            if self._kind == "line":
                self._at += 1
            else:
                statements.get(self._kind, self._rule)()
        return LarkRules(self._rules, tuple(self._ignored))

    # -- tokens --

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._at][1]

    def _take(self, kind: str) -> str:
        if self._kind != kind:
            raise NotLark(f"has {self._text[:20]!r} where a {kind} is expected")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _sign(self, *signs: str) -> str:
        """The sign that is next, if it is one of these."""
        if self._kind == "sign" and self._text in signs:
            return self._take("sign")
        return ""

    def _need(self, sign: str) -> None:
        if not self._sign(sign):
            raise NotLark(f"has {self._text[:20]!r} where {sign!r} is expected")

    # -- statements --

    def _directive(self) -> None:
        directive = self._take("directive")
        if directive == "%ignore":
            self._ignored.append(self._choice())
        elif directive == "%import":
            self._import()
        else:
            raise NotLark(f"has {directive}, which is not supported")

    def _import(self) -> None:
        """`library.NAME`, or several as `library (NAME, OTHER)`."""
        library, names = self._take("name"), list[str]()
        if self._sign("("):
            names.append(self._take("name"))
            while self._sign(","):
                names.append(self._take("name"))
            self._need(")")
        else:
            self._need(".")
            names.append(self._take("name"))
        alias = ""
        if self._kind == "arrow":
            self._at += 1
            alias = self._take("name")
        for name in names:
            if library != "common" or name not in _COMMON:
                raise NotLark(f"imports {library}.{name}, which is not known here")
            self._rules[alias or name] = PatternNode(_COMMON[name])

    def _rule(self) -> None:
        while self._sign("?", "!"):  # how a tree is made of what was read
            pass
        name = self._take("name")
        if self._sign("."):
            self._take("number")  # a priority, which only matters to who reads by the grammar
        self._need(":")
        if name in self._rules:
            raise NotLark(f"defines {name[:40]!r} twice")
        self._rules[name] = self._choice()

    # -- what stands behind a colon --

    def _choice(self) -> LarkNode:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotLark(f"has brackets more than {_DEEPEST} deep")
        items = [self._sequence()]
        while self._alternative():
            items.append(self._sequence())
        self._depth -= 1
        return items[0] if len(items) == 1 else ChoiceNode(tuple(items))

    def _alternative(self) -> bool:
        """Alternatives may stand on lines of their own; so may whatever is inside of brackets."""
        ahead = self._at
        while self._tokens[ahead][0] == "line":
            ahead += 1
        if self._tokens[ahead] == ("sign", "|") or self._depth > 1:
            self._at = ahead
        return bool(self._sign("|"))

    def _sequence(self) -> LarkNode:
        items = []
        while True:
            while self._depth > 1 and self._kind == "line":
                self._at += 1
            if (item := self._repeated()) is None:
                break
            items.append(item)
        if self._kind == "arrow":
            self._at += 1
            self._take("name")
        return items[0] if len(items) == 1 else SequenceNode(tuple(items))

    def _repeated(self) -> LarkNode | None:
        item = self._item()
        while item is not None:
            if sign := self._sign("?", "*", "+"):
                item = RepeatNode(item, int(sign == "+"), 1 if sign == "?" else None)
            elif self._sign("~"):
                least = most = int(self._take("number"))
                if self._kind == "range":
                    self._at += 1
                    most = int(self._take("number"))
                item = RepeatNode(item, least, most)
            else:
                break
        return item

    def _item(self) -> LarkNode | None:
        if self._sign("("):
            item = self._choice()
            self._need(")")
            return item
        if self._sign("["):
            item = self._choice()
            self._need("]")
            return RepeatNode(item, 0, 1)
        if self._kind == "name":
            return NameNode(self._take("name"))
        if self._kind == "regex":
            regex, _, flags = self._take("regex")[1:].rpartition("/")
            return PatternNode(regex.replace("\\/", "/"), flags)
        if self._kind == "string":
            return self._string()
        return None

    def _string(self) -> LarkNode:
        text, any_case = _unquoted(self._take("string"))
        if self._kind != "range":
            return TextNode(text, any_case)
        self._at += 1
        last, _ = _unquoted(self._take("string"))
        if len(text) != 1 or len(last) != 1 or text > last:
            raise NotLark("has a range that is not of two characters in order")
        return RangeNode(text, last)


def _unquoted(string: str) -> tuple[str, bool]:
    any_case = string.endswith("i")
    text = _ESCAPE.sub(_unescaped, string.removesuffix("i")[1:-1])
    if not text:
        raise NotLark('has "", which matches nothing: make what surrounds it optional')
    return text, any_case


def _unescaped(escape: re.Match[str]) -> str:
    code = escape["code"] or escape["wide"]
    if code is not None:
        return chr(int(code, 16))
    return _ESCAPED.get(escape["sign"], escape["sign"])


def _split(definition: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(definition):
        token = _TOKEN.match(definition, at)
        if token is None:
            line = definition.count("\n", 0, at) + 1
            raise NotLark(f"has {definition[at : at + 20]!r} in line {line}, which is not Lark")
        at = token.end()
        kind = str(token.lastgroup)
        if kind != "space":
            yield kind, token[0]
