"""Drafts of a model's own prediction head."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import bushel
from bushel import LLM, SamplingParams
from bushel.core import GenerationDefaults, IntegrityError, Request
from bushel.core.params import resolve
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.drafts import draft_memory, profiling
from bushel.engine.drafts.drafter import DeviceDrafts, Drafter, KeptRound, read_drafts
from bushel.engine.drafts.head_context import UNREAD
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.prefill import Prefill
from bushel.engine.sequence import Sequence
from bushel.models import Model, load
from bushel.models.mtp import HeadKVCache, MTPHead, load_head
from tests.depth import often, one_in
from tests.drawings import see
from tests.engine.drafts.known_replies import KnownRow, keep
from tests.families import checkpoint_dir
from tests.models.published_heads import HEADS, WIDTH
from tests.parity.drafting import FREE
from tools.tiny.chat import render
from tools.tiny.evaluate import cases
from tools.tiny.tokens import read_tokenizer

DEEPEST = 4
TINY = Path(str(bushel.__file__)).parent / "tiny"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A random one, with a random head: nothing that it drafts holds."""
    path = tmp_path_factory.mktemp("head")
    HEADS["qwen3_next"].write(path, HEADS["qwen3_next"].tensors(np.random.default_rng(5)))
    loaded = load(str(checkpoint_dir("qwen3_next")))
    loaded.mtp = load_head(loaded, path)
    yield loaded
    loaded.close()


def random_row(model: Model, rng: np.random.Generator, prompt: int, reply: int) -> KnownRow:
    ids = rng.integers(50, 500, prompt + reply).tolist()
    hidden = rng.standard_normal((prompt + reply, WIDTH)).astype(np.float32)
    return KnownRow(model, ids[:prompt], ids[prompt:], hidden)


@pytest.mark.parametrize("seed", often(range(4), 0, 3))
def test_drafts_are_those_of_each_row_alone(model: Model, seed: int) -> None:
    """Rows come and go, rounds keep what they keep, and some steps show no hidden states."""
    rng = np.random.default_rng(seed)
    drafter = MTPDrafter(model, DEEPEST)
    rows: list[KnownRow] = []
    compared = 0
    for _ in range(30):
        if not rows or rng.random() < 0.3:
            new = [random_row(model, rng, int(rng.integers(2, 40)), 60) for _ in range(2)]
            drafter.join([row.ready(int(rng.integers(0, len(row.prompt)))) for row in new])
            rows += new
        depths = [int(depth) for depth in rng.integers(0, DEEPEST + 1, len(rows))]
        chances = drafter.chances()
        proposed = read_drafts(drafter.propose(depths))
        for row, depth, drafts, chance in zip(rows, depths, proposed, chances, strict=True):
            newest = bool(row.known) and row.known[-1] == row.position - 1
            assert bool(chance) == newest
            if newest and depth:
                expected = row.expected(depth)
                assert drafts == expected[: len(drafts)]
                assert len(drafts) == depth or expected[len(drafts)] == 1
                compared += depth
            else:
                assert drafts == []
        counts = [int(count) for count in rng.integers(1, DEEPEST + 2, len(rows))]
        keep(drafter, rows, counts, hidden=bool(rng.random() < 0.85))
        drafter.check_integrity()
        staying = [at for at, row in enumerate(rows) if row.left > 8 and rng.random() < 0.9]
        drafter.leave(staying)
        rows = [rows[at] for at in staying]
        drafter.check_integrity()
    assert compared > 50


def test_steps_without_drafts_are_read_when_somebody_drafts(model: Model) -> None:
    """Of many, the last: as many as are worth keeping."""
    rng = np.random.default_rng(1)
    rows = [random_row(model, rng, 10, 300) for _ in range(2)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(5) for row in rows])
    for count in (3, 40, 150):
        for _ in range(count):
            keep(drafter, rows, [1, 1])
        for row in rows:
            row.known = [at for at in row.known if at < 9 or at >= row.position - 64]
        if count == 150:  # what lies between was forgotten
            assert read_drafts(drafter.propose([2, 0])) == [rows[0].expected(2), []]
    assert read_drafts(drafter.propose([0, 0])) == [[], []]


