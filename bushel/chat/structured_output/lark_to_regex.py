"""A grammar without recursion is one regular expression, which a JSON string can be held to.

    start: "a" item+            start ─> a(?:(?:x|y)\\n)+
    item: ("x" | "y") LF

Rules that repeat themselves at one of their ends are loops; nothing else that recurs can be said.
Where terminals are ignored, they may come before and behind every other one.
"""

from __future__ import annotations

from bushel.chat.structured_output.lark import escaped
from bushel.chat.structured_output.lark_notation import (
    ChoiceNode,
    LarkNode,
    LarkRules,
    NameNode,
    NotLark,
    PatternNode,
    RangeNode,
    RepeatNode,
    SequenceNode,
    TextNode,
    is_terminal,
    read_rules,
)

MOST_GRAMMAR = 64 << 10  # characters of a grammar
# RangeNode of what is made of it: rules that stand in several places are written in each.
_MOST_REGEX = 64 << 10
_SAME_HERE = str.maketrans("", "", "ul")  # flags that say how llguidance matches in any case


def regex_of_lark(definition: str) -> str:
    """NotLark, with a reason, if there is none."""
    if len(definition) > MOST_GRAMMAR:
        raise NotLark(f"has more than {MOST_GRAMMAR} characters")
    return _Expansion(read_rules(definition)).whole()


class _Expansion:
    def __init__(self, rules: LarkRules):
        self._rules = rules.by_name
        self._known: dict[str, str] = {}
        self._open: list[str] = []
        self._skip = ""
        if rules.ignored:
            ignored = "|".join(self._regex(node, lexeme=True) for node in rules.ignored)
            self._skip = f"(?:{ignored})*"

    def whole(self) -> str:
        if "start" not in self._rules:
            raise NotLark("has no rule called start")
        return self._named("start") + self._skip

    def _named(self, name: str, *, lexeme: bool = False) -> str:
        if name not in self._rules:
            raise NotLark(f"has no rule called {name[:40]!r}")
        key = f"{name} inside" if lexeme else name
        if key not in self._known:
            if name in self._open:
                raise NotLark(
                    f"is recursive: {name[:40]!r} contains itself, and not only at one end of it. "
                    "A model's calls can be held to grammars without recursion only"
                )
            self._open.append(name)
            try:
                inside = lexeme or is_terminal(name)
                regex = self._rule(name, self._rules[name], inside)
            except RecursionError:
                raise NotLark("has rules too deep inside of each other") from None
            self._open.pop()
            if len(regex) > _MOST_REGEX:
                raise NotLark("is too large when its rules are put into each other")
            if is_terminal(name) and not lexeme:
                regex = self._skip + regex
            self._known[key] = regex
        return self._known[key]

    def _rule(self, name: str, node: LarkNode, lexeme: bool) -> str:
        """A rule that goes on with itself at one end is what it is otherwise, and a loop."""
        ways = [_items(way) for way in (node.items if isinstance(node, ChoiceNode) else (node,))]
        itself = NameNode(name)
        left = [way[1:] for way in ways if len(way) > 1 and way[0] == itself]
        right = [way[:-1] for way in ways if len(way) > 1 and way[-1] == itself]
        if not left and not right:
            return self._regex(node, lexeme)
        others = [way for way in ways if itself not in (way[:1] + way[-1:])]
        if not others:
            raise NotLark(f"is endless: every {name[:40]!r} contains another")
        end = self._ways(others, lexeme)
        if not left:
            return f"(?:{self._ways(right, lexeme)})*{end}"
        if len(left) < len([way for way in ways if way not in others and way != (itself,)]):
            raise NotLark(
                f"is recursive: {name[:40]!r} contains itself at its beginning and at its end"
            )
        otherwise = ChoiceNode(tuple(map(SequenceNode, others)))
        # What follows itself, as in "a: a X a", can only be what it is otherwise.
        more = [(*way[:-1], otherwise) if way[-1] == itself else way for way in left]
        return f"{end}(?:{self._ways(more, lexeme)})*"

    def _ways(self, ways: list[tuple[LarkNode, ...]], lexeme: bool) -> str:
        return self._regex(ChoiceNode(tuple(map(SequenceNode, ways))), lexeme)

    def _regex(self, node: LarkNode, lexeme: bool) -> str:
        """lexeme: it is inside of a terminal, where nothing is ignored."""
        if isinstance(node, NameNode):
            return self._named(node.name, lexeme=lexeme)
        if isinstance(node, SequenceNode):
            return self._bounded("".join(self._regex(item, lexeme) for item in node.items))
        if isinstance(node, ChoiceNode):
            ways = dict.fromkeys(self._regex(item, lexeme) for item in node.items)
            return self._bounded(f"(?:{'|'.join(ways)})")
        if isinstance(node, RepeatNode):
            return f"(?:{self._regex(node.item, lexeme)}){_times(node)}"
        return ("" if lexeme else self._skip) + _lexeme(node)

    @staticmethod
    def _bounded(regex: str) -> str:
        if len(regex) > _MOST_REGEX:
            raise NotLark("is too large when its rules are put into each other")
        return regex


def _items(node: LarkNode) -> tuple[LarkNode, ...]:
    return node.items if isinstance(node, SequenceNode) else (node,)


def _lexeme(node: TextNode | PatternNode | RangeNode) -> str:
    if isinstance(node, TextNode):
        return f"(?i:{escaped(node.text)})" if node.any_case else escaped(node.text)
    if isinstance(node, RangeNode):
        return f"[{escaped(node.first)}-{escaped(node.last)}]"
    flags = "".join(dict.fromkeys(node.flags.translate(_SAME_HERE)))
    return f"(?{flags}:{node.regex})"


def _times(node: RepeatNode) -> str:
    if node.most is None:
        return "+" if node.least else "*"
    if (node.least, node.most) == (0, 1):
        return "?"
    if node.most < node.least:
        raise NotLark("has a repetition that ends before it begins")
    return f"{{{node.least},{node.most}}}"
