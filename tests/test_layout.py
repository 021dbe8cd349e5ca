"""The tree is the architecture: every import points one way, and none runs in a circle.

commands ─> doctor ─> check ─> server ─> chat ─> engine ─> cache ─> models ─> text ─> core
"""

import ast
import graphlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import bushel

ROOT = Path(str(bushel.__file__)).parent
# Each may import itself and what stands to its right; a file beside them may import all.
LAYERS = (
    "commands",
    "doctor",
    "check",
    "server",
    "chat",
    "engine",
    "cache",
    "models",
    "text",
    "core",
)
# The same inside the server, from top to bottom. The longest name that fits a module is its own:
# an API's form of an error stands below the API, since connections refuse in it, too, and what
# describes a field below that.
SERVER_ROOMS = (
    "run",
    "command",
    "api_keys",
    "app",
    "admin",
    "tokenization",
    "apply_template",
    "model_control",
    "batches",
    "ollama",
    "hub",
    "page",
    "responses",
    "anthropic",
    "llama_cpp",
    "openai",
    "api",
    "access",
    "models",
    "service",
    "counting",
    "processes",
    "http",
    "error_response",
    "anthropic.errors",
    "llama_cpp.errors",
    "ollama.errors",
    "unversioned",
    "api.errors",
    "api.descriptions",
    "callers",
    "observability",
    "event_loop",
    "options",
    "errors",
)
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


MODULES = {module_of(path).removesuffix(".__init__"): path for path in SOURCES}


def imported_modules(source: str, module: str) -> set[str]:
    """Bushel's modules among the imports. `from package import module` is an import of the module,
    not of what stands in its package's `__init__`.
    """
    names = set(imported(source, module))
    named_from = {
        base: {name for name in names if name.rpartition(".")[0] == base}
        for base in names & MODULES.keys()
    }
    return {base for base, parts in named_from.items() if not parts or parts - MODULES.keys()}


def room_of(module: str) -> str:
    name = module.removeprefix("bushel.server.")
    fitting = [room for room in SERVER_ROOMS if f"{name}.".startswith(f"{room}.")]
    return max(fitting, key=len, default="")


def upward_in_server(source: str, module: str) -> set[str]:
    """Imports of a room above the module's own."""
    if not room_of(module):
        return set()
    above = SERVER_ROOMS[: SERVER_ROOMS.index(room_of(module))]
    return {name for name in imported_modules(source, module) if room_of(name) in above}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in turn; empty if there are none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    assert upward(path.read_text(), module_of(path)) == set()


@pytest.mark.parametrize("path", sorted((ROOT / "server").rglob("*.py")), ids=module_of)
def test_imports_inside_the_server_point_one_way(path: Path) -> None:
    assert upward_in_server(path.read_text(), module_of(path)) == set()


def test_every_module_of_the_server_has_its_room() -> None:
    server = {name for name in MODULES if name.startswith("bushel.server.")}
    assert {name for name in server if not room_of(name)} == set()
    assert {room_of(name) for name in server} == set(SERVER_ROOMS)


def test_no_imports_run_in_a_circle() -> None:
    imports = {
        name: imported_modules(path.read_text(), module_of(path)) for name, path in MODULES.items()
    }
    assert circle(imports) == []
    assert "bushel.core.params" in imports["bushel.core.options"]


def test_every_package_has_its_layer() -> None:
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(LAYERS)
    assert {"core", "engine"} <= packages


def test_the_core_imports_nothing_of_bushel_outside_itself() -> None:
    for path in (ROOT / "core").rglob("*.py"):
        names = {it for it in imported(path.read_text(), module_of(path)) if it[:6] == "bushel"}
        assert all(name.startswith("bushel.core") for name in names)


@pytest.mark.parametrize(
    "path",
    [
        "engine/plan.py",
        "engine/scheduler.py",
        "engine/slot_sharing.py",
        "text/detokenizer.py",
        "core/params.py",
    ],
)
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


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bushel.server.http.sse", "from bushel.server.service.service import Service"),
        ("bushel.server.http.sse", "from bushel.server import service"),
        ("bushel.server.options", "def late():\n    from bushel.server.errors import ApiError\n"
         "    from bushel.server.http.sse import relay"),
        ("bushel.server.api.errors", "from bushel.server.openai.models import model_routes"),
        ("bushel.server.observability.logs", "from ..processes.pool import Pool"),
    ],
)  # fmt: skip
def test_control_an_upward_import_inside_the_server_is_reported(module: str, source: str) -> None:
    assert upward_in_server(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bushel.server.service.ticket", "from bushel.server.http import sse"),
        ("bushel.server.error_response", "from bushel.server.api import errors"),
        ("bushel.server.http.request_body", "from bushel.server.http.sse import relay"),
    ],
)
def test_control_a_downward_import_inside_the_server_is_not(module: str, source: str) -> None:
    assert not upward_in_server(source, module)


def test_control_a_circle_is_reported() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    source = (
        "from bushel.cache import kinds\nfrom bushel.cache.window import Window\nimport bushel.core"
    )
    modules = {"bushel.cache.kinds", "bushel.cache.window", "bushel.core"}
    assert imported_modules(source, "bushel.cache.batch_state") == modules
