"""Ten rounds of tools in one conversation: what is stored is one copy of it, and few states."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bushel import LLM, SamplingParams
from bushel.cache.prefix import radix_tree
from tests.families import checkpoint_dir

ROUNDS = 10
MOST = 1.15  # of one copy
STATES = 4  # besides the grid
GRID = 512
REPLY = SamplingParams(max_tokens=16, temperature=0)
ENDLESS = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def _tiny() -> Iterator[LLM]:
    with LLM("bushel:tiny", snapshot_every=GRID) as llm:
        yield llm


@pytest.fixture(scope="module")
def _hybrid() -> Iterator[LLM]:
    with LLM(str(checkpoint_dir("qwen3_5")), snapshot_every=GRID) as llm:
        yield llm


@pytest.fixture
def tiny(_tiny: LLM) -> Iterator[LLM]:
    yield from _checked(_tiny)


@pytest.fixture
def hybrid(_hybrid: LLM) -> Iterator[LLM]:
    yield from _checked(_hybrid)


def _checked(llm: LLM) -> Iterator[LLM]:
    llm.clear_cache()
    yield llm
    llm.check_integrity()


def said(seed: int, count: int) -> str:
    return " ".join(f"Shelf {seed} has {(seed * 31 + at * at) % 89} jars." for at in range(count))


def talk(llm: LLM) -> int:
    """Through tiny's own template; returns tokens of the whole conversation."""
    turns: list[Any] = [
        {"role": "system", "content": said(0, 90)},
        {"role": "user", "content": "How many jars are there?"},
    ]
    tokens = 0
    for at in range(1, ROUNDS + 2):
        output = llm.generate({"messages": turns}, REPLY)[0]
        assert output.error is None
        tokens = output.usage.prompt_tokens + output.usage.completion_tokens
        turns += [
            {"role": "assistant", "content": output.text},
            {"role": "tool", "content": said(at, 6)},
        ]
    return tokens


def ids(seed: int, count: int) -> list[int]:
    return [(seed * 131 + at * at * 7 + at) % 500 + 5 for at in range(count)]


def run(llm: LLM, rewritten: Callable[[list[int]], list[int]] = list, salt: str = "") -> int:
    """With token ids. rewritten: what the client sends back of a reply."""
    prompt, tokens = ids(0, 1400), 0
    for at in range(1, ROUNDS + 2):
        output = llm.generate({"prompt_token_ids": prompt, "cache_salt": salt}, ENDLESS)[0]
        assert output.error is None
        tokens = output.usage.prompt_tokens + output.usage.completion_tokens
        reply = list(output.choices[0].token_ids)
        prompt = [*prompt, *rewritten(reply), *ids(at, 80)]
    return tokens


def other_end(reply: list[int]) -> list[int]:
    """As if the second half had been thoughts that are not sent again."""
    half = len(reply) // 2
    return [*reply[:half], *((token + 1) % 500 + 5 for token in reply[half:])]


def copies(llm: LLM, tokens: int) -> float:
    """What is stored of keys and values over what so many tokens leave in the layers."""
    memory = llm._own_engine().admission.memory
    assert memory is not None
    growing = [layer for layer in memory.footprint.layers if layer.window is None]
    one = tokens * sum(layer.count * layer.per_token for layer in growing)
    return float(llm.cache_stats()["edge_bytes"]) / one


def besides_grid(llm: LLM) -> int:
    """States that are kept for another reason than the length of a prompt."""
    prefixes = llm._own_engine().prefixes
    assert prefixes is not None
    kept = [node for node in prefixes._tree.nodes() if node.snapshot is not None]
    assert any(it.sorts == {"grid"} for it in kept)
    return sum(it.sorts != {"grid"} for it in kept)


@pytest.mark.long
def test_ten_tool_rounds_store_one_copy_of_a_chat(tiny: LLM) -> None:
    """Some of tiny's replies are other tokens when they come back as text."""
    tokens = talk(tiny)
    assert tokens > 4 * GRID
    assert 0.97 < copies(tiny, tokens) <= MOST
    assert besides_grid(tiny) <= STATES


def test_ten_tool_rounds_store_one_copy_of_ids(hybrid: LLM) -> None:
    """As many tokens are kept as the conversation has, and few states. B39."""
    tokens = run(hybrid)
    assert tokens > 4 * GRID
    assert 0.97 < copies(hybrid, tokens) <= MOST
    assert besides_grid(hybrid) <= STATES


@pytest.mark.long
def test_replies_that_come_back_otherwise_cost_their_own_tokens(hybrid: LLM) -> None:
    tokens = run(hybrid, other_end)
    assert 0.97 < copies(hybrid, tokens) <= MOST
    assert besides_grid(hybrid) <= STATES


@pytest.mark.long
def test_control_conversations_that_share_nothing_are_stored_apart(hybrid: LLM) -> None:
    tokens = run(hybrid, salt="one")
    assert run(hybrid, salt="two") == tokens
    assert copies(hybrid, tokens) > 1.9


@pytest.mark.long
def test_control_without_letting_go_states_pile_up(
    hybrid: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_tree, "_LATEST", frozenset())
    run(hybrid)
    assert besides_grid(hybrid) > STATES
