"""Drafts of a second model of the same vocabulary."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel import LLM
from bushel.core import IntegrityError, ModelError
from bushel.engine.drafts.draft_model import DraftModel, require_draft_model
from bushel.engine.drafts.drafter import Drafter, KeptRound
from bushel.engine.drafts.speculation import Speculation
from bushel.models import Model, load, recurrent_rollback
from tests.depth import often
from tests.engine.drafts.known_replies import KnownRow
from tests.families import checkpoint_dir
from tests.families.images import MEDIUM, picture
from tests.llm.request_builders import assert_same, chat, greedy, hot, image, prompt, text
from tests.models.altered_checkpoints import copied
from tests.parity.drafting import DEEPEST, FREE

# Plain keys and values, windows, and recurrent layers of either library.
FAMILIES = ("llama", "gemma3_text", "qwen3_next", "qwen3_5_vl")


def let_draft(llm: LLM, draft: Model) -> None:
    """From now on, with a profile by which every draft pays."""
    engine = llm._engine
    assert engine is not None
    maker = partial(DraftModel, engine.model, draft, DEEPEST)
    engine.speculation = Speculation((maker,), FREE, None)
    engine._rows.reset(engine._new_batch())


def requests() -> list[Any]:
    return [prompt(length, length) for length in (1, 2, 30, 300, 7, 90)]


@pytest.fixture(scope="module", params=often(FAMILIES, "qwen3_5_vl"))
def path(request: pytest.FixtureRequest) -> str:
    return str(checkpoint_dir(request.param))


def test_a_model_that_drafts_for_itself_is_always_right(path: str) -> None:
    """Rows of all lengths together; long prompts are read in pieces while others decode."""
    draft = load(path)
    params = [greedy(20 + 3 * at) for at in range(6)]
    with LLM(path, prefill_chunk=32, speculate="off") as llm:
        plain = llm.generate(requests(), params)
        let_draft(llm, draft)
        outputs = llm.generate(requests(), params)
        for output, expected in zip(outputs, plain, strict=True):
            assert_same(output, expected)
        for output in outputs:
            assert output.usage.accepted_tokens == output.usage.drafted_tokens > 8
        assert llm._engine is not None
        llm._engine.check_integrity()
    draft.close()


def test_drafts_that_do_not_hold_change_nothing(path: str) -> None:
    """Sampled rows leave what a greedy draft says, in other places each."""
    draft = load(path)
    with LLM(path, speculate="off") as llm:
        params = [hot(24, temperature=1.0, seed=at) for at in range(6)]
        plain = llm.generate(requests(), params)
        let_draft(llm, draft)
        outputs = llm.generate(requests(), params)
        for output, expected in zip(outputs, plain, strict=True):
            assert_same(output, expected)
        usage = [output.usage for output in outputs]
    accepted = sum(one.accepted_tokens for one in usage)
    assert 0 < accepted < sum(one.drafted_tokens for one in usage)
    draft.close()


def test_rows_with_pictures_take_no_drafts() -> None:
    draft = load(str(checkpoint_dir("qwen3_5_vl")))
    with LLM(str(checkpoint_dir("qwen3_5_vl")), speculate="off") as llm:
        let_draft(llm, draft)
        seeing = chat(image(picture(MEDIUM)), text("What is it?"))
        seen, read = llm.generate([seeing, chat("What is it?")], greedy(12))
    assert seen.error is None
    assert seen.usage.drafted_tokens == 0
    assert read.usage.accepted_tokens > 0
    draft.close()


def test_a_folder_names_the_model_that_drafts(tmp_path: Path) -> None:
    """Its weights and its rows' state are in the memory plan."""
    path = str(checkpoint_dir("llama"))
    other = copied("llama", tmp_path)
    with LLM(path, speculate=str(other)) as llm, LLM(path, speculate="lookup") as alone:
        both, one = llm._engine, alone._engine
        assert both is not None
        assert one is not None
        assert both.speculation.drafting["draft"][0] > 0
        [memory, less] = (engine.admission.memory for engine in (both, one))
        assert memory is not None
        assert less is not None
        assert memory.footprint.weights == 2 * less.footprint.weights
        assert memory.footprint.state(4, 900) > 1.9 * less.footprint.state(4, 900)
        assert both.status().speculation.drafters == ["grammar", "prediction", "draft"]
        output, expected = (
            each.generate([prompt(30)], greedy(30, speculate=each is llm))[0]
            for each in (llm, alone)
        )
        assert_same(output, expected)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a checkpoint"):
        LLM(str(checkpoint_dir("llama")), speculate=str(tmp_path))


# -- alone, without an engine -------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    loaded = load(str(checkpoint_dir("qwen3_5")))
    yield loaded
    loaded.close()


def row_of(model: Model, rng: np.random.Generator, length: int, reply: int = 120) -> KnownRow:
    ids = rng.integers(50, 500, length + reply).tolist()
    return KnownRow(model, ids[:length], ids[length:], np.zeros((length + reply, 1)))


def says(model: Model, ids: list[int], count: int) -> list[int]:
    """What a model says next, run from the beginning."""
    state, said, step = model.make_state(), list[int](), list(ids)
    at = 0
    for _ in range(count):
        logits = model.forward(mx.array([step]), [at], state)
        at += len(step)
        step = [int(mx.argmax(logits[0, -1]).item())]
        said += step
    return said


