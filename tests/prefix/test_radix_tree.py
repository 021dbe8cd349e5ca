"""The prefix tree against a slow model of it, under budgets too small for it (B36, B37, B39, B45).

Edges carry their own tokens, so that one in the wrong place is seen wherever it is.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.node import Node, Place
from bushel.cache.prefix.radix_tree import RadixTree, TreeWalk
from bushel.core import IntegrityError
from tests.depth import often, some
from tests.prefix.brute_force_tree import (
    Run,
    Slow,
    State,
    Tokens,
    check,
    common,
    in_memory,
    key,
    prefixes,
    reach,
    root_nodes,
    tokens_to,
)

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)
ROOTS = st.sampled_from(["", "salt"])
SORTS = st.sampled_from(["system", "user", "history", "prompt", "reply", "fork", "grid"])
LIMITS = st.sampled_from([0, 40, 90, 200, 400, 100_000])
BUFFERS = st.sampled_from([3, 8, 20, 10_000])


class Machine(RuleBasedStateMachine):
    """needs: whether an edge is of no use without a snapshot after it."""

    needs = False
    make_tree: type[RadixTree] = RadixTree

    @initialize(limit=LIMITS, buffers=BUFFERS)
    def begin(self, limit: int, buffers: int) -> None:
        self.budget = MemoryBudget(limit, buffers)
        self.tree = self.make_tree(self.budget, self.needs)
        self.tree.on_forget = self._forgotten
        self.slow = Slow()
        self.files: dict[str, tuple[str, Tokens, int]] = {}  # root, tokens, the first one it has
        self.names = (f"file-{at}" for at in itertools.count())
        self.ordered = True  # the slow model knows when every edge was used
        self.evicted = 0  # before it was last empty

    def _forgotten(self, name: str) -> None:
        assert name in self.files, f"{name} is gone already"
        del self.files[name]

    # -- in memory ---------------------------------------------------------------------------

    @rule(root=ROOTS, tokens=TOKENS, sort=SORTS, exact=st.booleans(), generated=st.booleans())
    def keep(self, root: str, tokens: Tokens, sort: str, exact: bool, generated: bool) -> None:
        before = in_memory(self.tree)
        on_the_way = self.tree.walk(root, key(tokens)).nodes[-1:]
        needed = {prefix for node in on_the_way for prefix in prefixes(root, tokens_to(node))}
        self.slow.may.update(prefixes(root, tokens))

        def make(start: int, end: int) -> Run:
            return Run.of(tokens[start:end], self.budget)

        node = self.tree.insert(
            root, key(tokens), make, node_there=exact or self.needs, generated=generated
        )
        if node is None:
            self.slow.sure = self.ordered = False
            return
        whole = tokens_to(node)
        assert whole[: len(tokens)] == tokens
        assert len(whole) == len(tokens) or not (exact or self.needs)
        self.slow.use(root, whole)
        if self.needs:
            if not self.tree.rest(node, State(tokens), sort):
                self.slow.sure = False
                return
            self.slow.rest((root, tokens), sort)
        self._compare(before, needed)
        assert self.tree.walk(root, key(tokens)).matched == len(tokens)

    def _compare(self, before: set[Any], needed: set[Any]) -> None:
        """What was not used for longest has gone, if anything has."""
        after = in_memory(self.tree)
        gone = before - after
        if gone:
            self.slow.sure = False
        if gone and self.ordered and not self.needs:
            spared = [self.slow.used[place] for place in after - needed if place in before]
            assert max(self.slow.used[place] for place in gone) <= min(spared, default=1 << 60)
        for place in gone:
            self.slow.used.pop(place, None)

    @rule(root=ROOTS, tokens=TOKENS)
    def look(self, root: str, tokens: Tokens) -> None:
        walk = self.tree.walk(root, key(tokens))
        assert walk.matched == reach(self.tree, root, tokens)
        known = [it for where, it in self.slow.may if where == root]
        assert walk.matched <= max((common(tokens, it) for it in known), default=0)
        said = [token for node in walk.nodes for token in node.key.tolist()]
        assert tuple(said[: walk.matched]) == tokens[: walk.matched]
        if walk.nodes:
            self.tree.touch(walk.nodes[-1])
            self.slow.use(root, tuple(said))
            loaded = in_memory(self.tree)
            self.slow.used = {it: at for it, at in self.slow.used.items() if it in loaded}

    @rule(limit=LIMITS, buffers=BUFFERS)
    def shrink(self, limit: int, buffers: int) -> None:
        before = in_memory(self.tree)
        self.budget.shrink(limit, buffers)
        self._compare(before, set())
        self.slow.sure = False

    @rule(back=st.integers(0, 40))
    def discard(self, back: int) -> None:
        nodes = list(root_nodes(self.tree))
        if not nodes:
            return
        root, node = nodes[back % len(nodes)]
        whole = tokens_to(node)
        self.tree.discard(node)
        self.slow.sure = False
        assert self.tree.walk(root, key(whole)).matched <= node.start
        self._compare(in_memory(self.tree), set())
        loaded = in_memory(self.tree)
        self.slow.used = {it: at for it, at in self.slow.used.items() if it in loaded}

    @rule()
    def clear(self) -> None:
        self.tree.clear()
        assert (self.budget.bytes, self.budget.buffers) == (0, 0)
        assert list(self.tree.nodes()) == []
        self.slow, self.files, self.ordered = Slow(), {}, True
        self.evicted = self.budget.evicted

    # -- files -------------------------------------------------------------------------------

    def _node(self, which: int, fits: Callable[[Node], bool]) -> tuple[str, Node] | None:
        nodes = [(root, node) for root, node in root_nodes(self.tree) if fits(node)]
        return nodes[which % len(nodes)] if nodes else None

    @rule(which=st.integers(0, 40))
    def write(self, which: int) -> None:
        """As the disk tier does: an edge may be written once all before it are."""
        found = self._node(
            which,
            lambda node: (
                node.file is None and (node.start == 0 or bool(node.parent and node.parent.file))
            ),
        )
        if found is not None:
            root, node = found
            name = next(self.names)
            node.file = Place(name)
            self.files[name] = root, tokens_to(node), node.start

    @rule(which=st.integers(0, 40))
    def write_snapshot(self, which: int) -> None:
        found = self._node(
            which,
            lambda it: it.snapshot is not None and it.snapshot_file is None and it.file is not None,
        )
        if found is not None:
            root, node = found
            node.snapshot_file = next(self.names)
            self.files[node.snapshot_file] = root, tokens_to(node), node.end

    @rule(root=ROOTS, tokens=TOKENS, start=st.integers(0, 11))
    def adopt(self, root: str, tokens: Tokens, start: int) -> None:
        start = min(start, len(tokens) - 1)
        name = next(self.names)
        before, known = in_memory(self.tree), reach(self.tree, root, tokens)
        self.slow.may.update(prefixes(root, tokens))
        self.files[name] = root, tokens, start
        if self.tree.adopt(root, key(tokens), name, start):
            assert known >= start
            self.slow.sure &= not self.needs  # branches on disk count, and it knows of none
            assert self.tree.walk(root, key(tokens)).matched == len(tokens)
        if name not in self._referred():
            self.files.pop(name, None)
        self._after_cut(before)

    @rule(root=ROOTS, tokens=TOKENS)
    def node_at(self, root: str, tokens: Tokens) -> None:
        before, known = in_memory(self.tree), reach(self.tree, root, tokens)
        node = self.tree.node_at(root, key(tokens))
        if node is not None:
            assert tokens_to(node) == tokens
            assert known == len(tokens)
            assert any(it is node for _, it in root_nodes(self.tree))
        self._after_cut(before)

    def _after_cut(self, before: set[Any]) -> None:
        """Cutting an edge takes room, and counts as a use of its first part."""
        self.ordered = False
        self._compare(before, set())

    @rule(which=st.integers(0, 40), useful=st.booleans())
    def read(self, which: int, useful: bool) -> None:
        """An edge from its file, and with it perhaps the snapshot that makes it of use."""
        found = self._node(
            which,
            lambda node: (
                node.edge is None
                and (node.start == 0 or bool(node.parent and node.parent.edge is not None))
            ),
        )
        if found is None:
            return
        root, node = found
        tokens = tokens_to(node)
        self.slow.sure = self.ordered = False
        if self.tree.load(node, Run.of(tokens[node.start :], self.budget)):
            self.slow.use(root, tokens)
            if self.needs and useful:
                self.tree.rest(node, State(tokens), "")
        self.tree.unload_idle(node.line())

    @rule(which=st.integers(0, 40), both=st.booleans())
    def lose(self, which: int, both: bool) -> None:
        """Files vanish under the tree: those it did not ask to remove."""
        names = sorted(self.files)
        if not names:
            return
        gone = {names[which % len(names)], *(names[:1] if both else ())}
        for name in gone:
            del self.files[name]
        before = in_memory(self.tree)
        self.tree.forget(gone)
        assert in_memory(self.tree) == before

    def _referred(self) -> set[str]:
        edges = {node.file.name for node in self.tree.nodes() if node.file is not None}
        return edges | {node.snapshot_file for node in self.tree.nodes() if node.snapshot_file}

    # -- always ------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "tree"))
    @invariant()
    def sound(self) -> None:
        self.slow.sure &= self.budget.evicted == self.evicted
        check(self.tree, self.budget, self.slow, self.needs)
        assert self._referred() == set(self.files), "files without a node, or nodes without a file"
        for root, node in root_nodes(self.tree):
            if node.file is not None:
                where, tokens, start = self.files[node.file.name]
                first = start + node.file.skip
                assert (where, first) == (root, node.start)
                assert tokens[: node.end] == tokens_to(node)

    def teardown(self) -> None:
        if hasattr(self, "tree"):
            self.budget.shrink(0, 0)
            assert (self.budget.bytes, self.budget.buffers) == (0, 0), "something cannot be evicted"
            self.tree.check_integrity()


class NeedsSnapshots(Machine):
    needs = True


QUICK = settings(
    max_examples=some(80),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@pytest.mark.parametrize("machine", [Machine, NeedsSnapshots])
def test_no_series_of_calls_shows_another_prompt_s_state(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


def play(machine: type[Machine], seed: int, steps: int) -> None:
    """A longer series than hypothesis makes, mostly of prompts that go on from earlier ones."""
    rng = random.Random(seed)
    played = machine()
    limit, buffers = rng.choice([90, 200, 400, 800, 100_000]), rng.choice([8, 20, 60, 10_000])
    played.begin(limit=limit, buffers=buffers)
    sent: list[Tokens] = [()]

    def tokens() -> Tokens:
        before = rng.choice(sent[-12:])
        before = before[: rng.randrange(len(before) + 1)] if rng.random() < 0.5 else before
        sent.append((*before[:20], *rng.choices(range(3), k=rng.randrange(1, 6))))
        return sent[-1]

    def where() -> dict[str, Any]:
        return {"root": rng.choice(["", "", "salt"]), "tokens": tokens()}

    acts: list[tuple[int, Callable[[], None]]] = [
        (
            40,
            lambda: played.keep(
                **where(),
                sort=rng.choice(["grid", "prompt", "reply", "user"]),
                exact=rng.random() < 0.5,
                generated=rng.random() < 0.3,
            ),
        ),
        (10, lambda: played.look(**where())),
        (10, lambda: played.write(which=rng.randrange(40))),
        (5, lambda: played.write_snapshot(which=rng.randrange(40))),
        (6, lambda: played.adopt(**where(), start=rng.randrange(12))),
        (5, lambda: played.node_at(**where())),
        (8, lambda: played.read(which=rng.randrange(40), useful=rng.random() < 0.7)),
        (3, lambda: played.lose(which=rng.randrange(40), both=rng.random() < 0.5)),
        (3, lambda: played.discard(back=rng.randrange(40))),
        (2, lambda: played.shrink(limit=rng.choice([40, limit]), buffers=rng.choice([4, buffers]))),
        (1, lambda: played.clear()),
    ]
    for act in rng.choices([it for _, it in acts], [weight for weight, _ in acts], k=steps):
        act()
        played.sound()
    played.teardown()


@pytest.mark.parametrize("machine", often([Machine, NeedsSnapshots], NeedsSnapshots))
def test_long_series_of_calls(machine: type[Machine]) -> None:
    for seed in range(40):
        play(machine, seed, 100)


# -- controls --------------------------------------------------------------------------------


class OneTooMany(RadixTree):
    def walk(self, root: str, key: Any) -> TreeWalk:
        found = super().walk(root, key)
        return TreeWalk(found.nodes, min(found.matched + 1, len(key)) if found.nodes else 0)


class KeepsLast(MemoryBudget):
    """Lets go of what was used last."""

    def tick(self) -> int:
        return -super().tick()


class NeverEvicts(MemoryBudget):
    def evict_oldest(self) -> bool:
        return False


def caught(machine: type[Machine]) -> bool:
    for seed in range(40):
        try:
            play(machine, seed, 100)
        except (AssertionError, IntegrityError, KeyError):
            return True
    return False


@pytest.mark.parametrize("budget", [KeepsLast, NeverEvicts])
def test_the_wrong_order_of_eviction_is_noticed(
    budget: type[MemoryBudget], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.prefix.test_radix_tree.MemoryBudget", budget)
    assert caught(Machine)


def test_a_walk_of_one_token_too_many_is_noticed() -> None:
    class Wrong(Machine):
        make_tree = OneTooMany

    assert caught(Wrong)
