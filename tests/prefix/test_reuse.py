"""What a prompt need not compute because another has, on every kind of model.

Every reply is compared with that of a model that keeps nothing, log-probabilities included, and
every count of cached tokens with what the model was seen to compute (`caching_llm.Serving`).
"""

from functools import cache

import pytest

from bushel.cache.prefix.kv_segment import SegmentLayout
from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.core import Borders, Prepared
from tests.depth import often
from tests.families.text import TEXT
from tests.families.vision import VISION

from .caching_llm import EVERY, Serving, families, words

# One for each mix of kinds; `tests.parity` repeats a prompt on every family.
SOME = ("llama", "llama_sliding", "qwen3_5", "falcon_h1", "deepseek_v3")
SYSTEM, QUESTION, OTHER, LONGER = words(90, 1), words(40, 2), words(40, 3), words(60, 4)
TAIL = words(6, 5)  # a generation prompt


def said(
    *parts: tuple[int, ...], system: int = 0, history: int = 0, reply: bool = True
) -> Prepared:
    ids = tuple(token for part in parts for token in part)
    return Prepared(ids, borders=Borders(system=system, history=history, reply=reply))


def needs_snapshots(serving: Serving) -> bool:
    engine = serving.llm._engine
    assert engine is not None
    assert engine.prefixes is not None
    return engine.prefixes.needs_snapshots


# Windows, recurrent layers, and both in one: these stand for those that can be cut anywhere.
TRIED = families((*TEXT.values(), *VISION.values()), SOME)


@pytest.fixture(params=TRIED if EVERY else often(TRIED, "llama_sliding", "qwen3_5"))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=families((*TEXT.values(), *VISION.values()), ("llama", "qwen3_5")))
def either(request: pytest.FixtureRequest) -> str:
    """Keys and values that can be cut anywhere, and states that are there or not."""
    return str(request.param)


@cache
def bytes_of(name: str, ids: tuple[int, ...], history: int = 0) -> int:
    """What a prompt and its reply take."""
    with Serving(name) as serving:
        serving.ask(said(ids, history=history))
        return int(serving.llm.cache_stats()["bytes"])


@pytest.mark.parametrize(
    ("chunk", "busy"), [(8, True), *([(64, False), (512, False), (64, True)] if EVERY else [])]
)
def test_shared_beginnings_are_computed_once(name: str, chunk: int, busy: bool) -> None:
    """Only what is new is computed; replies are the cold ones. B32, B33, B36, B37, B41, B42."""
    with Serving(name, busy=busy, prefill_chunk=chunk, snapshot_every=64) as serving:
        first = said(SYSTEM, QUESTION, TAIL, system=90)
        assert serving.ask(first).cached == 0
        same = serving.ask(first)
        assert (same.cached, same.hit) == (len(first.ids) - 1, "exact")
        other = serving.ask(said(SYSTEM, OTHER, TAIL, system=90))
        assert (other.cached, other.hit) == (90, "fork")
        # A second visit reuses up to where the first one parted.
        parting = SYSTEM + QUESTION[:25]
        revealed = serving.ask(said(parting, OTHER, LONGER, system=90))
        assert revealed.cached == (90 if needs_snapshots(serving) else 115)
        revisited = serving.ask(said(parting, LONGER, OTHER, system=90))
        assert revisited.cached == (90 if needs_snapshots(serving) else 115)
        far = SYSTEM + QUESTION + LONGER
        serving.ask(said(far, OTHER, system=90))
        serving.ask(said(far, LONGER, TAIL, system=90))
        assert serving.ask(said(far, TAIL, QUESTION, system=90)).cached == len(far)
        shorter = serving.ask(said(far[:150]))
        assert shorter.hit == "shorter"
        assert shorter.cached == (130 if needs_snapshots(serving) else 149)


def test_the_next_turn_reuses_the_reply(name: str) -> None:
    with Serving(name) as serving:
        first = said(SYSTEM, QUESTION)
        reply = serving.ask(first).tokens
        # The last token was read and never run.
        longer = serving.ask(said(first.ids, reply, OTHER))
        assert longer.cached == len(first.ids) + len(reply) - 1
        assert longer.hit == "prefix"


def test_a_generation_prompt_that_goes_does_not_lose_the_history(name: str) -> None:
    """The reply is not kept, and what was before the generation prompt is. B35."""
    with Serving(name) as serving:
        history = len(SYSTEM + QUESTION)
        first = said(SYSTEM, QUESTION, TAIL, system=90, history=history, reply=False)
        serving.ask(first)
        following = said(
            SYSTEM, QUESTION, OTHER, TAIL, system=90, history=history + 40, reply=False
        )
        assert serving.ask(following).cached == history
        assert serving.ask(first).cached in (len(first.ids) - 1, 90)


