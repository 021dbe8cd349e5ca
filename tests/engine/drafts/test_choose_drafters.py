"""Who drafts, as `--speculate` says, and what is refused. B59."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, BushelError, Output
from bushel.cache.paged.layer_pages import LayerPages
from bushel.core import DeviceFault
from bushel.core.checkpoint import TINY, read_checkpoint
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.drafts import profiling
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.lookup import Predicted
from bushel.engine.drafts.profiling import measure
from bushel.models.mtp import MTPHead
from bushel.models.vision.vision_model import VisionModel
from tests.depth import one_in
from tests.engine.constrained_requests import together
from tests.families import checkpoint_dir
from tests.llm.request_builders import greedy, prompt
from tests.models.altered_checkpoints import change_weights, copied
from tests.quick_starts.cheap_passes import cheap

ASKED = [
    [{"role": "user", "content": "What is 3 + 4?"}],
    [{"role": "user", "content": "Once upon a time"}],
]


def answers(word: str, model: str = "bushel:tiny") -> tuple[list[Output], dict[str, Any]]:
    with LLM(model, speculate=word) as llm:
        outs = llm.chat(ASKED, greedy(24))
        llm.check_integrity()
        return outs, llm.status()["speculation"]


@pytest.fixture(scope="module")
def plain() -> list[Output]:
    return answers("off")[0]


def own_head(folder: Path) -> str:
    """A folder with nothing but the head of bushel:tiny."""
    weights: Any = mx.load(str(read_checkpoint(TINY).path / "model.safetensors"))
    own = {name: array for name, array in weights.items() if name.startswith("mtp.")}
    mx.save_safetensors(str(folder / "model.safetensors"), own)
    return str(folder)


@pytest.mark.parametrize(
    ("word", "drafters"),
    one_in(
        2,
        [
            ("auto", ["grammar", "lookup", "mtp"]),
            ("mtp", ["grammar", "prediction", "mtp"]),
            ("a head", ["grammar", "prediction", "mtp"]),
            pytest.param("bushel:tiny", ["grammar", "prediction", "draft"], marks=pytest.mark.long),
            ("lookup", ["grammar", "lookup"]),
        ],
    ),
)
def test_whoever_drafts_the_reply_is_the_same(
    word: str, drafters: list[str], plain: list[Output], tmp_path: Path
) -> None:
    """A head of its own, one that is alone in a folder, a draft model, and the text itself."""
    outs, told = answers(own_head(tmp_path) if word == "a head" else word)
    assert [out.token_ids for out in outs] == [out.token_ids for out in plain]
    assert told["drafters"] == drafters
    if word != "lookup":  # such short replies repeat nothing
        assert told["accepted"] > 0


@pytest.mark.parametrize("word", ["mtp", pytest.param("bushel:tiny", marks=pytest.mark.long)])
def test_a_prediction_is_drafted_from_whoever_else_drafts(word: str) -> None:
    """And nobody looks in the texts of requests that have none."""
    predicted = {"type": "content", "content": "The capital of Mars is Sandtown, as all know."}
    asked = {"messages": [{"role": "user", "content": "Say: Sandtown, as all know."}]}
    with LLM("bushel:tiny", speculate=word) as llm:
        assert "prediction" in llm.status()["speculation"]["drafters"]
        looked: list[int] = []
        join = Predicted.join

        def noted(drafter: Predicted, rows: Any) -> None:
            join(drafter, rows)
            looked.extend(row is not None for row in drafter._rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Predicted, "join", noted)
            [plain] = llm.chat(asked["messages"], greedy(24))
            [said] = llm.chat(asked["messages"], greedy(24), prediction=predicted["content"])
    assert said.token_ids == plain.token_ids
    assert looked == [False, True]


def test_a_head_that_is_not_there_is_refused_where_it_is_asked_for() -> None:
    path = str(checkpoint_dir("llama"))
    with pytest.raises(BushelError, match="holds no prediction head"):
        LLM(path, speculate="mtp")
    with LLM(path) as llm:  # and not missed where nobody asks for it
        assert llm.status()["speculation"]["drafters"] == ["grammar", "lookup"]


def unknown_head(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """GLM-OCR's, as published: a layer of a form that its other layers do not have."""
    prefix, first = "model.language_model.layers.16.", "language_model.model.layers.0."
    like = {name: array for name, array in weights.items() if name.startswith(first)}
    width = like[f"{first}input_layernorm.weight"].shape[0]
    return {
        **weights,
        **{name.replace(first, prefix): array for name, array in like.items()},
        **{f"{prefix}{name}.weight": mx.ones(width) for name in ("enorm", "hnorm")},
        f"{prefix}eh_proj.weight": mx.zeros((width, 2 * width)),
        f"{prefix}shared_head.norm.weight": mx.ones(width),
    }


