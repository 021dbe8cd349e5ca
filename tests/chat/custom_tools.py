"""Grammars of custom tools, each with texts that it allows and texts that it does not."""

from __future__ import annotations

from typing import Any, NamedTuple

# As coding agents send it.
APPLY_PATCH = """\
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""


class GrammarCase(NamedTuple):
    syntax: str
    definition: str
    allowed: list[str]
    forbidden: list[str]


GRAMMARS = {
    "a patch": GrammarCase(
        "lark",
        APPLY_PATCH,
        [
            "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n*** End Patch",
            "*** Begin Patch\n*** Delete File: b\n*** End Patch\n",
            "*** Begin Patch\n*** Update File: c.py\n*** Move to: d.py\n@@ def f():\n"
            '-    return "a\\n"\n+    return 1\n \n*** End of File\n*** End Patch',
        ],
        [
            "*** Begin Patch\n*** End Patch",
            "*** Begin Patch\n*** Add File: a.txt\none\n*** End Patch",
            "*** Begin Patch\n*** Delete File: \n*** End Patch\n",
        ],
    ),
    # Short, and all that has to be escaped in one format or another.
    "some lines": GrammarCase(
        "lark",
        'start: "<<\\"\\n" line~1..3 ">>"\n' r'line: ("+" | "-") /[a-z"\\<>\/& ]{0,6}/ "\n"',
        ['<<"\n+a"\\n\n>>', '<<"\n-</p>\n+\n>>'],
        ['<<"\n>>', '<<"\n+a>>', "<<\n+a\n>>", '<<"\n+a\n>>\n'],
    ),
    "a sum": GrammarCase(
        "lark",
        """
        start: expr
        expr: expr "+" term | term
        ?term: INT -> number
            | "(" INT ")"
        %import common.INT
        %ignore " "
        """,
        ["1", "1+22", "1 + (3)+4 "],
        ["", "1+", "(1", "1+a"],
    ),
    "a query": GrammarCase(
        "lark",
        'start: "select"i " " COLUMN ("," COLUMN)~0..2 [" limit " DIGIT]\n'
        'COLUMN: ("a".."c")+ // a name\nDIGIT: /[0-9]/',
        ["select ab", "SELECT a,b,c limit 3"],
        ["select d", "select a,b,c,a", "select a limit 10"],
    ),
    "a date": GrammarCase(
        "regex",
        r"^\d{4}-(0[1-9]|1[0-2])$",
        ["2026-11", "1999-01"],
        ["2026-13", "2026-1", "x2026-11"],
    ),
    "a path": GrammarCase("regex", r"/(?:[a-z]+/)*[a-z]+", ["/a", "/usr/lib"], ["a", "/a/", "//a"]),
}


def custom(name: str = "write", case: GrammarCase | None = None) -> dict[str, Any]:
    """A tool as `/v1/responses` has it; of any text, without a case."""
    tool: dict[str, Any] = {"type": "custom", "name": name, "description": "Writes it down."}
    if case is not None:
        form = {"type": "grammar", "syntax": case.syntax, "definition": case.definition}
        tool["format"] = form
    return tool
