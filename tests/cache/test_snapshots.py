"""A row's state can be copied, put back and moved between batches, for every kind of state.

Everything runs through `bushel.models.Model`, without an engine. BUSHEL_TEST_FAMILIES=all tries
more families.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from bushel.cache import BatchState, Snapshot, kind_of, take_snapshot
from bushel.cache.layer_kind import LayerSnapshot
from bushel.core import Prepared
from bushel.models import Model, Prompt, load
from bushel.models.model import State
from tests.depth import often, rarely

from ..families import checkpoint_dir
from ..families.checkpoint import CORPUS, FIRST_SPECIAL, VOCAB
from ..families.family import EVERY
from ..families.images import LARGE, SMALL, picture
from ..families.text import CORE, TEXT, WINDOW
from ..families.vision import VISION

BOUND = 1e-4
FIRST_TEXT = FIRST_SPECIAL + 20  # behind the special tokens of every family
# Decoded after the prompt, whatever the model would have said; enough to wrap the window.
REPLY = np.random.default_rng(3).integers(FIRST_TEXT, VOCAB, WINDOW + 4).tolist()
SHORT, LONG, OTHER = (
    tuple(np.random.default_rng(seed).integers(FIRST_TEXT, VOCAB, length).tolist())
    for seed, length in enumerate((WINDOW - 5, 3 * WINDOW + 2, WINDOW + 4))
)


# One of every kind of state, and of every company it keeps.
SOME = (
    *("llama", "llama_sliding", "qwen3_5", "gemma4_text", "mamba2", "falcon_h1"),
    *("recurrent_gemma", "deepseek_v3"),
)


@pytest.fixture(
    scope="module",
    params=rarely(
        (*(CORE if EVERY else SOME), "qwen3_5_vl", "gemma3_vl", "mllama"),
        {"gemma4_text", "deepseek_v3", "llama", "qwen3_5", "gemma3_vl"}.__contains__,
    ),
)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    model = load(str(checkpoint_dir(request.param)))
    yield model
    model.close()


@dataclass
class Track:
    """One row alone: its prompt, its state and how far it has come."""

    model: Model
    prompt: Prompt
    state: State
    position: int = 0

    @classmethod
    def start(cls, model: Model, prompt: Prompt, end: int | None = None) -> "Track":
        track = cls(model, prompt, model.make_state())
        track.prefill(len(prompt.ids) if end is None else end)
        return track

    def prefill(self, end: int) -> np.ndarray:
        logits = self.model.prefill(self.prompt, self.position, end, self.state)
        self.position = end
        return np.array(logits[0])

    def decode(self, tokens: Sequence[int]) -> np.ndarray:
        rows = []
        for token in tokens:
            where = [self.position + self.prompt.delta]
            rows.append(self.model.forward(mx.array([[token]]), where, self.state)[0, -1:])
            self.position += 1
        return np.array(mx.concatenate(rows))

    def finish(self) -> np.ndarray:
        """The logits of all that is left of the prompt, and of the reply."""
        rest = len(self.prompt.ids) > self.position
        logits = [self.prefill(len(self.prompt.ids))] if rest else []
        return np.concatenate([*logits, self.decode(REPLY)])


def moved(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.abs(one - two).max())


def prompt_of(model: Model) -> Prompt:
    """Three windows long; with two images where the model takes as many."""
    if model.name in TEXT:
        return model.embed(Prepared(LONG))
    family = VISION[model.name]
    images = [picture(SMALL, 1), picture(LARGE, 2)][: family.most_images]
    places = " or ".join([family.placeholder] * len(images))
    return model.embed(model.host.prepare(f"{CORPUS[:40]}{places}? {CORPUS[40:80]}", images))


def cuts(prompt: Prompt) -> list[int]:
    """Below and above the window, behind what must stay whole, and right at the end."""
    wanted = (WINDOW - 6, WINDOW + 7, len(prompt.ids))
    return sorted({prompt.cut(0, want, len(prompt.ids)) for want in wanted})


def arrays(layers: Sequence[LayerSnapshot]) -> list[mx.array]:
    found = []
    for layer in layers:
        found += [array for array in layer.arrays if array is not None] + arrays(layer.parts)
    return found


def copied(snapshot: Snapshot) -> list[np.ndarray]:
    return [np.array(array, copy=True) for array in arrays(snapshot.layers)]


def test_restored_state_goes_on_where_it_was_copied(model: Model) -> None:
    """Original and copy both go on as if nothing had happened, and the snapshot stays. B1."""
    prompt = prompt_of(model)
    expected = Track(model, prompt, model.make_state()).finish()
    for cut in cuts(prompt):
        original = Track.start(model, prompt, cut)
        snapshot = take_snapshot(original.state, cut)
        before = copied(snapshot)
        again = Track(model, prompt, snapshot.restore(model.make_state()), cut)
        for layer in again.state:
            kind_of(layer).check(layer, [cut])
        assert moved(original.finish(), expected[cut:]) < BOUND
        assert moved(again.finish(), expected[cut:]) < BOUND
        for array, old in zip(arrays(snapshot.layers), before, strict=True):
            assert np.array_equal(np.array(array), old)


def test_a_snapshot_of_decoded_state_is_exact(model: Model) -> None:
    """The window has wrapped in decode, so the ring is not in order of time. B1, B4."""
    track = Track.start(model, model.embed(Prepared(SHORT)))
    track.decode(REPLY)
    snapshot = take_snapshot(track.state, track.position)
    copy = Track(model, track.prompt, snapshot.restore(model.make_state()), track.position)
    assert moved(copy.decode(REPLY), track.decode(REPLY)) < BOUND


def test_nothing_run_is_a_snapshot_too(model: Model) -> None:
    """A prompt of one token forks before it has any state. B1."""
    prompt = model.embed(Prepared(SHORT))
    snapshot = take_snapshot(model.make_state(), 0)
    assert snapshot.nbytes == 0
    copy = Track(model, prompt, snapshot.restore(model.make_state()))
    assert moved(copy.finish(), Track(model, prompt, model.make_state()).finish()) < BOUND


def test_size_is_that_of_the_arrays(model: Model) -> None:
    """Counted from shapes, and no more than a row's visible state. B56."""
    track = Track.start(model, prompt_of(model))
    snapshot = take_snapshot(track.state, track.position)
    found = arrays(snapshot.layers)
    assert snapshot.nbytes == sum(np.array(array).nbytes for array in found) > 0
    for layer in snapshot.layers:
        if layer.kind == "window":
            assert all(array is not None and array.shape[2] <= WINDOW for array in layer.arrays)


