"""A table of markdown with its columns below each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bushel.commands.terminal.inline_markdown import InlineMarkdown
from bushel.commands.terminal.terminal_text import BOLD, Ink, width

_BAR = re.compile(r"(?<!\\)\|")
_SEPARATOR = re.compile(r"[ ]*:?-+:?[ ]*")
_BETWEEN = "  "

Cell = list[tuple[str, tuple[str, ...]]]  # texts, and the codes of each


def table_lines(rows: list[str], ink: Ink, columns: int) -> Iterator[str]:
    """As they were written, where they would be too wide."""
    cells = [_BAR.split(row.strip().removeprefix("|").removesuffix("|")) for row in rows]
    headed = len(cells) > 1 and all(_SEPARATOR.fullmatch(cell) for cell in cells[1])
    signs = [cell.strip() for cell in cells[1]] if headed else []
    right = {at for at, sign in enumerate(signs) if sign[-1] == ":" != sign[0]}
    table = [[_read(cell) for cell in row] for row in cells[:1] + cells[1 + headed :]]
    widths = [
        max(_width(row[at]) for row in table if at < len(row)) for at in range(max(map(len, table)))
    ]
    if sum(widths) + len(_BETWEEN) * (len(widths) - 1) > columns - 1:
        yield from rows
        return
    for number, row in enumerate(table):
        yield _BETWEEN.join(
            _shown(cell, widths[at], ink, bold=headed and not number, right=at in right)
            for at, cell in enumerate(row)
        ).rstrip()
        if headed and not number:
            yield ink.dim(_BETWEEN.join("─" * size for size in widths))


def _read(cell: str) -> Cell:
    inline = InlineMarkdown()
    words: Cell = []
    for word in re.findall(r"[ ]+|[^ ]+", cell.strip().replace("\\|", "|")):
        words += [(word, ())] if word.isspace() else inline.words(word)
    return words


def _width(cell: Cell) -> int:
    return sum(width(text) for text, _ in cell)


def _shown(cell: Cell, size: int, ink: Ink, *, bold: bool, right: bool) -> str:
    text = "".join(ink.paint(word, *([BOLD] * bold), *codes) for word, codes in cell)
    padding = " " * (size - _width(cell))
    return padding + text if right else text + padding