def test_a_row_that_is_put_aside_goes_on_as_it_was(model: Model) -> None:
    rng = np.random.default_rng(2)
    rows = [random_row(model, rng, 12, 60) for _ in range(3)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6) for row in rows])
    read_drafts(drafter.propose([2, 1, 3]))
    keep(drafter, rows, [2, 1, 3])
    context = drafter.put_aside(1)
    drafter.leave([0, 2])
    keep(drafter, [rows[0], rows[2]], [1, 2])
    back = rows[1].ready(0)
    rows[1].known = [*range(5, 11), 11]
    back.context = context
    drafter.join([back])
    drafter.check_integrity()
    rows = [rows[0], rows[2], rows[1]]
    assert read_drafts(drafter.propose([1, 2, 4])) == [
        row.expected(depth) for row, depth in zip(rows, (1, 2, 4), strict=True)
    ]


def test_a_row_is_put_aside_while_its_newest_token_is_on_the_device(model: Model) -> None:
    """The head has not read what leads to that token; all else is there when it comes back."""
    rng = np.random.default_rng(6)
    rows = [random_row(model, rng, 12, 60) for _ in range(2)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6) for row in rows])
    keep(drafter, rows, [3, 1])
    hidden = np.stack([row.hidden[row.position : row.position + 1] for row in rows])
    drafter.kept(KeptRound([1, 1], mx.array(hidden)))  # a plain step, not read
    back = rows[0].ready(0)
    rows[0].known = [*range(5, 14)]
    back.context = drafter.put_aside(0)
    for row in rows:
        row.say(1)
    back.position = rows[0].position
    drafter.leave([1])
    drafter.join([back])
    drafter.check_integrity()
    assert read_drafts(drafter.propose([2, 2])) == [rows[1].expected(2), []]
    rows.reverse()
    keep(drafter, rows, [1, 1])
    rows[1].known = [*range(5, 14), 15]
    assert read_drafts(drafter.propose([2, 2])) == [row.expected(2) for row in rows]


def test_what_a_long_row_has_held_is_free_when_it_has_left(model: Model) -> None:
    """And when it is put aside, no more is held than what was known of it. B55."""
    rng = np.random.default_rng(7)
    rows = [random_row(model, rng, tokens, 60) for tokens in (2100, 12)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(len(row.prompt) - 1, 512) for row in rows])
    read_drafts(drafter.propose([1, 1]))
    keep(drafter, rows, [1, 1])
    long = sum(array.nbytes for array in drafter._cache.arrays)
    drafter._settle()
    mx.synchronize()
    before = mx.get_active_memory()
    drafter.leave([1])
    mx.synchronize()
    short = sum(array.nbytes for array in drafter._cache.arrays)
    assert short < long / 8
    assert before - mx.get_active_memory() >= 0.9 * (long - short)


def test_a_row_that_wants_none_gets_none(model: Model) -> None:
    row = random_row(model, np.random.default_rng(3), 12, 60)
    row.sequence.decoding = replace(row.sequence.decoding, speculate=False)
    drafter: Drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6)])
    assert drafter.chances() == [()]


def test_what_holds_is_drafted_more_surely_at_its_depth(model: Model) -> None:
    """A head is taught to look one token ahead, and may be wrong about the next."""
    rows = [random_row(model, np.random.default_rng(4), 12, 200) for _ in range(2)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6) for row in rows])
    for _ in range(20):
        read_drafts(drafter.propose([2, 2]))
        keep(drafter, rows, [2, 1])  # the first draft of one row holds, and never the second
    surer, unsure = drafter.chances()
    assert surer[0] > 0.9 > 0.3 > unsure[0]
    assert surer[1] < 0.3


