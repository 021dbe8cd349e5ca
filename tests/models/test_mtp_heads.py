"""Prediction heads of every published form give what their tensors say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from bushel.core import ModelError
from bushel.models import Model, load
from bushel.models.mtp import HeadKVCache, MTPHead, load_head
from tests.depth import often, one_in
from tests.families import checkpoint_dir
from tests.families.checkpoint import write_arrays
from tests.models.altered_checkpoints import change_weights, copied
from tests.models.published_heads import EXPERTS, HEADS, WIDTH, Arrays, PublishedHead, fused

LENGTH = 24


class Subject:
    """A model with a head, and what the head's tensors are."""

    def __init__(self, published: PublishedHead, path: Path):
        self.published = published
        self.tensors = published.tensors(np.random.default_rng(5))
        stored = fused(self.tensors) if published.family == "qwen3_5_moe" else self.tensors
        folder = add_head(published, stored, path)
        self.model = load(str(folder if published.inside else checkpoint_dir(published.family)))
        self.head = load_head(self.model, None if published.inside else folder)
        rng = np.random.default_rng(7)
        self.ids = rng.integers(5, 400, (4, LENGTH))
        self.hidden = rng.standard_normal((4, LENGTH, WIDTH)).astype(np.float32)

    def expected(self, row: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Hidden states and logits of a row's first tokens, all at once and in plain numpy."""
        network = getattr(self.model.network, "language_model", self.model.network)
        table = np.array(network.model.embed_tokens.weight)
        last = table if "lm_head" not in network else np.array(network.lm_head.weight)
        given = self.hidden[row, :length], table[self.ids[row, :length]]
        hidden, normed = self.published.give(self.tensors, *given, self.model.host.config)
        return hidden, normed @ last.T

    def run(self, cache: HeadKVCache, starts: list[int], counts: list[int], width: int) -> mx.array:
        """The next tokens of each row, with others of it behind them that are not kept."""
        columns = [[min(start + at, LENGTH - 1) for at in range(width)] for start in starts]
        hidden = np.stack([self.hidden[row, own] for row, own in enumerate(columns)])
        ids = np.stack([self.ids[row, own] for row, own in enumerate(columns)])
        out = self.head(mx.array(hidden), mx.array(ids), starts, cache.lengths, cache)
        cache.lengths = [before + kept for before, kept in zip(cache.lengths, counts, strict=True)]
        return out


def add_head(published: PublishedHead, tensors: Arrays, path: Path) -> Path:
    """A folder with the head alone, or a copy of its family's checkpoint with it."""
    if not published.inside:
        published.write(path / "head", tensors)
        return path / "head"
    folder = copied(published.family, path)
    added = {f"{published.prefix}{name}": mx.array(array) for name, array in tensors.items()}
    change_weights(folder, lambda weights: {**weights, **added})
    return folder


@pytest.fixture(scope="module", params=one_in(2, HEADS))
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    made = Subject(HEADS[request.param], tmp_path_factory.mktemp(request.param))
    yield made
    made.model.close()


def same(found: mx.array, expected: np.ndarray) -> bool:
    return bool(np.allclose(np.array(found), expected, atol=2e-4, rtol=2e-4))


def test_a_head_gives_what_its_tensors_say(subject: Subject) -> None:
    hidden, logits = subject.expected(0, LENGTH)
    cache = HeadKVCache(1)
    one = mx.array(subject.hidden[:1]), mx.array(subject.ids[:1])
    out = subject.head(*one, [0], [0], cache)
    assert same(out[0], hidden)
    assert same(subject.head.logits(out)[0], logits)
    shuffled = subject.head(one[0][:, ::-1], one[1], [0], [0], HeadKVCache(1))
    assert not same(shuffled[0], hidden)


def test_rows_of_different_lengths_are_as_alone(subject: Subject) -> None:
    """Pieces of any width, and what is not kept of them leaves no trace."""
    rng = np.random.default_rng(3)
    cache = HeadKVCache(4)
    while min(cache.lengths) < LENGTH:
        counts = [int(min(rng.integers(0, 4), LENGTH - length)) for length in cache.lengths]
        before = list(cache.lengths)
        out = subject.run(cache, before, counts, max(4, *counts))
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            if count:
                hidden, _ = subject.expected(row, start + count)
                assert same(out[row, :count], hidden[start:])
    cache.check_integrity()


def test_going_back_leaves_nothing_of_a_draft(subject: Subject) -> None:
    cache, straight = HeadKVCache(2), HeadKVCache(2)
    for kept in (cache, straight):
        subject.run(kept, [0, 0], [5, 3], 5)
    state, tokens = mx.random.normal((2, 1, WIDTH)), mx.array([[9], [11]])
    for depth in range(4):  # a head drafts on from its own hidden states
        starts = [length + depth for length in cache.lengths]
        state = subject.head(state, tokens, starts, starts, cache)
    again, expected = (subject.run(kept, [5, 3], [2, 1], 2) for kept in (cache, straight))
    assert np.array_equal(np.array(again), np.array(expected))


def test_rows_come_and_go(subject: Subject) -> None:
    cache = HeadKVCache()
    first, second = HeadKVCache(1), HeadKVCache(1)
    row = slice(2, 3)
    subject.head(
        mx.array(subject.hidden[row, :6]), mx.array(subject.ids[row, :6]), [0], [0], second
    )
    second.lengths = [6]
    cache.join([first, second, first])
    assert cache.lengths == [0, 6, 0]
    cache.leave([1, 2])
    given = np.stack([subject.hidden[2, 6:9], subject.hidden[3, :3]])
    ids = np.stack([subject.ids[2, 6:9], subject.ids[3, :3]])
    out = subject.head(mx.array(given), mx.array(ids), [6, 0], cache.lengths, cache)
    assert same(out[0], subject.expected(2, 9)[0][6:])
    assert same(out[1], subject.expected(3, 3)[0])
    cache.check_integrity()
    cache.leave([])
    assert not len(cache)
    assert cache.arrays == []


# -- how tensors are stored ---------------------------------------------------------------------


def qwen(model: Model, tensors: Arrays | dict[str, mx.array], path: Path) -> MTPHead:
    HEADS["qwen3_next"].write(path, tensors)  # type: ignore[arg-type]
    return load_head(model, path)


@pytest.fixture(scope="module")
def next_model() -> Iterator[Model]:
    model = load(str(checkpoint_dir("qwen3_next")))
    yield model
    model.close()


def given(head: MTPHead) -> np.ndarray:
    rng = np.random.default_rng(1)
    hidden = mx.array(rng.standard_normal((1, 8, WIDTH)).astype(np.float32))
    return np.array(head(hidden, mx.array([list(range(9, 17))]), [0], [0], HeadKVCache(1)))


QUANTIZED = ((4, "affine", 32), (8, "affine", 32), (4, "mxfp4", 32))


@pytest.mark.parametrize(
    ("bits", "mode", "group"),
    often(QUANTIZED, QUANTIZED[-1]),
)
def test_a_quantized_head_is_read(
    next_model: Model, tmp_path: Path, bits: int, mode: str, group: int
) -> None:
    """Nobody says how: bits and groups are seen in the shapes."""
    tensors = HEADS["qwen3_next"].tensors(np.random.default_rng(5))
    packed: dict[str, mx.array] = {}
    plain: dict[str, mx.array] = {}
    for name, array in tensors.items():
        if array.ndim == 1 or "gate.weight" in name:
            packed[name] = plain[name] = mx.array(array)
            continue
        weight, scales, *biases = mx.quantize(
            mx.array(array), group_size=group, bits=bits, mode=mode
        )
        stem = name.removesuffix(".weight")
        packed |= {name: weight, f"{stem}.scales": scales}
        packed |= {f"{stem}.biases": bias for bias in biases}
        plain[name] = mx.dequantize(
            weight, scales, *biases, group_size=group, bits=bits, mode=mode
        ).astype(mx.float32)
    found = given(qwen(next_model, packed, tmp_path / "packed"))
    expected = given(qwen(next_model, plain, tmp_path / "plain"))
    assert np.allclose(found, expected, atol=1e-3)
    assert not np.allclose(found, given(qwen(next_model, tensors, tmp_path / "all")), atol=1e-3)


def test_a_head_in_eight_bits_is_read(tmp_path: Path) -> None:
    """As DeepSeek publishes: a scale for every block of a matrix."""
    published = HEADS["deepseek_v3"]
    tensors = published.tensors(np.random.default_rng(5))
    stored: dict[str, mx.array] = {name: mx.array(array) for name, array in tensors.items()}
    name = "self_attn.o_proj.weight"
    small = mx.to_fp8(stored[name] / 0.5)
    stored |= {name: small, f"{name}_scale_inv": mx.array([[0.5]])}
    published.write(tmp_path / "small", stored)  # type: ignore[arg-type]
    stored = {**stored, name: (mx.from_fp8(small, dtype=mx.float32) * 0.5)}
    del stored[f"{name}_scale_inv"]
    published.write(tmp_path / "plain", stored)  # type: ignore[arg-type]
    model = load(str(checkpoint_dir("deepseek_v3")))
    found, expected = (given(load_head(model, tmp_path / which)) for which in ("small", "plain"))
    assert np.allclose(found, expected, atol=2e-3)
    model.close()


def test_embeddings_that_are_the_models_own_are_not_held_twice(tmp_path: Path) -> None:
    published = HEADS["deepseek_v3"]
    model = load(str(checkpoint_dir("deepseek_v3")))
    network = model.network
    tensors = published.tensors(np.random.default_rng(5))
    own = {
        "embed_tokens.weight": np.array(network.model.embed_tokens.weight),
        "shared_head.head.weight": np.array(network.lm_head.weight),
    }
    published.write(tmp_path / "same", tensors | own)
    shared = load_head(model, tmp_path / "same")
    assert "embed_tokens" not in shared.block
    assert "lm_head" not in shared.block
    other = own["embed_tokens.weight"][::-1].copy()
    published.write(tmp_path / "other", tensors | own | {"embed_tokens.weight": other})
    apart = load_head(model, tmp_path / "other")
    assert "embed_tokens" in apart.block
    assert not np.allclose(given(apart), given(shared), atol=1e-2)
    model.close()


@pytest.fixture(scope="module")
def tiny() -> Iterator[Model]:
    model = load("bushel:tiny")
    yield model
    model.close()


CONVERTED = {
    "none": (),
    "all": ("norm",),
    "the layer's": ("layers.0",),
    "all but the first": ("layers.0", "mtp.norm"),
    "the last": ("mtp.norm",),
    "all but the layer's": ("pre_fc", "mtp.norm"),
}


@pytest.mark.parametrize("which", one_in(2, CONVERTED))
def test_norms_are_read_as_whoever_converted_them_left_them(
    tiny: Model, tmp_path: Path, which: str
) -> None:
    """Published as distances from one; converters add one to all norms, to some, or to none."""
    published: Any = mx.load(str(tiny.host.path / "model.safetensors"))
    stored = {
        name: weight + 1
        if weight.ndim == 1 and any(part in name for part in CONVERTED[which])
        else weight
        for name, weight in published.items()
        if name.startswith("mtp.")
    }
    write_arrays(tmp_path, stored)
    own, found = load_head(tiny), load_head(tiny, tmp_path)
    pairs: Any = zip(tree_flatten(own.parameters), tree_flatten(found.parameters), strict=True)
    for (name, expected), (_, weight) in pairs:
        assert np.allclose(np.array(weight), np.array(expected), atol=2e-2), name


def test_random_norms_are_left_as_they_are(next_model: Model, tmp_path: Path) -> None:
    """Where no reading foretells anything, nothing is changed."""
    tensors = HEADS["qwen3_next"].tensors(np.random.default_rng(5))
    head = qwen(next_model, tensors, tmp_path)
    assert np.array_equal(np.array(head.block.norm.weight), tensors["norm.weight"])


# -- what cannot be read ------------------------------------------------------------------------


def without(name: str) -> Callable[[Arrays], Arrays]:
    return lambda tensors: {key: array for key, array in tensors.items() if key != name}


def narrowed(tensors: Arrays) -> Arrays:
    return {**tensors, "fc.weight": tensors["fc.weight"][:, :WIDTH]}


def one_expert_less(tensors: Arrays) -> Arrays:
    lost = f".experts.{EXPERTS - 3}."
    return {name: array for name, array in tensors.items() if lost not in name}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without("layers.0.self_attn.q_norm.weight"), "q_norm"),
        (without("pre_fc_norm_hidden.weight"), "no prediction head"),
        (narrowed, "fc|project"),
        (one_expert_less, "experts"),
        (lambda tensors: {**tensors, "layers.0.extra.weight": tensors["norm.weight"]}, "extra"),
    ],
)
def test_a_head_that_is_not_whole_is_refused(
    next_model: Model, tmp_path: Path, change: Callable[[Arrays], Arrays], why: str
) -> None:
    tensors = change(HEADS["qwen3_next"].tensors(np.random.default_rng(5)))
    with pytest.raises(ModelError, match=why):
        qwen(next_model, tensors, tmp_path)


def test_a_model_without_a_head_says_so(next_model: Model) -> None:
    with pytest.raises(ModelError, match="qwen3_next holds no prediction head"):
        load_head(next_model)
    assert next_model.mtp is None


def test_a_head_of_another_family_is_refused(tmp_path: Path) -> None:
    HEADS["deepseek_v3"].write(tmp_path, HEADS["deepseek_v3"].tensors(np.random.default_rng(5)))
    model = load(str(checkpoint_dir("llama")))
    with pytest.raises(ModelError, match="unlike the layers of its model"):
        load_head(model, tmp_path)
    model.close()
