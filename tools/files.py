"""`python -m tools.files`: `docs/files.md`, a line for every file of the package.

Each line is the first one of the module's docstring, so that there is nothing to keep up to date
but that. A test says when the page is older than the files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "files.md"


def about(source: str) -> str:
    """The first sentence line of a module's docstring."""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _lines(package: Path) -> Iterator[str]:
    folders = sorted({path.parent for path in package.rglob("*.py")})
    for folder in folders:
        yield f"\n## {folder.relative_to(package.parent)}\n"
        if (init := folder / "__init__.py").exists():
            yield f"{about(init.read_text())}\n"
        yield "| file | what it is |"
        yield "|---|---|"
        for path in sorted(folder.glob("*.py")):
            if path.name != "__init__.py":
                yield f"| `{path.name}` | {about(path.read_text()).replace('|', chr(92) + '|')} |"


def page(package: Path = ROOT / "bushel") -> str:
    head = [
        "# Every file of the package",
        "",
        "Made by `python -m tools.files` from the first line of each module. How they go together:",
        "[architecture.md](architecture.md).",
    ]
    return "\n".join([*head, *_lines(package)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