def test_drafts_that_a_grammar_refuses_have_not_held(model: Model) -> None:
    """Then nothing of them is verified, and a plain step follows."""
    rows = [random_row(model, np.random.default_rng(4), 12, 200) for _ in range(2)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6) for row in rows])
    before = [chances[0] for chances in drafter.chances()]
    for _ in range(10):
        read_drafts(drafter.propose([1, 0]))
        keep(drafter, rows, [1, 1])
    refused, idle = (chances[0] for chances in drafter.chances())
    assert refused < before[0] / 2
    assert idle == before[1]


def test_a_head_that_failed_is_tried_again_after_a_while(model: Model) -> None:
    rows = [random_row(model, np.random.default_rng(4), 12, 200)]
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6) for row in rows])
    [[before, *_]] = drafter.chances()
    for _ in range(8):
        drafter.propose([1])
        keep(drafter, rows, [1])
    [[failed, *_]] = drafter.chances()
    assert failed < before
    for _ in range(16):
        keep(drafter, rows, [1])
    [[again, *_]] = drafter.chances()
    assert again == before


def test_a_row_that_was_in_a_failed_step_drafts_again_when_it_has_proved_itself(
    model: Model,
) -> None:
    row = random_row(model, np.random.default_rng(4), 12, 200)
    row.sequence.was_in_failed_step()
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6)])
    assert drafter.chances() == [[]]
    for _ in range(64):
        keep(drafter, [row], [1])
    assert len(drafter.chances()[0]) == DEEPEST


def test_a_row_that_is_held_to_a_grammar_begins_with_less_trust(model: Model) -> None:
    free, held = (random_row(model, np.random.default_rng(4), 12, 60) for _ in range(2))
    decode = model.tokenizer.decode
    held.sequence.constrained = ConstrainedRow(held.sequence.decoding, decode, None)
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6) for row in (free, held)])
    one, other = drafter.chances()
    assert other[0] < one[0]


def test_a_drafter_that_lost_a_row_is_found_out(model: Model) -> None:
    row = random_row(model, np.random.default_rng(5), 12, 60)
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([row.ready(6)])
    drafter.check_integrity()
    row.say(1)
    with pytest.raises(IntegrityError, match="a head at 11 whose row is at 12"):
        drafter.check_integrity()


# -- the model in the box -----------------------------------------------------------------------

TASKS = ("recall, system", "tool call", "JSON", "echo", "small talk")


@pytest.fixture(scope="module")
def tiny() -> Iterator[Model]:
    loaded = load("bushel:tiny")
    loaded.mtp = load_head(loaded)
    yield loaded
    loaded.close()


def prompt_of(request: dict[str, Any]) -> list[int]:
    options = request["chat_template_kwargs"]
    text = render(request["messages"], request.get("tools"), add_generation_prompt=True, **options)
    return list(read_tokenizer(TINY).encode(text, add_special_tokens=False).ids)


@pytest.fixture(scope="module")
def told(tiny: Model) -> list[KnownRow]:
    """What the model says to some of its tasks, without drafts."""
    chosen = [case for case in cases(8, TASKS) if case.task in TASKS][::3]
    return replies(tiny, [case.request for case in chosen])


@pytest.fixture(scope="module")
def told_one(tiny: Model) -> KnownRow:
    """To the longest of its tasks alone."""
    asked = [case.request for case in cases(8, TASKS) if case.task in TASKS][::3]
    [row] = replies(tiny, [max(asked, key=lambda request: len(prompt_of(request)))])
    return row


def replies(tiny: Model, requests: list[dict[str, Any]]) -> list[KnownRow]:
    rows = []
    with LLM("bushel:tiny") as llm:
        params = SamplingParams(temperature=0.0, max_tokens=40)
        prompts = [prompt_of(request) for request in requests]
        outputs = llm.generate(requests, params)
    for prompt, output in zip(prompts, outputs, strict=True):
        text = [*prompt, *output.token_ids]
        _, hidden = tiny.forward_with_hidden(mx.array([text]), [0], tiny.make_state())
        rows.append(KnownRow(tiny, prompt, output.token_ids, np.array(hidden[0])))
    return rows


