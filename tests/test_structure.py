"""A stranger finds things: one word for one thing, under the name that the field gives it."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import bushel
from tools.files import PAGE, about, page

ROOT = Path(str(bushel.__file__)).parent
SOURCES = sorted(ROOT.rglob("*.py"))

# What someone who knows vLLM, SGLang or mlx-lm looks for, and the file that it is in.
TERMS = {
    "radix tree": "cache/prefix/radix_tree.py",
    "prefix cache": "cache/prefix/prefix_cache.py",
    "disk tier": "cache/prefix/disk_tier.py",
    "kv cache": "cache/kv_cache.py",
    "scheduler": "engine/scheduler.py",
    "decode batch": "engine/decode_batch.py",
    "prefill": "engine/prefill.py",
    "footprint": "engine/footprint.py",
    "admission": "engine/admission.py",
    "sampling": "engine/sampling/sampler.py",
    "detokenizer": "text/detokenizer.py",
    "tokenizer": "text/tokenizer.py",
    "mrope": "models/vision/mrope.py",
    "cross attention": "models/vision/cross_attention.py",
    "glm tool parser": "chat/tool_parsers/glm.py",
    "structured output": "chat/structured_output/json_schema.py",
    "template": "text/template_probe.py",
    "anthropic writer": "server/anthropic/writer.py",
    "responses writer": "server/responses/writer.py",
    "ollama writer": "server/ollama/writer.py",
    "llama cpp writer": "server/llama_cpp/writer.py",
}


def twice(classes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that more than one of these (name, file) have."""
    files = defaultdict(list)
    for name, file in classes:
        files[name].append(file)
    return {name: where for name, where in files.items() if len(where) > 1}


def classes_in(source: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def test_no_two_classes_have_one_name() -> None:
    named = ((name, str(path)) for path in SOURCES for name in classes_in(path.read_text()))
    assert twice(named) == {}


def test_control_a_second_class_of_a_name_is_seen() -> None:
    names = classes_in("class Job: ...\ndef f():\n    class Job: ...\nclass Other: ...")
    assert twice((name, "x.py") for name in names) == {"Job": ["x.py", "x.py"]}


def words(path: str) -> set[str]:
    parts = Path(path).with_suffix("").parts
    return {word.rstrip("s") for part in parts for word in (*part.split("_"), part)}


@pytest.mark.parametrize("term", TERMS)
def test_the_file_of_a_term_is_there_and_bears_it(term: str) -> None:
    path = TERMS[term]
    assert (ROOT / path).exists()
    assert {word.rstrip("s") for word in term.split()} <= words(path)


def test_control_a_file_of_another_name_does_not_bear_the_term() -> None:
    assert not {"radix", "tree"} <= words("cache/prefix/tree.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_in_a_line_what_it_is(path: Path) -> None:
    assert about(path.read_text()).endswith((".", "?", ":"))


def test_the_list_of_files_is_that_of_the_files() -> None:
    assert PAGE.read_text() == page(), "python -m tools.files writes it anew"


def test_control_a_line_that_changed_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text('"""Does one thing."""\n')
    before = page(package)
    (package / "a.py").write_text('"""Does another."""\n')
    assert "| `a.py` | Does one thing. |" in before
    assert page(package) != before