def test_a_head_of_an_unknown_form_is_done_without(tmp_path: Path) -> None:
    """And refused where it is asked for."""
    path = copied("glm_ocr", tmp_path)
    change_weights(path, unknown_head)
    with LLM(str(path)) as llm:
        (out,) = llm.generate(prompt(5), greedy(4))
        assert llm.status()["speculation"]["drafters"] == ["grammar", "lookup"]
    assert len(out.token_ids) == 4
    with pytest.raises(BushelError, match="of a form that Bushel does not know"):
        LLM(str(path), speculate="mtp")


def test_a_head_whose_first_pass_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(MTPHead, "__call__", fail)
    with LLM("bushel:tiny") as llm:
        assert llm.status()["speculation"]["drafters"] == ["grammar", "lookup"]
    with pytest.raises(BushelError, match="does not know: planted"):
        LLM("bushel:tiny", speculate="mtp")


@pytest.mark.parametrize("what", ["measure", "of_head"])
def test_a_model_whose_drafts_cannot_be_measured_is_served_without(
    what: str, monkeypatch: pytest.MonkeyPatch, plain: list[Output]
) -> None:
    """And says why, as when there is too little memory for the rows; but drafts that were asked
    for by name are refused.
    """

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(f"bushel.engine.drafts.profiling.{what}", fail)
    outs, told = answers("auto")
    assert [out.token_ids for out in outs] == [out.token_ids for out in plain]
    assert told["why_off"] == "what they cost could not be measured (planted)"
    with LLM("bushel:tiny") as llm:  # and what nobody asks takes no memory
        assert llm._engine is not None
        assert llm._engine.model.mtp is None
    with pytest.raises(BushelError, match="speculate='mtp': what they cost could not be measured"):
        LLM("bushel:tiny", speculate="mtp")


def test_a_draft_model_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(BushelError, match="different vocabularies"):
        LLM(str(checkpoint_dir("llama")), speculate="bushel:tiny")


def test_a_model_whose_state_cannot_go_back_serves_without_drafts() -> None:
    """And says why; asked to draft all the same, it is not loaded."""
    path = str(checkpoint_dir("llama4"))
    with LLM(path) as llm:
        (out,) = llm.generate(prompt(5), greedy(8))
        told = llm.status()["speculation"]
    assert len(out.token_ids) == 8
    assert told["why_off"].startswith("rejected tokens cannot be rolled back in")
    with pytest.raises(BushelError, match="cannot be served with speculate='lookup'"):
        LLM(path, speculate="lookup")


def far(model: Any, most_rows: int, **_: Any) -> CostProfile:
    """After some hundred tokens a pass takes longer than its tokens one by one."""
    slopes = tuple(0.0004 * width**2 for width in range(1, 9))
    return replace(cheap(model, most_rows), seconds_per_context_token=slopes)


