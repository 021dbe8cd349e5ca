"""Writing a grammar in llguidance's dialect of Lark.

Text that is free runs up to a marker. Where a marker is a token of its own, nothing else can be
that token; where it is spelled, the text is what comes before its first occurrence:

    token      T? <[8]>                    T has no "</think>" in it, however it is spelled
    spelled    r[lazy]: /(?s:.*)</think>/

Two pieces of such text never stand side by side: together they could say what neither may.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ANY = "(?s:.*)"
ANY_TEXT = f"/{ANY}/"
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~/]")
# JSON is written on one line, with or without a space behind commas and colons. Models that may
# write more white space than that go on with it when they are lost.
_JSON = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
SPACE = "/[ \\t\\r\\n]{0,4}/"  # between thoughts, answers and calls


def escaped(text: str) -> str:
    """As a regular expression between slashes."""
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\n", r"\n").replace("\r", r"\r")


def slashed(pattern: str) -> str:
    """A regular expression to stand between slashes."""
    return pattern.replace("\\/", "/").replace("/", "\\/").replace("\n", "\\n")


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class Lark:
    """tokens: text and id of the tokens that llguidance takes for no text (`text.tokenizer`).

    plain: ids of those that a reply may hold anywhere in free text.
    """

    def __init__(self, tokens: Mapping[str, int], plain: Iterable[int] = ()):
        self._tokens = tokens
        names = sorted(tokens, key=len, reverse=True)
        self._split = re.compile("|".join(map(re.escape, names)) or "(?!)")
        self._plain = ranges(plain)
        self._rules: list[str] = []
        self._known: dict[str, str] = {}  # names of rules by what they say

    def text(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join([f"start: {start}", *self._rules, ""])

    def rule(self, body: str, options: str = "") -> str:
        return self._named("r", body, options)

    def terminal(self, body: str) -> str:
        return self._named("T", body, "")

    def _named(self, kind: str, body: str, options: str) -> str:
        key = f"{kind}{options}: {body}"
        if key not in self._known:
            name = self._known[key] = f"{kind}{len(self._known)}"
            self._rules.append(f"{name}{options}: {body}")
        return self._known[key]

    def json(self, schema: Mapping[str, Any], *, exact: bool = True) -> str:
        """A value that a checked schema allows; exact: or a refusal when it is compiled."""
        how = {**_JSON, "lenient": not exact}
        return self.rule(f"%json {json.dumps({**schema, 'x-guidance': how}, ensure_ascii=False)}")

    def pieces(self, marker: str) -> list[tuple[str, int | None]]:
        """A marker as text and tokens, in order: (text, id or None)."""
        pieces: list[tuple[str, int | None]] = []
        at = 0
        for token in self._split.finditer(marker):
            pieces += [(marker[at : token.start()], None), (token.group(), self._tokens[token[0]])]
            at = token.end()
        return [piece for piece in (*pieces, (marker[at:], None)) if piece[0]]

    def mark(self, marker: str) -> str:
        """Exactly this text."""
        return " ".join(
            quoted(text) if token is None else f"<[{token}]>" for text, token in self.pieces(marker)
        )

    def free(self, never: Sequence[str]) -> str:
        """Any text, also none, that does not spell one of these."""
        words = f"{self.terminal(without('/(?s:.+)/', never))}?"
        return f"({words} (<[{self._plain}]> {words})*)" if self._plain else words

    def upto(self, marker: str, never: Sequence[str] = (), text: str = ANY_TEXT) -> str:
        """Free text and the first `marker` behind it. text: a terminal's body that it matches."""
        pieces = self.pieces(marker)
        # What is spelled before the first token belongs to one lexeme with the text.
        spelled = "" if pieces[0][1] is not None else pieces[0][0]
        if spelled == marker:
            body = f"({without(text, never)}) {quoted(marker)}"
            last = self.rule(self.terminal(body), "[lazy]")
        else:
            never = (*never, marker)
            body = without(text, never)
            head = self.terminal(f"({body}) {quoted(spelled)}" if spelled else body)
            last = f"{head} {self.mark(marker[len(spelled) :])}"
        if not self._plain or text != ANY_TEXT:
            return last
        before = self.terminal(without("/(?s:.+)/", never))
        return f"({before}? <[{self._plain}]>)* {last}"

    def is_spelled(self, marker: str) -> bool:
        """Whether it is text, and no token at all."""
        return all(token is None for _, token in self.pieces(marker))


def without(text: str, never: Sequence[str]) -> str:
    """A terminal's body: texts that match and hold none of these."""
    spelled = "|".join(sorted({escaped(forbidden) for forbidden in never}))
    return f"{text} & ~/{ANY}({spelled}){ANY}/" if never else text


def ranges(ids: Iterable[int]) -> str:
    """Ids as llguidance lists them: 3-5,9."""
    runs: list[list[int]] = []
    for token in sorted(set(ids)):
        if runs and runs[-1][1] == token - 1:
            runs[-1][1] = token
        else:
            runs.append([token, token])
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in runs)