def test_pressure_costs_hits_and_nothing_else(either: str) -> None:
    size = bytes_of(either, SYSTEM + QUESTION)
    with Serving(either, cache_memory=2 * size) as serving:
        for seed in range(3):
            for prompt in (said(SYSTEM, words(50, 10 + seed)), said(words(120, 20 + seed))):
                serving.ask(prompt)
                assert serving.llm.cache_stats()["bytes"] <= 2 * size
        assert serving.llm.cache_stats()["evicted"] > 0
        assert serving.ask(said(words(120, 22))).cached == 119


def test_nothing_fits_and_everything_is_answered(either: str) -> None:
    with Serving(either, cache_memory=0) as serving:
        assert [serving.ask(said(SYSTEM)).cached for _ in range(2)] == [0, 0]
        assert serving.llm.cache_stats()["bytes"] == 0


def test_an_aborted_prompt_leaves_what_it_has_run(either: str) -> None:
    """The same prompt, asked again, goes on where it was given up. B38."""
    with Serving(either, prefill_chunk=16) as serving:
        handle = serving.llm.submit({"prompt_token_ids": list(SYSTEM + LONGER)})
        for _ in range(5):
            serving.llm.step()
        handle.abort()
        assert serving.ask(said(SYSTEM, LONGER)).cached >= 64


def test_requests_of_another_salt_share_nothing(either: str) -> None:
    with Serving(either) as serving:
        serving.ask(said(SYSTEM), salt="one")
        assert serving.ask(said(SYSTEM), salt="two").cached == 0
        assert serving.ask(said(SYSTEM), salt="one").cached == 89


def test_a_state_that_cannot_be_restored_is_computed(
    either: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply is as ever, and nobody tries that state again. B43."""
    with Serving(either) as serving:
        engine = serving.llm._engine
        assert engine is not None
        prefixes = engine.prefixes
        assert prefixes is not None
        serving.ask(said(SYSTEM))
        with monkeypatch.context() as patch:
            patch.setattr(type(prefixes), "_restored", lambda *_: 1 / 0)
            assert serving.ask(said(SYSTEM)).cached == 0
        assert serving.ask(said(SYSTEM)).cached == 89


def misplaced(serving: Serving) -> Prepared:
    """A prompt under whose name lies the state of another."""
    serving.ask(said(SYSTEM, QUESTION))
    engine = serving.llm._engine
    assert engine is not None
    assert engine.prefixes is not None
    for node in engine.prefixes._tree.nodes():
        node.key[:] = 0  # found by nobody
    root = next(iter(engine.prefixes._tree._roots.values()))
    first = next(iter(root.children.values()))
    first.key[:] = words(len(first.key), 9)
    root.children = {int(first.key[0]): first}
    return said(words(len(first.key), 9), QUESTION)


def test_a_state_of_other_tokens_is_not_restored(name: str) -> None:
    """The prompt is computed, and answered as ever. B43."""
    with Serving(name) as serving:
        assert serving.ask(misplaced(serving)).cached == 0


def test_control_a_state_of_other_tokens_would_be_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SegmentLayout, "_check_joined", lambda *_: None)
    monkeypatch.setattr("bushel.cache.prefix.prefix_cache.digest_of", lambda _: b"")
    with Serving(name) as serving:
        wrong = misplaced(serving)
        with pytest.raises(AssertionError):
            serving.ask(wrong)


def cached_beside_others(name: str) -> int:
    """What a second turn reuses whose first one was stored in a cache full of other prompts."""
    first = said(SYSTEM, QUESTION, TAIL, history=len(SYSTEM + QUESTION))
    following = said(SYSTEM, QUESTION, OTHER, TAIL, history=len(SYSTEM + QUESTION + OTHER))
    size = bytes_of(name, first.ids, first.borders.history)
    with Serving(name, cache_memory=2 * size) as serving:
        for seed in range(3):
            serving.ask(said(words(120, 20 + seed)))
        evicted = serving.llm.cache_stats()["evicted"]
        serving.ask(first)
        assert serving.llm.cache_stats()["evicted"] > evicted
        return serving.ask(following).cached


def test_a_reply_that_is_stored_does_not_cost_the_next_turn(name: str) -> None:
    """Older prompts make way for it, and not the history that the next turn goes on from. B40."""
    assert cached_beside_others(name) == len(SYSTEM + QUESTION)


@pytest.mark.parametrize("hybrid", often(["qwen3_5", "falcon_h1"], "falcon_h1"))
def test_control_the_next_turn_would_tell_of_a_wrong_order(
    hybrid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where snapshots decide; keys and values stay anyway while something stands on them."""
    tick = MemoryBudget.tick
    monkeypatch.setattr(MemoryBudget, "tick", lambda budget: -tick(budget))
    assert cached_beside_others(hybrid) < len(SYSTEM + QUESTION)
