"""Encoders and pooled decoders: whatever runs beside a text, its numbers are those it has alone."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel import LLM, SamplingParams
from bushel.core import BushelError, ModelError, RequestError
from bushel.engine.batching_check import padding_fault
from bushel.models import load
from bushel.models.encoder_model import EncoderModel
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.encoders import CONTEXT, CROSS_ENCODERS, EMBEDDERS, write_pooling
from tests.families.library_encoder import SoloEncoder
from tests.llm.request_builders import assert_same, prompt

BOUND = 1e-4
TEXT = "a bushel is a measure for grain apples and other dry goods eight gallons fill it"
WORDS = TEXT.split(" ")


def texts(count: int = 64) -> list[str]:
    """Of mixed lengths, in no order."""
    rng = np.random.default_rng(count)
    return [" ".join(rng.choice(WORDS, length)) for length in rng.integers(1, 60, count)]


def apart(found: Any, expected: Any) -> float:
    return float(np.max(np.abs(np.array(found) - np.array(expected))))


@pytest.fixture(scope="module", params=EMBEDDERS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def solo(family: str) -> SoloEncoder:
    return SoloEncoder(checkpoint_dir(family))


@pytest.fixture(scope="module")
def llm(family: str) -> Iterator[LLM]:
    with LLM(str(checkpoint_dir(family))) as llm:
        yield llm


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Lengths of the texts of every pass."""
    seen: list[list[int]] = []
    encode = EncoderModel.encode

    def counted(self: EncoderModel, prompts: Any) -> mx.array:
        seen.append([len(prompt.ids) for prompt in prompts])
        return encode(self, prompts)

    monkeypatch.setattr(EncoderModel, "encode", counted)
    return seen


def forget_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_vlm.models.bert import Model

    encode = Model._encode

    def unmasked(self: Any, ids: mx.array, mask: Any = None, types: Any = None) -> Any:
        return encode(self, ids, None, types)[0], mask

    monkeypatch.setattr(Model, "_encode", unmasked)


def test_a_text_has_the_vector_that_mlx_vlm_gives_it_alone(
    llm: LLM, solo: SoloEncoder, passes: list[list[int]]
) -> None:
    asked = texts()
    expected = [solo.embedding(text) for text in asked]
    assert apart(llm.embed(asked[0]), [expected[0]]) < BOUND
    passes.clear()
    assert apart(llm.embed(asked), expected) < BOUND
    assert len(passes) < 16  # and not 64
    assert apart(llm.embed(asked[:1]), [expected[1]]) > 100 * BOUND  # the control
    llm.check_integrity()


def test_texts_of_like_lengths_share_a_pass(passes: list[list[int]]) -> None:
    with LLM(str(checkpoint_dir("bert"))) as llm:
        llm.embed(texts())  # the costs are known after that
        passes.clear()
        llm.embed(texts(200))
    padded = sum(len(lengths) * max(lengths) for lengths in passes)
    assert sum(map(len, passes)) == 200
    assert len(passes) < 30
    assert padded < 1.5 * sum(map(sum, passes))


def test_control_a_forgotten_mask_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    solo, asked = SoloEncoder(checkpoint_dir("bert")), texts()
    expected = [solo.embedding(text) for text in asked]
    forget_the_mask(monkeypatch)
    with LLM(str(checkpoint_dir("bert")), self_check=False) as llm:
        assert apart(llm.embed(asked[0]), expected[:1]) < BOUND
        assert apart(llm.embed(asked), expected) > 10 * BOUND


def test_an_encoder_that_sees_padding_is_found_at_load_and_given_one_text_at_a_time(
    monkeypatch: pytest.MonkeyPatch, passes: list[list[int]]
) -> None:
    solo, asked = SoloEncoder(checkpoint_dir("bert")), texts(12)
    expected = [solo.embedding(text) for text in asked]
    assert padding_fault(load(str(checkpoint_dir("bert")))) is None
    forget_the_mask(monkeypatch)
    with LLM(str(checkpoint_dir("bert"))) as llm:
        status = llm.status()
        assert status["lane"] == "single"
        assert "padded texts" in status["lane_reason"]
        passes.clear()
        assert apart(llm.embed(asked), expected) < BOUND
    assert [len(lengths) for lengths in passes] == [1] * 12


