"""What moved between two environments: versions, families, classes of state, and what failed."""

import ast
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Those whose newest releases are tried, and what they may want newer themselves.
LIBRARIES = ("mlx", "mlx-lm", "mlx-vlm")
FREE = (*LIBRARIES, "transformers", "huggingface_hub")
TOOLS = ("pytest", "hypothesis")


def requirements(project: dict[str, Any], *, linux: bool, asked: Sequence[str] = ()) -> list[str]:
    """What pip is asked for: Bushel's dependencies, the libraries' without their bounds.

    asked: releases of some of them, instead of the newest.
    """
    tools = project["optional-dependencies"]["dev"]
    wanted = [*project["dependencies"], *(tool for tool in tools if name_of(tool) in TOOLS)]
    free = [name_of(one) if name_of(one) in FREE else one for one in wanted]
    left = [one for one in free if one not in {name_of(other) for other in asked}]
    return [*left, *asked, *(["mlx[cpu]"] if linux else [])]


def name_of(requirement: str) -> str:
    return re.split(r"[<>=\[ ]", requirement, maxsplit=1)[0]


@dataclass(frozen=True)
class Environment:
    """versions: by name. families: by library. states: classes that layers keep, by library."""

    versions: dict[str, str]
    families: dict[str, frozenset[str]] = field(default_factory=dict)
    states: dict[str, frozenset[str]] = field(default_factory=dict)


def environment(site: Path) -> Environment:
    """What is installed there, read without importing any of it."""
    versions = {}
    for name in FREE:
        for folder in site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            versions[name] = folder.name.removesuffix(".dist-info").rpartition("-")[2]
    models = {name: site / name.replace("-", "_") / "models" for name in LIBRARIES[1:]}
    return Environment(
        versions,
        {name: _families(folder) for name, folder in models.items()},
        {name: _classes(folder / "cache.py") for name, folder in models.items()},
    )


def _families(models: Path) -> frozenset[str]:
    return frozenset(
        path.stem
        for path in models.glob("*")
        if (path / "__init__.py").exists() or path.suffix == ".py"
    ) - {"__init__"}


def _classes(source: Path) -> frozenset[str]:
    tree = ast.parse(source.read_text()) if source.exists() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef))


def moved(before: Environment, after: Environment) -> Iterator[str]:
    """A line for every version that is another one, then for what came and went with it."""
    for name in sorted({*before.versions, *after.versions}):
        old, new = before.versions.get(name, "none"), after.versions.get(name, "none")
        if old != new:
            yield f"{name} {old} -> {new}"
    for name in LIBRARIES[1:]:
        for what in ("families", "states"):
            old_names = getattr(before, what).get(name, frozenset())
            new_names = getattr(after, what).get(name, frozenset())
            if came := sorted(new_names - old_names):
                yield f"{name}, new {what}: {', '.join(came)}"
            if went := sorted(old_names - new_names):
                yield f"{name}, {what} that are gone: {', '.join(went)}"


@dataclass(frozen=True)
class Outcome:
    held: int
    broken: tuple[str, ...]  # a line for each thing that is no longer so


def outcome(junit: str) -> Outcome:
    """Of pytest's report in JUnit's form."""
    held, broken = 0, []
    for case in ElementTree.fromstring(junit).iter("testcase"):
        fault = next((part for part in case if part.tag in ("failure", "error")), None)
        if fault is not None:
            reason = (fault.get("message") or "").strip().partition("\n")[0]
            broken.append(f"{_in_words(case)}: {reason}")
        elif not any(part.tag == "skipped" for part in case):
            held += 1
    return Outcome(held, tuple(broken))


def _in_words(case: ElementTree.Element) -> str:
    """The test's name is what is relied on."""
    name, _, parameters = (case.get("name") or "").partition("[")
    words = name.removeprefix("test_").replace("_", " ") or str(case.get("classname"))
    return f"{words} ({parameters.removesuffix(']')})" if parameters else words
