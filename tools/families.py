"""`python -m tools.families`: `docs/families.md`, a line for every family of mlx-lm and mlx-vlm.

What a family can do stands in `bushel/models/known_families.py`, in the checkpoints that the tests
have of it, and in the tests' table of those without pages. A test says when the page is older.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlx_vlm.utils import get_model_type

from bushel.cache import kinds
from bushel.cache.fixed import Fixed
from bushel.core.text_alone import text_alone_because
from bushel.models import known_families
from tests.families.family import KINDS, Family
from tests.families.text import TEXT, network
from tests.families.vision import VISION
from tests.parity.test_pages import NO_PLAIN_KEYS, NOT_PAGED
from tools.no_chat import NO_CHAT, NOT_MADE

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
# Whose keys, or recurrent states, are of classes of their own, by checkpoint.
OWN_STATES = (*NO_PLAIN_KEYS, "baichuan_m1", "glm5_next", "minimax_m3", "z1t")
LIBRARIES = {"mlx_lm": "mlx-lm", "mlx_vlm": "mlx-vlm"}

_HEAD = """\
# Families

Made by `python -m tools.families` from what the code and its tests know, of {versions}.
`make parity` runs every family that has a checkpoint in the tests, in every scenario, against the
library's own loop for one request. `bushel check MODEL` tells the same of a checkpoint of yours,
with figures, and [a model on its first day](guides/new-models.md) has what to do about one that
could do better.

- **lane**: `batch` where rows decode together, each as exact as alone; `single` where they decode
  one at a time, as exactly. `tried`: the tests have no checkpoint of it. It is tried at load, as is
  everything that this page does not list, and served in the lane that the trial finds.
- **pages**: whether keys and values lie in pages on a GPU. Others are padded to the longest row.
- **packs**: whether short prompts of text that arrive together are run in one pass.
- **reuse**: whether what prompts have in common is computed once.
"""


@dataclass(frozen=True)
class Row:
    """One line: checkpoints of one family that behave alike."""

    family: str
    lane: str
    pages: str
    packs: str
    reuse: str
    why: str = ""
    checkpoints: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        others = [name for name in self.checkpoints if name != self.family]
        name = f"{self.family} ({', '.join(others)})" if len(others) > 0 else self.family
        cells = name, self.lane, self.pages, self.packs, self.reuse, self.why
        return f"| {' | '.join(cells)} |"


def row_of(name: str, family: Family) -> Row:
    """What is known of the family that a checkpoint of the tests stands for."""
    module = module_of(name, family)
    single = _single_reason(name, family) if family.single else ""
    pages, reuse = _no_pages(name, family), _no_reuse(module, family)
    alone = text_alone_because(family.config)
    text = alone and f"text alone: {alone}"
    why = dict.fromkeys(reason for reason in (single, pages, reuse, text) if reason)
    return Row(
        module,
        "single" if family.single else "batch",
        "no" if pages or family.single else "yes",
        "yes" if _packs(module, name, family) else "no",
        "no" if reuse else "yes",
        "; ".join(why),
        (name,),
    )


@cache
def _classes() -> Any:
    from mlx_lm.utils import _get_classes

    return _get_classes


def module_of(name: str, family: Family) -> str:
    """As `known_families` names it."""
    model: Any
    if family.library == "mlx_lm":
        model = _classes()(family.config)[0]
    else:
        model = import_module(f"mlx_vlm.models.{get_model_type(family.config)}").Model
    return str(model.__module__).rpartition(".")[2]


def _single_reason(name: str, family: Family) -> str:
    known = known_families._FAMILIES.get(module_of(name, family))
    if known is not None or name in VISION:
        return known or "no batch form of its state is known"
    from mlx_lm.models.cache import make_prompt_cache

    model = network(family)
    why = known_families.single_because(model) or kinds.unbatchable(make_prompt_cache(model))
    return why or "the trial at load"


def _no_pages(name: str, family: Family) -> str:
    if family.single:
        return ""
    if name in NOT_PAGED:
        return f"its attention asks of its keys what pages do not have: {NOT_PAGED[name]}"
    if name in NO_PLAIN_KEYS or "kv" not in family.kinds:
        return "no layer keeps plain keys and values"
    return ""


def _packs(module: str, name: str, family: Family) -> bool:
    never = (*known_families._ASKING, *known_families._ENDLESS, *known_families._CUT)
    if family.single or module in never or name in OWN_STATES:
        return False
    if family.library == "mlx_vlm" and _has_two_factors(family.config):
        return False
    return {*family.kinds} <= {"kv", "recurrent", "composite"}


def _no_reuse(module: str, family: Family) -> str:
    if (why := known_families._CUT.get(module)) is not None:
        return why
    if family.library == "mlx_vlm" and _has_two_factors(family.config):
        return known_families.TWO_FACTORS
    classes = {kind: name for name, kind in reversed(KINDS.items())}
    for kind in family.kinds:
        state = kinds._BY_CLASS.get(classes[kind])
        if classes[kind] != "CacheList" and (state is None or isinstance(state, Fixed)):
            return f"state of {classes[kind]} cannot be kept"
    return ""


def _has_two_factors(config: dict[str, Any]) -> bool:
    text = {**config, **config.get("text_config", {})}
    return "long_factor" in (text.get("rope_scaling") or {})


def _models_of(library: str) -> Path:
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "models"


def modules(library: str) -> list[str]:
    """Families that a library has, by the name of their module or folder."""
    folder = _models_of(library)
    files = (path for path in folder.glob("*.py") if "\nclass Model(" in path.read_text())
    folders = (path.parent for path in folder.glob("*/__init__.py"))
    return sorted({path.stem for path in files} | {path.name for path in folders}, key=str.lower)


def rows(library: str) -> list[Row]:
    """With a checkpoint: those that are alike together; then the ones without."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for name, family in (TEXT | VISION).items():
        if family.library != library:
            continue
        row = row_of(name, family)
        cells = row.family, row.lane, row.pages, row.packs, row.reuse, row.why
        alike.setdefault(cells, []).append(row)
    found = [
        Row(*cells, checkpoints=tuple(name for row in group for name in row.checkpoints))
        for cells, group in alike.items()
    ]
    found += [_untried(library, family) for family in _missing(library, found)]
    return sorted(found, key=lambda row: (row.family.lower(), row.checkpoints))


