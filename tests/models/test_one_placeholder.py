"""Images of families that the library has one mark for, or one place: counted, or refused (B7a)."""

from typing import Any

import mlx.core as mx
import mlx_vlm
import numpy as np
import pytest

from bushel.core import RequestError
from bushel.models import load
from bushel.models.load import open_host
from bushel.models.vision.one_placeholder import Form, gathered, spread
from tests.families import checkpoint_dir
from tests.families.images import LARGE, SMALL, picture
from tests.families.library_vision_loop import prepare
from tests.families.vision import VISION

COUNTED = Form(mark=-200, counts=lambda config, tensors: tensors["counts"])
REPEATED = Form(mark=-1)


@pytest.mark.parametrize(
    ("form", "library", "prompt", "bounds"),
    [
        (COUNTED, [7, -200, 8, -200], [7, 0, 0, 0, 8, 0, 0], [[1, 4], [5, 7]]),
        (COUNTED, [-200, -200, 9], [0, 0, 0, 0, 0, 9], [[0, 3], [3, 5]]),
        (REPEATED, [7, -1, -1, 8, -1, 9], [7, 0, 0, 8, 0, 9], [[1, 3], [4, 5]]),
    ],
)
def test_a_mark_takes_as_many_places_as_its_image_has_rows(
    form: Form, library: list[int], prompt: list[int], bounds: list[list[int]]
) -> None:
    """And the network gets back exactly what its processor wrote."""
    ids, found = spread(form, None, library, {"counts": [3, 2]})
    assert (ids, found.tolist()) == (prompt, bounds)
    assert gathered(form, ids, found) == library


def test_images_that_touch_are_told_apart() -> None:
    """phi3_v numbers its images: two without a word between them are two."""
    ids, bounds = spread(REPEATED, None, [-1, -1, -2, -2, -2, 5], {})
    assert ids == [0, 0, 0, 0, 0, 5]
    assert bounds.tolist() == [[0, 2], [2, 5]]


def test_the_usage_counts_every_row_of_an_image() -> None:
    """A picture of 48 patches is 48 tokens of its prompt, though the library writes one id."""
    host = open_host(str(checkpoint_dir("phi4mm")))
    text = "<|im_start|>user\n<|image_1|>What is it?<|im_end|>\n"
    small, large = (host.prepare(text, [picture(size)]) for size in (SMALL, LARGE))
    tokens = VISION["phi4mm"].image_tokens
    assert len(large.ids) - len(small.ids) == tokens[2] - tokens[0]
    assert [image.end - image.start for image in (*small.media, *large.media)] == [
        tokens[0],
        tokens[2],
    ]


@pytest.mark.parametrize("name", ["molmo", "paligemma", "multi_modality", "moondream3"])
def test_a_second_image_is_refused_where_it_would_be_lost(name: str) -> None:
    """By name, as the client's error. B7a."""
    host = open_host(str(checkpoint_dir(name)))
    place = VISION[name].placeholder
    text = f"<|im_start|>user\n{place}One, {place}two.<|im_end|>\n"
    with pytest.raises(RequestError, match=f"{name} .*(one image|1 places for 2 images)") as caught:
        host.prepare(text, [picture(SMALL, 1), picture(LARGE, 2)])
    assert caught.value.param == "messages"
    assert len(host.prepare(text.replace(place, "", 1), [picture(SMALL, 1)]).media) == 1


def test_paligemma_sees_a_picture_wherever_it_stands() -> None:
    """At the start as the library does; further on as there, where the library loses rows of it."""
    path = str(checkpoint_dir("paligemma"))
    (library, processor), model = mlx_vlm.load(path), load(path)

    def rows(network: Any, before: str) -> np.ndarray:
        inputs = prepare(network, processor, f"{before}<image>What?", [picture(SMALL)])
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        found = network.get_input_embeddings(ids, inputs["pixel_values"], mask=mask).inputs_embeds
        return np.array(found[0])[np.array(ids[0]) == VISION["paligemma"].image_token_id]

    first = rows(library, "")
    assert np.array_equal(rows(model.network, ""), first)
    assert np.allclose(rows(model.network, "Here it is, "), first, atol=1e-6)
    assert not np.allclose(rows(library, "Here it is, "), first, atol=1e-2)


def test_mistral_large3_reads_text_as_the_library_does() -> None:
    """Its mend is for pictures: the embeddings of a text's ids give what the ids give."""
    model = load(str(checkpoint_dir("mistral_large3")))
    language = model.network.language_model
    ids = mx.array([[7, 300, 12, 45, 9, 101]])
    by_ids = language(ids, cache=model.make_state()).logits
    embeds = language.model.embed_tokens(ids)
    by_embeddings = language(ids, inputs_embeds=embeds, cache=model.make_state()).logits
    assert np.array_equal(np.array(by_ids), np.array(by_embeddings))
    other = language(ids, inputs_embeds=embeds[:, ::-1], cache=model.make_state()).logits
    assert float(mx.abs(other - by_ids).max()) > 1e-2