@dataclass
class Alone:
    """A prompt, its state after it, and what follows when nobody else is there."""

    prompt: Prompt
    state: Snapshot
    logits: np.ndarray


@pytest.fixture(scope="module")
def alone(model: Model) -> list[Alone]:
    """Prompts of three lengths."""
    tracks = [Track.start(model, model.embed(Prepared(ids))) for ids in (LONG, SHORT, OTHER)]
    states = [take_snapshot(track.state, track.position) for track in tracks]
    return [
        Alone(track.prompt, state, track.decode(REPLY))
        for track, state in zip(tracks, states, strict=True)
    ]


@pytest.mark.parametrize(("size", "steps"), often([(2, 0), (3, WINDOW)], (3, WINDOW)))
def test_a_row_returns_from_a_batch_as_it_was(
    model: Model, alone: list[Alone], size: int, steps: int
) -> None:
    """Merge or join, decode together, leave, and go on alone. B1."""
    for row in range(size):
        rows = BatchState(model.make_state)
        for it in alone[:size]:
            rows.join(it.state.restore(model.make_state()), len(it.prompt.ids))
        for at, logits in enumerate(run_together(model, rows, REPLY[:steps])):
            assert moved(logits, np.stack([it.logits[at] for it in alone[:size]])) < BOUND
        rows.check_integrity()
        left = [row]
        if size == 3:
            left = sorted({row, (row + 1) % 3})
            rows.leave(left)
            rows.check_integrity()
        rows.leave([left.index(row)] if size == 3 else left)
        rows.check_integrity()
        track = Track(model, alone[row].prompt, rows.layers, rows.positions[0])
        assert moved(track.decode(REPLY[steps:]), alone[row].logits[steps:]) < BOUND


def run_together(model: Model, rows: BatchState, tokens: Sequence[int]) -> np.ndarray:
    """Every row runs the same tokens; logits [steps, rows, VOCAB]."""
    found = []
    for token in tokens:
        inputs = mx.array([[token]] * len(rows))
        found.append(model.forward(inputs, rows.positions, rows.layers)[:, -1])
        rows.advance([1] * len(rows))
    return np.array(mx.stack(found)) if found else np.zeros((0, len(rows), VOCAB))