@pytest.mark.parametrize(("profile", "drafts"), [(cheap, True), (far, False)])
def test_rows_of_long_contexts_draft_nothing(
    profile: Any, drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long prompt repeats itself as a short one does; replies are the same either way. B59."""
    monkeypatch.setattr("bushel.engine.drafts.profiling.measure", profile)
    line = "one two three four five six seven eight nine ten eleven twelve. "
    with LLM("bushel:tiny", dtype="float32", speculate="lookup") as llm:
        short, long = (llm.generate(line * times, greedy(32))[0] for times in (2, 40))
    assert short.usage.accepted_tokens > 0
    assert (long.usage.drafted_tokens > 0) == drafts
    with LLM("bushel:tiny", dtype="float32", speculate="off") as llm:
        assert llm.generate(line * 40, greedy(32))[0].token_ids == long.token_ids


@pytest.mark.parametrize(
    "error",
    ["[malloc] Unable to allocate 123456789 bytes.", "[METAL] Command buffer execution failed: x"],
)
@pytest.mark.parametrize("where", ["pages", "values", "computing"])
def test_a_model_whose_long_contexts_do_not_fit_is_served_with_drafts(
    where: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages that were to grow for them, and after what Metal tells late."""
    path = str(checkpoint_dir("llama"))
    with LLM(path, attention="pages", speculate="off") as llm:
        right = llm.generate([prompt(30), prompt(600)], greedy(9))
    advance, resize, evaluate = profiling._advance_without_running, LayerPages.resize, mx.eval
    failed: list[LayerPages] = []

    def fail(*_: Any) -> None:
        raise RuntimeError(error)

    def full(layer: LayerPages, capacity: int) -> None:
        if layer is failed[0]:
            resize(layer, capacity)
        elif where == "pages":
            fail()
        else:
            evaluations = iter([evaluate, evaluate, fail])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(mx, "eval", lambda *arrays: next(evaluations)(*arrays))
                resize(layer, capacity)

    def far(batch: DecodeBatch, tokens: int) -> None:
        table = batch.rows._table
        assert table is not None
        failed.append(table.pool.layers[0])
        with pytest.MonkeyPatch.context() as patch:
            if where != "computing":
                patch.setattr(LayerPages, "resize", full)
            advance(batch, tokens)
        fail()

    monkeypatch.setattr(profiling, "_advance_without_running", far)
    monkeypatch.setattr(profiling, "measure", measure)
    monkeypatch.setattr(profiling, "_SECONDS_EACH", 0.0)
    monkeypatch.setattr(profiling, "_MOST_LONG_SECONDS", 60.0)
    with LLM(path, attention="pages", max_batch=4) as llm:
        assert failed
        told = llm.status()["speculation"]
        assert told["drafters"] or "takes too long" in told["why_off"]
        assert "ms_per_1000_context_tokens" not in told
        outs = llm.generate([prompt(30), prompt(600)], greedy(9))
        llm.check_integrity()
    assert [out.token_ids for out in outs] == [out.token_ids for out in right]


def test_control_a_device_that_fails_in_short_contexts_ends_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("[METAL] Command buffer execution failed: x")

    monkeypatch.setattr(profiling, "measure", measure)
    monkeypatch.setattr(profiling, "_turn", fail)
    with pytest.raises(DeviceFault, match="Command buffer"):
        LLM(str(checkpoint_dir("llama")))


def test_a_model_of_one_token_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no long context to measure."""
    monkeypatch.setattr(profiling, "measure", measure)
    with LLM(str(checkpoint_dir("llama")), max_model_len=1, max_batch=1) as llm:
        assert "ms_per_1000_context_tokens" not in llm.status()["speculation"]


def dear(model: Any, most_rows: int, **_: Any) -> CostProfile:
    """Drafts pay if four of five hold, and not if every other one does."""
    return CostProfile((tuple(1 + 0.55 * more for more in range(8)),) * most_rows)


@pytest.mark.parametrize(("profile", "reads"), [(cheap, True), (dear, False)])
def test_a_head_reads_nothing_of_rows_whose_drafts_could_not_pay(
    profile: Any, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a reply that is held to a grammar every other draft is expected to hold."""
    monkeypatch.setattr("bushel.engine.drafts.profiling.measure", profile)
    seen: list[str] = []
    for name in ("forward_with_hidden", "prefill_with_hidden"):
        monkeypatch.setattr(VisionModel, name, noted(name, getattr(VisionModel, name), seen))
    with LLM("bushel:tiny", dtype="float32") as llm:
        held = {"shape": {"json_schema": {"type": "integer", "minimum": 0, "maximum": 9}}}
        chat = {"messages": [{"role": "user", "content": "What is 3 + 4?"}]}
        [answer] = together(llm, [({**chat, **held}, greedy(ignore_eos=False))])
        assert answer.text.isdigit()
        assert bool(seen) == reads
        together(llm, [(chat, greedy())])
        assert seen


def noted(name: str, method: Any, seen: list[str]) -> Any:
    def spy(*args: Any) -> Any:
        seen.append(name)
        return method(*args)

    return spy
