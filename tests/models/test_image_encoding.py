"""Every image of a prompt is encoded by itself (B7): together, glm4v mixes all after the second."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.generate.ar import generate_step
from PIL import Image

from bushel import LLM, SamplingParams
from bushel.core import RequestError
from bushel.models.vision.vision_model import VisionModel
from tests.depth import often
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.library_vision_loop import forget_positions, prepare, solo_vision
from tests.families.vision import VISION
from tests.families.vision_glm import GLM
from tests.families.vision_grid import GRID

BOUND, FAR = 1e-4, 1e-2
TOKENS = 6


# One of each class of towers, and of each that is mended.
HARD = ("qwen2_vl", "qwen2_5_vl", "qwen3_5_vl", "qwen3_omni_moe", "qwen4_exp", "glm4v")


@pytest.fixture(scope="module", params=often((it.name for it in (*GRID, *GLM)), *HARD[::2]))
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with LLM(str(checkpoint_dir(request.param))) as found:
        yield found


def parts(llm: LLM) -> VisionModel:
    assert llm._engine is not None
    assert isinstance(llm._engine.model, VisionModel)
    return llm._engine.model


def pictures(count: int) -> list[Image.Image]:
    sizes = (SMALL, LARGE, MEDIUM)
    return [picture(sizes[at % len(sizes)], at) for at in range(count)]


def text(llm: LLM, count: int) -> str:
    place = VISION[parts(llm).name].placeholder
    return f"<|im_start|>user\n{place * count}Compare them.<|im_end|>\n<|im_start|>assistant\n"


def ask(llm: LLM, images: list[Image.Image]) -> tuple[list[int], np.ndarray]:
    content = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    request = {
        "messages": [
            {"role": "user", "content": [*content, {"type": "text", "text": "Compare them."}]}
        ]
    }
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=VOCAB)
    [output] = llm.generate([request], params)
    found = np.empty((TOKENS, VOCAB))
    for at, entry in enumerate(output.choices[0].logprobs or []):
        ids, values = zip(*entry.top, strict=True)
        found[at, list(ids)] = values
    return output.token_ids, found


def alone(network: Any, processor: Any, prompt: str, images: list[Image.Image]) -> np.ndarray:
    """The library's own loop, over the features its tower gives for each image alone."""
    inputs = prepare(network, processor, prompt, images)
    ids, pixels, grids = (inputs[key] for key in ("input_ids", "pixel_values", "image_grid_thw"))
    borders = np.cumsum([0, *np.asarray(grids).prod(-1)]).tolist()
    features = mx.concatenate(
        [
            network.vision_tower(pixels[low:high], grids[at : at + 1])
            for at, (low, high) in enumerate(pairwise(borders))
        ]
    )
    forget_positions(network)
    steps = generate_step(
        ids,
        network,
        pixels,
        inputs["attention_mask"],
        image_grid_thw=grids,
        cached_image_features=features,
        max_tokens=TOKENS,
        temperature=0.0,
    )
    return np.stack([np.array(row) for _, row in steps])


def test_two_images_are_seen_as_the_library_sees_them_together(llm: LLM) -> None:
    model = parts(llm)
    images = pictures(2)
    tokens, found = ask(llm, images)
    solo = solo_vision(model.network, model.host.processor, text(llm, 2), images, TOKENS)
    assert tokens == solo.tokens
    assert np.abs(found - solo.logprobs).max() < BOUND


@pytest.mark.parametrize("count", often([4, 5], 5))
def test_many_images_do_not_see_one_another(llm: LLM, count: int) -> None:
    """Qwen's towers keep them apart by themselves."""
    model, images = parts(llm), pictures(count)
    said = model.network, model.host.processor, text(llm, count), images
    own = model.name in [it.name for it in GLM]
    solo = alone(*said) if own else solo_vision(*said, TOKENS).logprobs
    assert np.abs(ask(llm, images)[1] - solo).max() < BOUND


def test_embeddings_that_do_not_fit_their_prompt_are_refused(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As llava_next's: its images take more places than its prompt has for them."""
    model = parts(llm)
    embed = model.encode_images

    def longer(*said: Any) -> dict[str, Any]:
        found = embed(*said)
        return found | {"inputs_embeds": mx.concatenate([found["inputs_embeds"]] * 2, axis=1)}

    monkeypatch.setattr(model, "encode_images", longer)
    with pytest.raises(RequestError, match="not served"):
        model.embed(model.host.prepare(text(llm, 1), pictures(1)))


def test_without_that_glm4v_mixes_the_fourth_image_with_the_third() -> None:
    """The control: what the library makes of four images together is something else."""
    with LLM(str(checkpoint_dir("glm4v"))) as llm:
        model, images, prompt = parts(llm), pictures(4), text(llm, 4)
        together = solo_vision(model.network, model.host.processor, prompt, images, 1).logprobs[0]
        apart = alone(model.network, model.host.processor, prompt, images)[0]
    assert np.abs(together - apart).max() > FAR
