"""A hook of mkdocs: pages of the site that stand outside `docs`, and links that lead out of it.

The same files are read in a clone, where links are paths. On the site README.md is the first page,
and what is no page of it is a link to the repository. A link to nothing is a warning, which
`make docs` fails on.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/bushel-mlx/bushel"
# Files of the clone that are pages of the site, by where they stand there.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")([^)\s\"#]+)")

log = logging.getLogger("mkdocs.hooks.site_links")


def on_config(config: Any) -> Any:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    for entry in config.nav:
        if "Decisions" in entry:
            entry["Decisions"] = [f"decisions/{path.name}" for path in decisions]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    name = page.file.src_uri
    source = {at: path for path, at in PAGES.items()}.get(name, f"docs/{name}")
    return rewritten(markdown, source, name, log.warning)


def rewritten(text: str, source: str, page: str, warn: Callable[[str], object]) -> str:
    """A file's text with links as they are on the site.

    source, page: where it stands in the clone and on the site.
    """

    def link(found: re.Match[str]) -> str:
        target = found[2]
        if re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not (ROOT / path).exists():
            warn(f"{source} has a link to {target}, which is not there")
            return found[0]
        place = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if place is None or (ROOT / path).is_dir():
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"{found[1]}{REPOSITORY}/{kind}/main/{path}"
        return found[1] + posixpath.relpath(place, posixpath.dirname(page) or ".")

    return LINK.sub(link, text)
