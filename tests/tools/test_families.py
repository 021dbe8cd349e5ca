"""The table of families is as new as the code, and says of each what loading it shows."""

from dataclasses import replace

import pytest

from bushel.engine.batching_check import single_because
from bushel.engine.build import reuse_fault
from bushel.models import known_families, load
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.text import TEXT
from tests.families.vision import VISION
from tools.families import PAGE, modules, page, row_of, versions
from tools.no_chat import NO_CHAT

FAMILIES = {**TEXT, **VISION}
SOME = ("llama", "deepseek_v41", "plamo3", "internlm3", "llama_awq")


def test_the_table_is_that_of_the_code() -> None:
    """Otherwise: `python -m tools.families`."""
    if versions() not in PAGE.read_text():
        pytest.skip("the page is of other releases, which have other families")
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("name", FAMILIES if EVERY else SOME)
def test_a_line_says_what_loading_the_family_shows(name: str) -> None:
    model, row = load(str(checkpoint_dir(name))), row_of(name, FAMILIES[name])
    why, whole = single_because(model), reuse_fault(model)
    model.close()
    assert row.lane == ("single" if why else "batch")
    assert row.reuse == ("no" if whole else "yes")
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


def test_every_family_of_the_libraries_is_on_the_page() -> None:
    text = PAGE.read_text().replace("-", "_").lower()
    for name in (*modules("mlx_lm"), *modules("mlx_vlm")):
        assert name.replace("-", "_").lower() in text


def test_what_is_no_chat_model_has_no_checkpoint_of_one() -> None:
    served = {family.config["model_type"] for family in VISION.values()}
    assert not served & NO_CHAT.keys()