def accepted(tiny: Model, rows: list[KnownRow], read: int | None) -> float:
    """The share of first drafts that hold, all rows in one batch that some leave before others.

    read: tokens of their prompts that the head is given; None: all.
    """
    drafter = MTPDrafter(tiny, DEEPEST)
    rows = [KnownRow(tiny, row.prompt, row.ids[len(row.prompt) :], row.hidden) for row in rows]
    most = [len(row.prompt) - 1 for row in rows]
    given = most if read is None else [min(read, count) for count in most]
    drafter.join([row.ready(count, 64) for row, count in zip(rows, given, strict=True)])
    held = tried = 0
    while rows:
        proposed = read_drafts(drafter.propose([min(1, row.left - 1) for row in rows]))
        counts = [1 + row.holds(drafts) for row, drafts in zip(rows, proposed, strict=True)]
        held += sum(counts) - len(rows)
        tried += sum(map(len, proposed))
        keep(drafter, rows, counts)
        staying = [at for at, row in enumerate(rows) if row.left > 1]
        drafter.leave(staying)
        rows = [rows[at] for at in staying]
    return held / tried


@pytest.mark.long
def test_the_head_in_the_box_is_right_most_of_the_time(tiny: Model, told: list[KnownRow]) -> None:
    assert len(told) >= 10
    assert accepted(tiny, told, None) > 0.95
    # The control: a head that has not read the prompt cannot say what stands there.
    assert accepted(tiny, told, 0) < 0.8


