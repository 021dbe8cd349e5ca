"""Rows of a network without a checkpoint, decoded together, beside its library's loop for each."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_vlm.generate.ar import generate_step

from bushel.cache import BatchState
from bushel.core import Prepared
from bushel.models.text_model import TextModel
from bushel.models.vision.vision_model import VisionModel
from tests.families.checkpoint import VOCAB, randomise
from tests.families.library_loop import solo_text
from tests.families.library_vision_loop import forget_positions

BOUND = 1e-4
Said = tuple[list[int], np.ndarray]  # tokens, and the log-probabilities of each


def model_of(
    library: Any, config: dict[str, Any], change: Callable[[Any], None] = lambda _: None
) -> VisionModel:
    """change: what is done to the network before it has weights."""
    network = library.Model(library.ModelConfig.from_dict(dict(config)))
    change(network)
    return VisionModel(*_parts(network, config), None, None)  # type: ignore[arg-type]


def text_model_of(library: Any, config: dict[str, Any], change: Callable[[Any], None]) -> TextModel:
    network = library.Model(library.ModelArgs.from_dict(dict(config)))
    change(network)
    return TextModel(*_parts(network, config), None)  # type: ignore[arg-type]


def _parts(network: Any, config: dict[str, Any]) -> tuple[Any, Any]:
    """For a model of random weights that can be shown prompts, but no conversations."""
    randomise(network, seed=1)
    network.eval()
    path = SimpleNamespace(name=config["model_type"])
    unknown = dict.fromkeys(("context", "head_dim", "pooling"))
    checkpoint = SimpleNamespace(
        path=path, config=config, generation={}, heads=1, context_borders=(), **unknown
    )
    return checkpoint, network


def words(seed: int, count: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(100, VOCAB, count).tolist())


def _solo(model: VisionModel | TextModel, prepared: Prepared, count: int) -> Said:
    network = model.network
    if isinstance(model, TextModel):
        said = solo_text(network, prepared.ids, count)
        return said.tokens, said.logprobs
    forget_positions(network)
    ids = mx.array([prepared.ids])
    tensors = {key: mx.array(value) for key, value in prepared.tensors.items()}
    pixels = tensors.pop("pixel_values", None)
    steps = generate_step(
        ids, network, pixels, mx.ones_like(ids), max_tokens=count, temperature=0.0, **tensors
    )
    tokens, logprobs = zip(*((int(token), np.array(row)) for token, row in steps), strict=True)
    return list(tokens), np.stack(logprobs)


def steady(model: VisionModel | TextModel, length: int, count: int) -> Prepared:
    """So many words whose reply does not hang on rounding: where two tokens are as good to look at,
    sums that are made in another order choose the other, and all that follows is another.
    """
    network, weights = model.network, model.network.parameters()
    for seed in range(length, length + 100):
        prepared = Prepared(words(seed, length))
        expected = _solo(model, prepared, count)
        moved = []
        for chance in range(4):
            mx.random.seed(chance)
            network.update(tree_map(_moved, weights))
            tokens, logprobs = _solo(model, prepared, count)
            moved.append(tokens == expected[0] and _apart(logprobs, expected[1]) < 1e-3)
            network.update(weights)
        if all(moved):
            return prepared
    raise AssertionError("every reply hangs on rounding")


def _moved(weight: Any) -> Any:
    """By some units in the last place."""
    if not isinstance(weight, mx.array) or weight.dtype != mx.float32:
        return weight
    return weight * (1 + 3e-7 * mx.random.normal(weight.shape))


class Row:
    """One prompt, which runs by itself in pieces."""

    def __init__(self, model: VisionModel | TextModel, prepared: Prepared, piece: int):
        self.model, self.prompt, self.piece = model, model.embed(prepared), piece
        self.state, self.done = model.make_state(), 0

    def step(self) -> None:
        last = len(self.prompt.ids) - 1
        if self.done < last:
            end = self.prompt.cut(self.done, self.done + self.piece, last)
            mx.eval(self.model.prefill(self.prompt, self.done, end, self.state))
            self.done = end


def together(rows: Sequence[Row], spoken: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """What each row would say next, in a batch: the second half of its rows joins later, and its
    first row leaves early, is kept, and comes back.
    """
    model, found = rows[0].model, [[] for _ in rows]  # type: ignore[var-annotated]
    batch, live = BatchState(model.make_state), []  # type: ignore[var-annotated]
    count = len(spoken[0])

    def join(at: int) -> None:
        batch.join(rows[at].state, rows[at].done)
        live.append(at)

    def run(steps: int) -> None:
        for _ in range(steps):
            said = [[rows[at].prompt.ids[-1], *spoken[at]][len(found[at])] for at in live]
            logits = model.forward(mx.array(said)[:, None], batch.positions, batch.layers)[:, -1]
            for at, row in zip(live, logits - mx.logsumexp(logits, -1, keepdims=True), strict=True):
                found[at].append(np.array(row))
            batch.advance([1] * len(live))
            batch.check_integrity()

    half = len(rows) // 2
    for at in range(half):
        join(at)
    run(2)
    for at in range(half, len(rows)):
        join(at)
    run(2)
    kept, at = batch.snapshot(0), live.pop(0)
    batch.leave(range(1, len(rows)))
    run(count - 4)
    rows[at].state, rows[at].done = kept.restore(model.make_state()), kept.position
    join(at)
    while len(found[at]) < count:
        ended = [row for row in range(len(live)) if len(found[live[row]]) == count]
        batch.leave([row for row in range(len(live)) if row not in ended])
        live = [row for row in live if len(found[row]) < count]
        run(1)
    return [np.stack(said) for said in found]


def worst(
    model: VisionModel | TextModel, prepared: Sequence[Prepared], piece: int, count: int
) -> float:
    """The largest difference, of prompts that are all embedded before any runs, and run in turn."""
    expected = [_solo(model, each, count) for each in prepared]
    rows = [Row(model, each, piece) for each in prepared]
    for _ in range(max(len(each.ids) for each in prepared)):
        for row in rows:
            row.step()
    said = together(rows, [tokens for tokens, _ in expected])
    pairs = zip(said, expected, strict=True)
    return max(_apart(row, logprobs) for row, (_, logprobs) in pairs)


def _apart(one: np.ndarray, two: np.ndarray) -> float:
    """Tokens that a model never says are as far apart as if they had the least number there is."""
    least = np.finfo(np.float32).min
    return float(np.abs(np.maximum(one, least) - np.maximum(two, least)).max())
