"""The table of families is as new as the code, and says of each what loading it shows."""

import re
from dataclasses import replace

import pytest

from bushel.engine.attention_route import choose_attention
from bushel.engine.batching_check import single_because
from bushel.engine.build import reuse_fault
from bushel.models import known_families, load
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.text import TEXT
from tests.families.vision import VISION
from tools.families import PAGE, _models_of, modules, page, plain, row_of, rows, versions
from tools.no_chat import NO_CHAT

FAMILIES = {**TEXT, **VISION}
SOME = ("llama", "deepseek_v41", "plamo3", "internlm3", "llama_awq", "lfm2", "jamba")


def test_the_table_is_that_of_the_code() -> None:
    """Otherwise: `python -m tools.families`."""
    if versions() not in PAGE.read_text():
        pytest.skip("the page is of other releases, which have other families")
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("name", FAMILIES if EVERY else SOME)
def test_a_line_says_what_loading_the_family_shows(name: str) -> None:
    model, row = load(str(checkpoint_dir(name))), row_of(name, FAMILIES[name])
    model.single = why = single_because(model)
    whole = reuse_fault(model)
    choose_attention(model, "padded")
    packs = model.shares_passes
    model.close()
    assert row.lane == ("single" if why else "batch")
    assert row.reuse == ("no" if whole else "yes")
    assert row.packs == ("yes" if packs else "no")
    for reason in filter(None, (why, whole)):
        assert reason in row.why


def test_what_is_known_of_a_family_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane, a reason or a cut that changes, changes the line."""
    plain = row_of("llama", TEXT["llama"])
    assert (plain.lane, plain.pages, plain.reuse, plain.why) == ("batch", "yes", "yes", "")
    monkeypatch.setitem(known_families._CUT, "llama", "it counts pieces")
    cut = row_of("llama", TEXT["llama"])
    assert (cut.reuse, cut.why) == ("no", "it counts pieces")
    monkeypatch.setitem(known_families._FAMILIES, "llama", "its rows mix")
    alone = row_of("llama", replace(TEXT["llama"], single=True))
    assert (alone.lane, alone.pages) == ("single", "no")
    assert "its rows mix" in alone.line


def names_in(part: str) -> set[str]:
    """Of a part of the page: first cells of lines, with the checkpoints in brackets; for what is no
    chat model second cells, which are lists; and lists that are paragraphs."""
    lines = part.replace("-", "_").lower().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    lists = [cell for line in cells for cell in line[:2] if len(line) == 2]
    lists += [line[0] for line in cells if len(line) != 2]
    lists += [line.rstrip(".") for line in lines if ", " in line and "|" not in line]
    return {name for each in lists for name in re.split(r"[ ,()]+", each)}


def test_every_family_of_the_libraries_is_on_the_page() -> None:
    """By its whole name, in the part about its library. The control is a name less."""
    text, vision = PAGE.read_text().split("\n## By mlx-vlm")
    lists = {"mlx_lm": names_in(text), "mlx_vlm": names_in(vision)}
    for library, listed in lists.items():
        wanted = {plain(name) for name in modules(library)}
        assert not wanted - listed
        assert not names_in(PAGE.read_text().replace("kimi_k25", "")) >= wanted


def test_families_that_see_have_a_line_of_their_own() -> None:
    """With checkpoints or a reason, also where mlx-lm has a family of that name: it runs none
    with pictures."""
    own = {plain(row.family): row for row in rows("mlx_vlm")}
    own |= {
        plain(VISION[name].config["model_type"]): row
        for row in own.values()
        for name in row.checkpoints
        if name in VISION
    }
    seeing = [path.parent.name for path in _models_of("mlx_vlm").glob("*/vision.py")]
    assert {"gemma3n", "kimi_k25", "kimi_k3", "deepseek_v41"} <= {*seeing}
    for name in {*map(plain, seeing)} - {*map(plain, NO_CHAT)}:
        assert own[name].checkpoints or own[name].why, name


def test_what_is_no_chat_model_has_no_checkpoint_of_one() -> None:
    served = {family.config["model_type"] for family in VISION.values()}
    assert not served & NO_CHAT.keys()