@pytest.mark.parametrize("name", often(CROSS_ENCODERS, "modernbert_cross"))
def test_a_cross_encoder_scores_pairs_as_mlx_vlm_does(name: str) -> None:
    solo = SoloEncoder(checkpoint_dir(name), crosses=True)
    query, *documents = texts(33)
    expected = [solo.score(query, document) for document in documents]
    with LLM(str(checkpoint_dir(name))) as llm:
        found = llm.score(query, documents)
        assert apart(found, expected) < BOUND
        assert apart(found, expected[::-1]) > 10 * BOUND  # the control
        assert apart(llm.score(documents[0], [query]), [solo.score(documents[0], query)]) < BOUND
        with pytest.raises(RequestError, match=r"cross-encoder.*/v1/score"):
            llm.embed("A bushel")
        assert "cross-encoder" in (llm.generate("A bushel")[0].error or "")


def test_token_types_of_a_pair_count() -> None:
    """Of two pairs with the same tokens, the border between query and document is elsewhere."""
    solo = SoloEncoder(checkpoint_dir("bert_cross"), crosses=True)
    tokens = solo.tokenizer("apples", "and grain", return_token_type_ids=True)
    assert set(tokens["token_type_ids"]) == {0, 1}
    bare = solo.network(mx.array([tokens["input_ids"]])).logits.item()
    assert abs(1 / (1 + np.exp(-bare)) - solo.score("apples", "and grain")) > 10 * BOUND


# -- what is refused -------------------------------------------------------------------------


def test_an_encoder_writes_no_text(llm: LLM) -> None:
    [output] = llm.generate("Once upon a time")
    assert "is an embedding model: it writes no text" in (output.error or "")
    [output] = llm.chat([{"role": "user", "content": "Hello"}])
    assert "/v1/embeddings" in (output.error or "")


def test_all_of_the_context_is_for_the_text_and_no_token_more(llm: LLM, solo: SoloEncoder) -> None:
    ids = np.random.default_rng(1).integers(10, 500, CONTEXT).tolist()
    assert apart(llm.embed([ids]), [solo.embedding(ids)]) < BOUND
    with pytest.raises(RequestError, match=f"maximum context length is {CONTEXT} tokens"):
        llm.embed([[*ids, 7]])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([[]], "empty"),
        ([[1, 2.5]], "token ids"),
        ([[-1]], "token ids"),
        ([[10**9]], "token ids"),
        ([None], "must be a string"),
        (7, "not int"),
        ({"prompt": "a"}, "not dict"),
        (b"a", "not bytes"),
    ],
    ids=str,
)
def test_what_is_no_text_is_refused(llm: LLM, wrong: Any, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        llm.embed(wrong)


@pytest.mark.parametrize("dimensions", [0, -1, 65, 2.0, True, "8"])
def test_dimensions_are_those_that_there_are(llm: LLM, dimensions: Any) -> None:
    with pytest.raises(RequestError, match="dimensions must be from 1 to 64"):
        llm.embed("a", dimensions=dimensions)


def test_fewer_dimensions_are_normalised_again(llm: LLM) -> None:
    [whole], [cut] = llm.embed("a bushel"), llm.embed("a bushel", dimensions=16)
    assert len(cut) == 16
    assert np.linalg.norm(cut) == pytest.approx(1)
    assert apart(cut, np.array(whole[:16]) / np.linalg.norm(whole[:16])) < 1e-6


def test_no_texts_are_no_vectors(llm: LLM) -> None:
    assert llm.embed([]) == []


def test_a_vector_that_is_not_a_number_is_an_error() -> None:
    with LLM(str(checkpoint_dir("bert"))) as llm:
        assert llm._engine is not None
        norm = llm._engine.model.network.embeddings.LayerNorm
        norm.weight = norm.weight * float("nan")
        with pytest.raises(BushelError, match="not a number"):
            llm.embed("a bushel")


def test_what_memory_does_not_hold_is_refused_and_the_rest_is_served() -> None:
    path = str(checkpoint_dir("bert"))
    with LLM(path) as llm:
        weights = llm.status()["memory"]["weights_bytes"]
    with LLM(path, memory_limit=weights + 2_000_000, headroom=0) as llm:
        assert len(llm.embed(texts(8))) == 8
        with pytest.raises(RequestError, match=r"needs .* of memory"):
            llm.embed([[7] * CONTEXT])


def test_a_checkpoint_with_more_labels_is_refused(tmp_path: Path) -> None:
    copy = shutil.copytree(checkpoint_dir("bert_cross"), tmp_path / "labels")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "num_labels": 3}))
    with pytest.raises(ModelError, match="exactly one output label"):
        load(str(copy))


