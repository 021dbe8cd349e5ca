"""A row in a batch that drafts says what it says alone, whatever is kept of its drafts.

BUSHEL_TEST_FAMILIES=all tries every family that takes drafts.
"""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from bushel.cache.drafts import no_drafts
from bushel.cache.paged import sdpa
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.paged_kv import pageable
from bushel.models import Model, load
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.text import TEXT
from tests.families.vision import VISION

from .scripts import BOUND, Act, Rows, scripts

# Every kind of layer, in both libraries where both have it, and each way in which it goes back.
SOME = (
    "llama",
    "qwen3_moe",
    "gemma3_text",
    "gpt_oss",
    "qwen3_5_vl",
    "kimi_linear",
    "mamba2",
    "lfm2",
)
MORE = ("gemma2", "llama_sliding", "gemma3_vl", "qwen3_5", "qwen3_next", "falcon_h1")
HARD = ("gemma3_text", "qwen3_5_vl", "mamba2")
PAGED = ("llama", "gpt_oss", "qwen3_5", "qwen3_5_vl")
played = settings(
    max_examples=12,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", params=(*TEXT, *VISION) if EVERY else often((*SOME, *MORE), *HARD))
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    model = load(str(checkpoint_dir(request.param)))
    if EVERY and no_drafts(model.make_state(), model.network):
        pytest.skip("takes no drafts")
    yield model
    model.close()


@pytest.fixture(scope="module", params=often(PAGED, "qwen3_5_vl"))
def paged(request: pytest.FixtureRequest) -> Iterator[Model]:
    model = load(str(checkpoint_dir(request.param)))
    sdpa.install()
    model.pages = PagePool(sum(map(pageable, model.make_state())))
    yield model
    model.close()


@played
@given(script=scripts)
def test_a_row_that_drafts_says_what_it_says_alone(model: Model, script: Sequence[Act]) -> None:
    assert no_drafts(model.make_state(), model.network) is None
    assert Rows(model).play(script) < BOUND


@played
@given(script=scripts)
def test_pages_of_a_draft_that_was_not_kept_go_back(paged: Model, script: Sequence[Act]) -> None:
    assert Rows(paged).play(script) < BOUND