@pytest.mark.parametrize("chunk", one_in(2, [7, 64]))
def test_a_prompt_is_read_in_pieces(tiny: Model, told_one: KnownRow, chunk: int) -> None:
    """What prefilling hands on is what the head makes of all of the prompt at once."""
    row = told_one
    row.sequence.tokens = row.ids[len(row.prompt) :][:5]  # it runs again, with what it has said
    job = Prefill(tiny, [row.sequence], 0, 0.0)
    job.begin()
    while job.remaining > 0:
        mx.eval(job.run(chunk))
    [ready] = job.finish()
    assert ready.context is not None
    row.known = list(range(row.position))
    drafter = MTPDrafter(tiny, DEEPEST)
    row.sequence.launched = 5
    drafter.join([ready])
    assert read_drafts(drafter.propose([3])) == [row.expected(3)]
    row.sequence.tokens.clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of a head: rows and tokens of each."""
    seen = list[tuple[int, int]]()
    call = MTPHead.__call__

    def spy(head: MTPHead, hidden: mx.array, *others: Any) -> mx.array:
        rows, tokens, _ = hidden.shape
        seen.append((rows, tokens))
        return call(head, hidden, *others)

    monkeypatch.setattr(MTPHead, "__call__", spy)
    return seen


@pytest.mark.parametrize(("tokens", "read"), [(300, 0), (1100, 600)])
def test_a_head_reads_a_prompt_when_somebody_wants_drafts(
    model: Model, calls: list[tuple[int, int]], tokens: int, read: int
) -> None:
    """Of a long one it reads most before, since hidden states would take more room."""
    row = random_row(model, np.random.default_rng(3), tokens + 1, 60)
    job = Prefill(model, [row.sequence], 0, 0.0)
    job.begin()
    while job.remaining > 0:
        mx.eval(job.run(100))
    [ready] = job.finish()
    drafter = MTPDrafter(model, DEEPEST)
    drafter.join([ready])
    assert sum(many for _, many in calls) == read
    assert drafter.chances()[0]
    keep(drafter, [row], [1])
    assert sum(many for _, many in calls) == read
    drafter.propose([1])
    assert sum(many for _, many in calls) == tokens + 1


def test_positions_of_images_are_the_heads_as_well(tiny: Model) -> None:
    """Of rows with pictures the head stands where the body does, and not where tokens are."""
    picture = see("circle", "red")
    text = render(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And this?"}]}],
        None,
        add_generation_prompt=True,
    )
    prepared = tiny.host.prepare(text, [picture])
    params = SamplingParams(temperature=0.0, max_tokens=30)
    decoding = resolve(params, GenerationDefaults(), vocab=tiny.vocab, end_ids=frozenset({2}))
    row = Sequence.start(Request("r", prepared, (decoding,)), 0, lambda *_: "", None)
    job = Prefill(tiny, [row], 0, 0.0)
    mx.eval(job.run(1000))
    [ready] = job.finish()
    assert ready.prompt.delta < 0
    assert ready.context is not None
    head, ids = tiny.mtp, prepared.ids
    assert head is not None
    ready.context.read(head)
    assert ready.prompt.positions is not None
    state = tiny.make_state()
    _, hidden = tiny.prefill_with_hidden(ready.prompt, 0, len(ids) - 1, state)
    positions = {"position_ids": ready.prompt.positions[:, :, : len(ids) - 1]}
    ahead = head(hidden, mx.array([ids[1:]]), [0], [0], HeadKVCache(1), positions)
    assert np.allclose(np.array(ready.context.ahead), np.array(ahead[:, -1:]), atol=1e-4)
    elsewhere = head(hidden, mx.array([ids[1:]]), [0], [0], HeadKVCache(1))
    assert not np.allclose(np.array(ready.context.ahead), np.array(elsewhere[:, -1:]), atol=1e-2)


def test_replies_do_not_change_when_a_head_reads_along(calls: list[tuple[int, int]]) -> None:
    requests = [{"prompt": text} for text in ("Hello", "What is the capital of France?", "1 2 3")]
    params = SamplingParams(temperature=0.0, max_tokens=12)
    with LLM("bushel:tiny", prefill_chunk=8, speculate="off") as llm:
        plain = [output.token_ids for output in llm.generate(requests, params)]
        model = llm._own_engine().model
        assert model.mtp is None
        assert not calls
        model.mtp = load_head(model)
        calls.clear()
        llm._own_engine().speculation = Speculation((partial(MTPDrafter, model, DEEPEST),), FREE)
        llm._own_engine()._rows.reset(llm._own_engine()._new_batch())
        assert [output.token_ids for output in llm.generate(requests, params)] == plain
        assert calls


def test_drafts_are_read_when_the_pass_over_them_has_been_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    read, choose = DeviceDrafts.read, DecodeBatch.choose_along

    def noted_read(drafts: DeviceDrafts) -> list[list[int]]:
        order.append("read")
        return read(drafts)

    def noted_choose(*args: Any) -> Any:
        order.append("started")
        return choose(*args)

    monkeypatch.setattr(DeviceDrafts, "read", noted_read)
    monkeypatch.setattr(DecodeBatch, "choose_along", noted_choose)
    with LLM("bushel:tiny", dtype="float32", speculate="mtp") as llm:
        asked = {"messages": [{"role": "user", "content": "What is 3 + 4?"}]}
        [output] = llm.generate([asked], [SamplingParams(temperature=0.0, max_tokens=20)])
    assert output.usage.accepted_tokens > 0
    assert order == ["started", "read"] * (len(order) // 2)


def test_what_a_head_has_not_read_is_in_the_memory_plan(model: Model) -> None:
    head, planned = model.mtp, draft_memory._head_footprint
    assert head is not None
    row = random_row(model, np.random.default_rng(3), UNREAD + 1, 60)
    context = row.ready(UNREAD).context
    assert context is not None
    assert context.unread
    assert 0 < sum(array.nbytes for array in context.arrays) <= planned(head).row(0)


def test_a_head_is_measured_for_as_many_rows_as_there_may_be(
    model: Model, calls: list[tuple[int, int]]
) -> None:
    assert model.mtp is not None
    assert len(profiling.of_head(model.mtp, 32)) == 32
    assert {rows for rows, _ in calls} == {1, 8, 32}