# -- decoders --------------------------------------------------------------------------------


def pooled_llama(folder: Path, mode: str) -> str:
    copy = shutil.copytree(checkpoint_dir("llama"), folder / mode)
    write_pooling(copy, mode)
    return str(copy)


def bare(llm: LLM, ids: tuple[int, ...], mean: bool) -> np.ndarray:
    """The network's body called by itself, on the whole prompt."""
    assert llm._engine is not None
    model = llm._engine.model
    hidden = np.array(model.network.model(mx.array([ids]), cache=model.make_state())[0])
    vector = hidden.mean(axis=0) if mean else hidden[-1]
    return np.asarray(vector / np.linalg.norm(vector))


@pytest.mark.parametrize("mode", ["lasttoken", "mean"])
def test_a_decoder_pools_as_its_checkpoint_says(tmp_path: Path, mode: str) -> None:
    asked = [tuple(prompt(length, length)["prompt_token_ids"]) for length in (40, 1, 17, 33)]
    with LLM(pooled_llama(tmp_path, mode), prefill_chunk=16) as llm:
        expected = [bare(llm, ids, mode == "mean") for ids in asked]
        others = [bare(llm, ids, mode != "mean") for ids in asked]
        for _ in range(2):  # the second time, with what was kept of the first
            found = llm.embed(asked)
            assert apart(found, expected) < BOUND
        assert apart(found, others) > 100 * BOUND  # the control


def test_a_mean_is_computed_of_all_tokens_and_says_so(tmp_path: Path) -> None:
    ids = tuple(prompt(40, 1)["prompt_token_ids"])
    with LLM(pooled_llama(tmp_path, "mean"), prefill_chunk=16) as llm:
        llm.generate({"prompt_token_ids": [*ids]}, SamplingParams(max_tokens=4))
        handle = llm._submit({"prompt_token_ids": ids}, None, "embedding")
        assert llm._engine is not None
        [job] = llm._engine._queue.waiting.values()
        assert job.reuse.reason == "mean_pooling"
        while not handle.done:
            llm.step()
        assert handle.output.usage.cached_tokens == 0


def test_pooling_that_a_decoder_cannot_is_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="its pooling is weightedmean"):
        load(pooled_llama(tmp_path, "weightedmean"))


@pytest.mark.parametrize("mode", often(["lasttoken", "mean"], "mean"))
def test_streams_beside_embeddings_say_what_they_say_alone(tmp_path: Path, mode: str) -> None:
    hot = SamplingParams(max_tokens=24, ignore_eos=True, temperature=1, seed=7)
    pairs = [(prompt(33, 3), hot), (prompt(9, 4), replace(hot, seed=8))]
    with LLM(pooled_llama(tmp_path, mode), prefill_chunk=16) as llm:
        expected = [llm.generate(*pair)[0] for pair in pairs]
        running = [llm.submit(*pair) for pair in pairs]
        while not all(handle.output.token_ids for handle in running):
            llm.step()
        asked = [tuple(prompt(length, length)["prompt_token_ids"]) for length in range(20, 52)]
        found = llm.embed(asked)
        while not all(handle.done for handle in running):
            llm.step()
        for got, want in zip(running, expected, strict=True):
            assert_same(got.output, want)
        assert apart(found, [bare(llm, ids, mode == "mean") for ids in asked]) < BOUND
        llm.check_integrity()
