"""The tree is the architecture: every import points one way.

server ─> chat ─> engine ─> cache ─> models ─> text ─> core
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bushel

ROOT = Path(str(bushel.__file__)).parent
# Each may import itself and what stands to its right; a file beside them may import all.
LAYERS = ("server", "chat", "engine", "cache", "models", "text", "core")
SOURCES = sorted(ROOT.rglob("*.py"))


def imported(source: str, module: str) -> Iterator[str]:
    """Full names of everything that a module's source imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def upward(source: str, module: str) -> set[str]:
    """Imports of a layer to the left, or of a file that stands above all layers."""
    layer = module.split(".")[1] if module.count(".") else ""
    if layer not in LAYERS:
        return set()
    below = LAYERS[LAYERS.index(layer) :]
    names = (name.split(".") for name in imported(source, module))
    return {
        ".".join(name)
        for name in names
        if name[0] == "bushel" and (len(name) == 1 or name[1] not in below)
    } - {"bushel"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts)


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    assert upward(path.read_text(), module_of(path)) == set()


def test_every_package_has_its_layer() -> None:
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(LAYERS)
    assert {"core", "engine"} <= packages


def test_the_core_imports_nothing_of_bushel_outside_itself() -> None:
    for path in (ROOT / "core").rglob("*.py"):
        names = {it for it in imported(path.read_text(), module_of(path)) if it[:6] == "bushel"}
        assert all(name.startswith("bushel.core") for name in names)


@pytest.mark.parametrize("path", ["engine/scheduler.py", "text/detokenizer.py", "core/params.py"])
def test_policy_imports_no_mlx(path: str) -> None:
    roots = {name.split(".")[0] for name in imported((ROOT / path).read_text(), "bushel.x.y")}
    assert not roots & {"mlx", "mlx_lm", "mlx_vlm"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bushel.cache.kv_cache", "from bushel.engine import Engine"),
        ("bushel.core.request", "import bushel.models.text_model"),
        ("bushel.models.text_model", "def late():\n    from ..engine.draw import top"),
        ("bushel.models.text_model", "from .. import chat"),
        ("bushel.engine.engine", "from bushel import LLM"),
        ("bushel.engine.engine", "from bushel.llm import LLM"),
        ("bushel.chat.__init__", "from bushel.server.app import run"),
    ],
)
def test_control_an_upward_import_is_reported(module: str, source: str) -> None:
    assert upward(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bushel.engine.engine", "from bushel.cache import Rows\nfrom .draw import top"),
        ("bushel.llm", "from bushel.chat import prepare"),
        ("bushel.models.text_model", "import mlx.core as mx\nfrom ..core import Prepared"),
    ],
)
def test_control_a_downward_import_is_not(module: str, source: str) -> None:
    assert not upward(source, module)
