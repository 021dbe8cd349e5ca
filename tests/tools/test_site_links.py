"""Every link of the documentation leads somewhere, in a clone and on the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.site_links import PAGES, REPOSITORY, ROOT, rewritten

DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))


def place(source: str) -> str:
    return PAGES.get(source, source.removeprefix("docs/"))


@pytest.mark.parametrize("source", [*PAGES, *DOCS])
def test_links_of_a_page_lead_somewhere(source: str) -> None:
    complaints: list[str] = []
    rewritten((ROOT / source).read_text(), source, place(source), complaints.append)
    assert complaints == []


@pytest.mark.parametrize(
    ("source", "link", "on_the_site"),
    [
        ("README.md", "[x](docs/doctor.md)", "[x](doctor.md)"),
        ("README.md", '<img src="docs/prefix-reuse.png">', '<img src="prefix-reuse.png">'),
        ("README.md", "[x](tests/README.md)", f"[x]({REPOSITORY}/blob/main/tests/README.md)"),
        ("README.md", "[x](packaging)", f"[x]({REPOSITORY}/tree/main/packaging)"),
        ("README.md", "[x](https://example.org)", "[x](https://example.org)"),
        ("docs/guides/vision.md", "[x](../../README.md#start)", "[x](../index.md#start)"),
        ("docs/guides/vision.md", "[x](caching.md)", "[x](caching.md)"),
        ("docs/guides/vision.md", "[x](../reference.md)", "[x](../reference.md)"),
    ],
)
def test_links_are_those_of_the_site(source: str, link: str, on_the_site: str) -> None:
    assert rewritten(link, source, place(source), print) == on_the_site


def test_control_a_link_to_nothing_is_seen() -> None:
    complaints: list[str] = []
    rewritten("[x](nothing.md)", "docs/guides/vision.md", "guides/vision.md", complaints.append)
    assert len(complaints) == 1


def test_every_guide_is_in_the_menu_and_in_the_readme() -> None:
    menu, readme = (ROOT / "mkdocs.yml").read_text(), (ROOT / "README.md").read_text()
    for path in Path(ROOT / "docs" / "guides").glob("*.md"):
        assert f": guides/{path.name}\n" in menu
        assert f"(docs/guides/{path.name})" in readme