def test_drafts_are_what_the_draft_model_says_alone(model: Model) -> None:
    """Whatever was kept, said without drafts, or never run; rows come and go."""
    rng = np.random.default_rng(0)
    drafter = DraftModel(model, model, DEEPEST)
    rows: list[KnownRow] = []
    compared = 0
    for step in range(24):
        if step % 5 == 0:
            new = [row_of(model, rng, int(length)) for length in rng.integers(2, 300, 2)]
            drafter.join([row.ready(0) for row in new])
            rows += new
        ready = [bool(chances) for chances in drafter.chances()]
        depths = [int(depth) for depth in rng.integers(0, DEEPEST + 1, len(rows))]
        if step % 7 < 5:  # otherwise the rows go on, and the draft model lags behind
            proposed = drafter.propose(depths)
            for row, depth, drafts, able in zip(rows, depths, proposed, ready, strict=True):
                expected = says(model, row.ids[: row.position + 1], depth) if able else []
                assert drafts == expected[: len(drafts)]
                compared += len(drafts)
        counts = [int(count) for count in rng.integers(1, DEEPEST + 2, len(rows))]
        for row, count in zip(rows, counts, strict=True):
            row.say(count)
        drafter.kept(KeptRound(counts))
        drafter.check_integrity()
        staying = [at for at, row in enumerate(rows) if row.left > 8 and rng.random() < 0.9]
        drafter.leave(staying)
        rows = [rows[at] for at in staying]
        drafter.check_integrity()
    assert compared > 60


def test_asked_twice_it_says_the_same(model: Model) -> None:
    row = row_of(model, np.random.default_rng(1), 20)
    drafter: Drafter = DraftModel(model, model, DEEPEST)
    drafter.join([row.ready(0)])
    first = drafter.propose([4])
    assert drafter.propose([2]) == [first[0][:2]]
    assert drafter.propose([4]) == first


def test_rows_that_lag_behind_catch_up(model: Model) -> None:
    """Others have drafted for them, or nobody: some by several passes, and some by one."""
    rng = np.random.default_rng(4)
    rows = [row_of(model, rng, length) for length in (20, 9, 33)]
    drafter = DraftModel(model, model, DEEPEST)
    drafter.join([row.ready(0) for row in rows])
    for row, count in zip(rows, (70, 12, 32), strict=True):
        row.say(count)
    drafter.kept(KeptRound([70, 12, 32]))
    assert drafter.propose([3, 3, 3]) == [
        says(model, row.ids[: row.position + 1], 3) for row in rows
    ]
    drafter.check_integrity()


def test_a_long_prompt_is_read_while_the_row_goes_on(model: Model) -> None:
    row = row_of(model, np.random.default_rng(2), 700)
    drafter = DraftModel(model, model, DEEPEST)
    drafter.join([row.ready(0)])
    steps = 0
    while not drafter.chances()[0]:
        row.say(1)
        drafter.kept(KeptRound([1]))
        steps += 1
    assert 1 < steps < 6
    assert drafter.propose([3]) == [says(model, row.ids[: row.position + 1], 3)]


def test_a_prompt_beyond_its_own_context_is_not_read(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No draft could come of it. One that grows beyond it while it is read is let go."""
    rng = np.random.default_rng(7)
    monkeypatch.setattr(type(model), "context", 400)
    read: list[int] = []
    forward = model.forward

    def noted(tokens: mx.array, *args: Any) -> mx.array:
        read.append(tokens.shape[1])
        return forward(tokens, *args)

    monkeypatch.setattr(model, "forward", noted)
    short, long, growing = (row_of(model, rng, length) for length in (100, 401, 398))
    drafter = DraftModel(model, model, 3)
    drafter.join([row.ready(0) for row in (short, long, growing)])
    assert sum(read) == 99 + 256
    for row in (short, long, growing):
        row.say(4)
    drafter.kept(KeptRound([4, 4, 4]))
    assert sum(read) == 99 + 256
    assert [bool(row) for row in drafter.chances()] == [True, False, False]
    drafter.propose([2, 0, 0])
    drafter.check_integrity()


def test_nothing_is_noted_when_its_pass_has_failed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks it any more, and the large model's layers may be of those that are noted."""
    row = row_of(model, np.random.default_rng(5), 20)
    drafter = DraftModel(model, model, DEEPEST)
    drafter.join([row.ready(0)])
    row.say(3)

    def fail(*_: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(RuntimeError, match="planted"):
        drafter.propose([2])
    assert recurrent_rollback._open.recording is None


def test_a_row_that_has_left_is_found_out(model: Model) -> None:
    row = row_of(model, np.random.default_rng(3), 20)
    drafter = DraftModel(model, model, DEEPEST)
    drafter.join([row.ready(0)])
    drafter.propose([2])
    row.sequence.tokens.clear()
    row.prompt.clear()
    drafter._rows = []
    with pytest.raises(IntegrityError, match="a row that has left"):
        drafter.check_integrity()


def test_models_of_other_vocabularies_cannot_draft(model: Model, tmp_path: Path) -> None:
    path = copied("llama", tmp_path)
    same = load(str(path))
    require_draft_model(model, same)
    same.close()
    tokens = path / "tokenizer.json"
    content = json.loads(tokens.read_text())
    ids = content["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    tokens.write_text(json.dumps(content))
    other = load(str(path))
    with pytest.raises(ModelError, match="llama cannot draft for qwen3_5: they have different"):
        require_draft_model(model, other)
    other.close()


def test_models_that_cannot_go_back_cannot_draft(model: Model) -> None:
    fixed = load(str(checkpoint_dir("rwkv7")))
    with pytest.raises(ModelError, match="rwkv7 cannot draft for qwen3_5: rejected tokens"):
        require_draft_model(model, fixed)
    fixed.close()
