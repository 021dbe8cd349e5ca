"""Markdown on a terminal: the same however it comes in pieces, within the width, in colours."""

from __future__ import annotations

import random
import re

import pytest

from bushel.commands.terminal.markdown_stream import MarkdownStream
from bushel.commands.terminal.terminal_text import Ink, clipped, printable, width

CODES = re.compile(r"\x1b\[[0-9;]*m")
TEXT = """\
# A *title* here

**Bold words that go on** and `code with spaces`, 2*3*4, 3 * 4, snake_case_name and \\*stars\\*.
- an item that is long enough to be broken over more than one line of the window
  - **inner** one
1. first
2) second

> quoted

```python
def f(x):
    return x * 2  # a `comment`
```
| name | count |
|:---|---:|
| **a** | 12 |
| 日本語 | 3 |

---
日本語のテキストはスペースがないのでどこでも改行できますとても長い文章です。
https://example.com/a_very_long_address_that_fits_into_no_line/of_this_window/however_it_is_broken
The end
"""


class Coloured(Ink):
    def __init__(self) -> None:
        self.on = True


class Plain(Ink):
    def __init__(self) -> None:
        self.on = False


def shown(pieces: list[str], ink: Ink | None = None, columns: int = 60) -> str:
    parts: list[str] = []
    stream = MarkdownStream(parts.append, ink or Coloured(), lambda: columns)
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return "".join(parts)


def cut(text: str, seed: int) -> list[str]:
    chance, pieces = random.Random(seed), []
    while text:
        size = chance.choice((1, 1, 2, 3, 7, 20))
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_pieces_make_no_difference(columns: int) -> None:
    whole = CODES.sub("", shown([TEXT], columns=columns))
    for seed in range(20):
        assert CODES.sub("", shown(cut(TEXT, seed), columns=columns)) == whole


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_no_line_is_wider_than_the_window(columns: int) -> None:
    for line in CODES.sub("", shown(cut(TEXT, 1), columns=columns)).splitlines():
        assert width(line) <= columns or line.startswith(("https:", "    return"))


def test_marks_become_colours() -> None:
    text = shown([TEXT])
    for piece in (
        "\x1b[1mBold\x1b[0m",
        "\x1b[36mcode\x1b[0m",
        "\x1b[1;3mtitle\x1b[0m",
        "• an item",
    ):
        assert piece in text
    plain = CODES.sub("", text)
    assert "2*3*4, 3 * 4, snake_case_name and *stars*." in " ".join(plain.split())
    assert "\n    return x * 2  # a `comment`\n" in plain
    assert "**" not in plain


def test_columns_of_a_table_stand_below_each_other() -> None:
    lines = CODES.sub("", shown(cut(TEXT, 3))).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("name"))
    table = ["name    count", "──────  ─────", "a          12", "日本語      3"]
    assert lines[at : at + 4] == table


def test_what_follows_a_table_that_ends_the_reply_is_shown() -> None:
    assert "a" in shown(["| a | b |\n|---|---|\n| 1 | 2 |"])
    assert "2" in shown(["| a | b |\n|---|---|\n| 1 | 2 |"])


def test_without_colours_the_text_is_as_it_was_written() -> None:
    assert shown(cut(TEXT, 5), Plain()) == TEXT


@pytest.mark.parametrize("text", ["", "\n", "`", "**", "| ", "```", "- ", "# ", "*a", "> "])
def test_what_breaks_off_is_shown_and_raises_nothing(text: str) -> None:
    assert CODES.sub("", shown([text])).strip() in ("", text.strip(), "a", "•", "│")


def test_control_characters_are_taken_out() -> None:
    assert printable("a\x1b[31mb\x1b]0;title\x07c\x07d\te\r\nf\x9bg\ud800") == "abcd\te\nfg"
    assert printable("日本 émigré 👍") == "日本 émigré 👍"


def test_widths_are_those_of_a_terminal() -> None:
    assert (width("abc"), width("日本"), width("e\u0301"), width("👍")) == (3, 4, 1, 2)
    assert clipped("日本語", 5) == "日本…"
    assert clipped("abcdef", 4, end=True) == "…def"
