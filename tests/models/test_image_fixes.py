"""Images that the library would lose or misplace reach the model (B7).

Parity holds each family to one reference. Here is what that cannot show: several images where the
library looks at one, and images that it would drop.
"""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import gemma3n as mlx_lm_gemma3n
from PIL import Image

from bushel.core import Prepared, RequestError
from bushel.models import load
from bushel.models.vision.vision_model import VisionModel
from tests.families import checkpoint_dir
from tests.families.family import EVERY
from tests.families.images import LARGE, SMALL, picture
from tests.families.vision import VISION

from .altered_checkpoints import copied, set_json
from .vision_prompts import loaded, prompt

BOUND, FAR = 1e-5, 1e-2
ONE, TWO = picture(SMALL, 1), picture(LARGE, 2)
# Families of which the library sees one image, or misplaces all but the first.
SEVERAL = ("fastvlm", "granite4_vision", "llava_next")
SEVERAL += ("deepseekocr", "deepseekocr_2") if EVERY else ()


def seen(model: VisionModel, *said: str | Image.Image) -> list[np.ndarray]:
    """What each image of a prompt became, with all that is added to it in later layers."""
    found = model.embed(prompt(model, *said))
    arrays = [it for it in (found.embeds, *found.extras.values()) if isinstance(it, mx.array)]
    return [
        np.concatenate([np.array(it[:, low:high].astype(mx.float32)).ravel() for it in arrays])
        for low, high in found.spans
    ]


@pytest.mark.parametrize("name", SEVERAL)
def test_every_image_of_a_prompt_is_seen_as_it_is_alone(name: str) -> None:
    """A second picture is neither lost nor shown in the first one's place. B7."""
    model = loaded(name)
    together = seen(model, "Of ", ONE, " and ", TWO, ", which?")
    alone = [seen(model, "See ", image, " there")[0] for image in (ONE, TWO)]
    for one, other in zip(together, alone, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() < BOUND * np.abs(other).max()
    swapped = seen(model, "Of ", TWO, " and ", ONE, ", which?")
    assert np.abs(swapped[0] - together[1]).max() < BOUND * np.abs(together[1]).max()
    assert np.abs(seen(model, picture(SMALL, 3))[0] - alone[0]).max() > FAR


def test_an_image_without_a_place_is_refused() -> None:
    """It is named, and not left out in silence. B7a."""
    host = loaded("fastvlm").host
    with pytest.raises(RequestError, match="places for 1 of 2 images") as caught:
        host.prepare(f"See {VISION['fastvlm'].placeholder}.", [ONE, TWO])
    assert caught.value.param == "messages"


def test_gemma3n_reads_a_prompt_as_it_reads_a_reply() -> None:
    """Its tokens are embedded alike, with and without a picture beside them. B7."""
    model = loaded("gemma3n_vl")
    prepared = prompt(model, "See ", ONE, " there")
    body = model.network.language_model.model
    looked_up = np.array(body.embed_tokens(mx.array([prepared.ids])) * body.hidden_size**0.5)
    [(low, high)] = model.spans(prepared)
    places = [at for at in range(len(prepared.ids)) if not low <= at < high]
    for embedded in (
        model.embed(prepared).embeds,
        model.embed_text_only(prepared)["inputs_embeds"],
    ):
        assert embedded is not None
        assert np.abs(np.array(embedded) - looked_up)[:, places].max() < BOUND
    features = np.array(model.embed(prepared).embeds)[:, low:high]
    assert np.abs(features - looked_up[:, low:high]).max() > FAR


def test_gemma3n_reads_a_text_as_mlx_lm_does() -> None:
    """Whose code for the same weights has no part in this. B7."""
    model, folder = loaded("gemma3n_vl"), checkpoint_dir("gemma3n_vl")
    config = json.loads((folder / "config.json").read_text())
    theirs = mlx_lm_gemma3n.Model(mlx_lm_gemma3n.ModelArgs.from_dict(config))
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    named = {
        name.replace("language_model.model.", "model.language_model."): weight
        for name, weight in weights.items()
        if name.startswith("language_model.")
    }
    theirs.load_weights(list(named.items()))
    ids = list(range(40, 90))
    state = model.make_state()
    model.prefill(model.embed(Prepared(tuple(ids))), 0, len(ids) - 1, state)
    ours = model.forward(mx.array([ids[-1:]]), [len(ids) - 1], state)[0, -1]
    other = theirs(mx.array([ids]), cache=theirs.make_cache())[0, -1]
    assert np.abs(np.array(ours) - np.array(other)).max() < 1e-4


def test_llama4_sees_the_whole_image_after_its_tiles() -> None:
    """The prompt has places for both, as many as there are features. B7."""
    model = loaded("llama4_vl")
    wide = picture((112, 56), 4)
    prepared = prompt(model, "See ", wide, " there")
    tiles = prepared.tensors["pixel_values"]
    assert len(tiles) == 3
    tokens = sum(high - low for low, high in model.spans(prepared))
    assert tokens == 4 * len(tiles)
    [square] = prompt(model, wide.resize((56, 56), Image.Resampling.BICUBIC)).tensors[
        "pixel_values"
    ]
    assert np.array_equal(tiles[-1], square)


def test_fastvlm_sees_as_its_makers_publish_it(tmp_path: Path) -> None:
    """Its config names a tower and tells nothing of it. B7."""
    folder = copied("fastvlm", tmp_path)
    set_json(folder / "config.json", mm_vision_tower="mobileclip_l_1024", vision_config=None)
    model = load(str(folder))
    assert isinstance(model, VisionModel)
    place = VISION["fastvlm"].placeholder
    said = f"See {place} there"
    found = model.embed(model.host.prepare(said, [ONE]))
    [same] = seen(loaded("fastvlm"), "See ", ONE, " there")
    [(low, high)] = found.spans
    assert found.embeds is not None
    assert np.abs(np.array(found.embeds[:, low:high]).ravel() - same).max() == 0
