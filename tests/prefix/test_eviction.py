"""What a prefix tree lets go of first, what it never does, and what that costs (B39, B40, B45)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.node import Node
from bushel.cache.prefix.radix_tree import RadixTree
from tests.depth import often
from tests.prefix.brute_force_tree import SNAPSHOT, TOKEN, Run, State, key


def kept(tree: RadixTree, budget: MemoryBudget, *tokens: int, root: str = "") -> Node | None:
    return tree.insert(
        root, key(tokens), lambda start, end: Run.of(tokens[start:end], budget), node_there=True
    )


def test_what_was_used_last_goes_last() -> None:
    rng = random.Random(1)
    budget = MemoryBudget(50 * TOKEN, 1000)
    tree = RadixTree(budget, needs_snapshots=False)
    nodes = {first: kept(tree, budget, first) for first in range(50)}
    order = rng.choices(range(50), k=200)
    for first in order:
        tree.touch(nodes[first])
    last_use = {first: at for at, first in enumerate(order)}
    youngest = sorted(range(50), key=lambda first: last_use.get(first, first - 50))
    for left in (49, 30, 7, 1):
        budget.shrink(left * TOKEN, 1000)
        assert {int(node.key[0]) for node in tree.nodes()} == set(youngest[-left:])


def test_what_others_stand_on_stays_however_old_it_is() -> None:
    budget = MemoryBudget(6 * TOKEN, 1000)
    tree = RadixTree(budget, needs_snapshots=False)
    kept(tree, budget, 1, 2)
    leaf = kept(tree, budget, 1, 2, 3, 4)
    kept(tree, budget, 7, 8)
    tree._edges.touch(leaf, budget.tick())  # its line was used long before
    kept(tree, budget, 9, 9)
    assert tree.walk("", key([1, 2, 3, 4])).matched == 4
    assert tree.walk("", key([7, 8])).matched == 0


def test_a_prompt_too_long_to_be_kept_costs_the_others_nothing() -> None:
    budget = MemoryBudget(6 * TOKEN, 1000)
    tree = RadixTree(budget, needs_snapshots=False)
    kept(tree, budget, 1, 2)
    kept(tree, budget, 5, 6, 7)
    assert kept(tree, budget, 5, 6, 7, 0, 0, 0, 0) is None
    assert budget.evicted == 0


def test_a_long_prompt_s_own_old_states_make_room_for_its_last_one() -> None:
    """Of two states of one prompt the later serves an identical one."""
    budget = MemoryBudget(8 * TOKEN + SNAPSHOT, 1000)
    tree = RadixTree(budget, needs_snapshots=True)
    for end in (4, 8):
        node = kept(tree, budget, *range(end))
        assert node is not None
        assert tree.rest(node, State(tuple(range(end))), "grid")
    assert [node.end for node in tree.nodes() if node.snapshot is not None] == [8]


def test_ten_turns_leave_four_snapshots_besides_grid_and_fork() -> None:
    """A conversation that goes on keeps its latest states, and its tokens once. B39."""
    budget = MemoryBudget(1 << 30, 1 << 20)
    tree = RadixTree(budget, needs_snapshots=True)
    rng = random.Random(2)
    talk: list[int] = rng.choices(range(9), k=40)
    sizes = []

    def rest(sort: str, generated: bool = False) -> None:
        tokens = tuple(talk)
        node = tree.insert(
            "", key(talk), lambda a, b: Run.of(tokens[a:b], budget), generated=generated
        )
        assert node is not None
        assert tree.rest(node, State(tokens), sort)

    rest("system")
    for _ in range(10):
        for sort in ("user", "history", "prompt"):
            talk += rng.choices(range(9), k=5)
            rest(sort)
        talk += rng.choices(range(9), k=8)
        rest("reply", generated=True)
        sizes.append(tree.counts["snapshots"])
    assert max(sizes) <= 1 + 4
    assert {sort for node in tree.nodes() for sort in node.sorts} >= {"system", "prompt", "reply"}
    assert tree.counts["tokens"] == len(talk)


def test_a_short_prompt_asked_in_turn_with_a_longer_one_is_kept_from_its_second_time_on() -> None:
    budget = MemoryBudget(1 << 30, 1 << 20)
    tree = RadixTree(budget, needs_snapshots=True)
    short, long = (1, 2, 3), (1, 2, 3, 4, 5)
    found = []
    for tokens in (short, long) * 3:
        resting = [it for it in tree.walk("", key(tokens)).nodes if it.snapshot is not None]
        found.append(resting[-1].end if resting else 0)
        node = kept(tree, budget, *tokens)
        assert node is not None
        assert tree.rest(node, node.snapshot or State(tokens), "prompt")
    assert found == [0, 3, 0, 5, 3, 5]


# -- what it costs ---------------------------------------------------------------------------


def opcodes(act: Callable[[], object]) -> int:
    """Instructions that the cache's own Python executes."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        if "bushel" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("roots", often([False, True], True), ids=["prompts", "salts"])
@pytest.mark.parametrize("needs", [False, True], ids=["edges", "snapshots"])
def test_letting_go_of_one_costs_the_same_among_ten_and_ten_thousand(
    roots: bool, needs: bool
) -> None:
    """In instructions of the cache's own Python. B45."""

    def cost(count: int) -> int:
        each = TOKEN + (SNAPSHOT if needs else 0)
        budget = MemoryBudget(count * each, 1 << 20)
        tree = RadixTree(budget, needs)

        def one(at: int) -> None:
            node = kept(tree, budget, at, root=str(at) if roots else "")
            assert node is not None
            if needs:
                assert tree.rest(node, State((at,)), "prompt")

        for at in range(count):
            one(at)
        found = sorted(opcodes(lambda at=at: one(count + at)) for at in range(9))
        assert budget.evicted >= 9
        return found[4]  # a heap is written anew now and then

    assert cost(10_000) <= 1.2 * cost(10)


def test_looking_up_costs_the_same_among_ten_and_ten_thousand() -> None:
    """A prompt is found in as many instructions, however much else is stored. B45."""

    def costs(count: int) -> tuple[int, int]:
        budget = MemoryBudget(1 << 30, 1 << 20)
        tree = RadixTree(budget, needs_snapshots=False)
        for at in range(count):
            assert kept(tree, budget, at, 1, 2) is not None
        found = opcodes(lambda: tree.walk("", key((count // 2, 1, 2, 3))))
        return found, opcodes(lambda: list(tree.nodes()))

    (few, every), (many, control) = costs(10), costs(10_000)
    assert 0 < many <= few
    assert control > 100 * every  # to look at all of them would show
