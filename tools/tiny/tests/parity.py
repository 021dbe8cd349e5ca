"""Logits of random weights here and in mlx-vlm and mlx-lm, which need not share a Python.

python parity.py write FOLDER     with PyTorch: checkpoint, inputs and logits
python parity.py read FOLDER      with mlx-vlm: the same logits, within 1e-3
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))
TEXT, BEFORE, AFTER, GRID = 70, 11, 30, (8, 10)


def write(folder: Path) -> None:
    import torch

    from tools.tiny.config import IMAGE_PAD, SPECIAL, Sizes
    from tools.tiny.export import write_checkpoint
    from tools.tiny.model.whole import Rows, Tiny

    torch.manual_seed(0)
    sizes, length, tokens = Sizes(), 256, GRID[0] * GRID[1] // 4
    model = Tiny(sizes).eval()
    for name, weight in model.named_parameters():
        if "norm" in name or (name.endswith("bias") and "dt_bias" not in name):
            weight.data += 0.1 * torch.randn_like(weight)
        if "embed" in name:
            weight.data *= 20
    rng = np.random.default_rng(0)
    text = rng.integers(20, sizes.vocab, TEXT)
    picture = np.full(tokens, SPECIAL.index(IMAGE_PAD))
    start, end = SPECIAL.index("<|vision_start|>"), SPECIAL.index("<|vision_end|>")
    words = rng.integers(20, sizes.vocab, BEFORE - 1 + AFTER)
    mixed = np.concatenate([words[: BEFORE - 1], [start], picture, [end], words[BEFORE - 1 :]])
    places = np.tile(np.arange(len(mixed)), (3, 1))
    cell, across = np.arange(tokens), GRID[1] // 2
    for axis, step in enumerate((0 * cell, cell // across, cell % across)):
        places[axis, BEFORE : BEFORE + tokens] = BEFORE + step
    places[:, BEFORE + tokens :] += max(GRID) // 2 - tokens
    # Both in one row, and the picture in the second of two slots.
    both, rest = TEXT + len(mixed), length - TEXT - len(mixed)
    target = np.full((2, sizes.image_tokens), length)
    target[1, :tokens] = TEXT + BEFORE + cell
    pixels = rng.integers(0, 256, (2, sizes.patches, 768)).astype(np.uint8)
    position = np.concatenate(
        [np.tile(np.arange(TEXT), (3, 1)), places, np.zeros((3, rest), int)], 1
    )
    place = np.concatenate([np.arange(TEXT), np.arange(len(mixed)), np.zeros(rest, int)])
    rows = Rows(
        ids=torch.tensor(np.concatenate([text, mixed, np.zeros(rest, int)])[None]),
        document=torch.tensor([[1] * TEXT + [2] * len(mixed) + [0] * rest]),
        place=torch.tensor(place[None]),
        positions=torch.tensor(position[:, None]),
        trained=torch.ones(1, length),
        pixels=torch.tensor(pixels),
        grid=torch.tensor([[12, 12], GRID]),
        cells=torch.zeros(2, sizes.image_tokens, 2),
        target=torch.tensor(target),
    )
    with torch.no_grad():
        out, ahead, _ = model.hidden(rows)
        logits, later = model.logits(out)[0].numpy(), model.logits(ahead)[0].numpy()
    write_checkpoint(folder, sizes, model.state_dict(), torch.float32)
    np.savez(
        folder / "parity.npz", text=text, mixed=mixed, places=places, text_logits=logits[:TEXT],
        mixed_logits=logits[TEXT:both], later=later[:TEXT], hidden=out[0, :TEXT].numpy(),
        pixels=pixels[1, : GRID[0] * GRID[1]],
    )  # fmt: skip


def read(folder: Path) -> None:
    import mlx.core as mx
    from mlx_lm.utils import load_model as load_text
    from mlx_vlm.speculative.drafters import load_drafter
    from mlx_vlm.utils import load_model

    saved = np.load(folder / "parity.npz")
    model = load_model(folder)
    found = {}

    def compare(name: str, logits: mx.array, wanted: np.ndarray) -> None:
        found[name] = float(np.abs(np.array(logits) - wanted).max())

    text = mx.array(saved["text"])[None]
    compare("text", model.language_model(text).logits[0], saved["text_logits"])
    compare("mlx-lm", load_text(folder)[0](text)[0], saved["text_logits"])
    pixels = saved["pixels"].reshape(-1, 3, 1, 256) / 127.5 - 1
    pixels = np.repeat(pixels, 2, axis=2).reshape(len(pixels), -1).astype(np.float32)
    mixed = mx.array(saved["mixed"])[None]
    features = model.get_input_embeddings(
        mixed, mx.array(pixels), image_grid_thw=mx.array([[1, *GRID]])
    )
    assert np.array_equal(np.array(features.position_ids)[:, 0], saved["places"])
    where = {"inputs_embeds": features.inputs_embeds, "position_ids": features.position_ids}
    compare("image", model.language_model(mixed, **where).logits[0], saved["mixed_logits"])
    drafter, _ = load_drafter(str(folder))
    drafter.reset(model)
    ahead = drafter._forward_tokens(text[:, 1:], mx.array(saved["hidden"])[None, :-1], mx.int32)
    later = model.language_model.model.embed_tokens.as_linear(ahead)
    compare("mtp", later[0], saved["later"][:-1])
    print(found)
    assert max(found.values()) < 1e-3


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]))