def _missing(library: str, found: Sequence[Row]) -> list[str]:
    """Chat families without a checkpoint."""
    shown = {plain(row.family) for row in found}
    families = [family for family in (TEXT | VISION).values() if family.library == library]
    shown |= {plain(family.config["model_type"]) for family in families}
    names = [name for name in modules(library) if plain(name) not in shown]
    if library == "mlx_lm":
        return names
    return [name for name in names if name not in NO_CHAT and not _for_text_alone(name)]


def _for_text_alone(name: str) -> bool:
    """A family of mlx-vlm that mlx-lm runs: checkpoints with pictures are not among its own."""
    return (
        plain(name) in _text_names() and not (_models_of("mlx_vlm") / name / "vision.py").exists()
    )


def _untried(library: str, family: str) -> Row:
    why = NOT_MADE.get((library, family), "")
    if (single := known_families._FAMILIES.get(family)) is not None:
        cut = known_families._CUT.get(family)
        reasons = "; ".join(filter(None, (single, cut, why)))
        return Row(family, "single", "no", "no", "no" if cut else "", reasons)
    return Row(family, "tried", "", "", "", why)


@cache
def _text_names() -> frozenset[str]:
    """What mlx-lm runs, some of it under another name than its module's."""
    types = {it.config["model_type"] for it in TEXT.values() if it.library == "mlx_lm"}
    return frozenset(map(plain, (*modules("mlx_lm"), *types)))


def plain(name: str) -> str:
    return re.sub(r"\W", "_", name.lower())


def _table(library: str) -> Iterator[str]:
    yield "| family (checkpoints of the tests) | lane | pages | packs | reuse | why |"
    yield "|---|---|---|---|---|---|"
    yield from (row.line for row in rows(library))


def _no_chat() -> Iterator[str]:
    here = {*modules("mlx_vlm")}
    for what in dict.fromkeys(NO_CHAT.values()):
        names = [name for name, about in NO_CHAT.items() if about == what and name in here]
        if names:
            yield f"| {what} | {', '.join(sorted(names))} |"


def page() -> str:
    text, vision = rows("mlx_lm"), rows("mlx_vlm")
    both = sorted(name for name in modules("mlx_vlm") if _for_text_alone(name))
    shown = {row.family for row in vision}
    lines = [
        _HEAD.format(versions=versions()),
        f"## Text, by mlx-lm\n\n{_count(text)}\n",
        *_table("mlx_lm"),
        f"\n## By mlx-vlm, most of them with pictures\n\n{_count(vision)}\n",
        *_table("mlx_vlm"),
        "\nOf these, which mlx-vlm has as well, mlx-lm runs checkpoints without pictures:",
        ", ".join(name for name in both if name not in shown) + ".",
        "\n## No chat models\n",
        "What mlx-vlm has beside chat models is not served, but for some of the embeddings",
        "([which](guides/embeddings.md)).\n",
        "| what it does | families |",
        "|---|---|",
        *_no_chat(),
    ]
    return "\n".join(lines) + "\n"


def versions() -> str:
    """Those whose families are listed."""
    return " and ".join(f"{name} {version(name)}" for name in LIBRARIES.values())


def _count(found: Sequence[Row]) -> str:
    lanes = [row.lane for row in found]
    counts = f"{lanes.count('batch')} lines in batches, {lanes.count('single')} one row at a time"
    left = len(lanes) - lanes.count("batch") - lanes.count("single")
    return f"{counts}, {left} without a checkpoint in the tests."


if __name__ == "__main__":
    PAGE.write_text(page())
