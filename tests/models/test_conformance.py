"""What Bushel takes for granted in mlx-lm and mlx-vlm, one named test for each thing.

A release that changes one of them fails here, by name, before it fails as a wrong token.
"""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models.base as lm_base
import mlx_lm.models.cache as lm_cache
import mlx_lm.utils as lm_utils
import mlx_vlm
import mlx_vlm.models.base as vlm_base
import mlx_vlm.models.cache as vlm_cache
import mlx_vlm.utils as vlm_utils
import numpy as np
import pytest

from tests.depth import one_in
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.families.family import EVERY
from tests.families.images import MEDIUM, picture
from tests.families.text import TEXT, WINDOW
from tests.families.vision import VISION
from tests.llm.request_builders import ids
from tests.parity.scenarios import tried

pytestmark = pytest.mark.conformance


# -- both --------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [lm_base, vlm_base], ids=["mlx_lm", "mlx_vlm"])
def test_attention_looks_up_the_function_of_mlx_when_it_is_called(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads pages takes that function's name (`cache/paged/sdpa.py`)."""
    own, asked = mx.fast.scaled_dot_product_attention, []

    def seen(*arguments: Any, **settings: Any) -> mx.array:
        asked.append(settings.keys())
        return own(*arguments, **settings)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", seen)
    keys = mx.ones((1, 2, 3, 16))
    library.scaled_dot_product_attention(keys, keys, keys, cache=None, scale=1.0, mask=None)
    assert len(asked) == 1
    assert asked[0] <= {"scale", "mask", "sinks"}


# -- mlx-lm -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["llama", "llama_sliding", "qwen3_5", "falcon_h1"])
def text_model(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    network, _ = lm_utils.load_model(
        checkpoint_dir(request.param), lazy=True, trust_remote_code=False
    )
    return request.param, network


def test_lm_make_prompt_cache_gives_one_row_of_known_kinds(
    text_model: tuple[str, nn.Module],
) -> None:
    name, network = text_model
    classes = {type(cache).__name__ for cache in lm_cache.make_prompt_cache(network)}
    by_kind = {
        "kv": "KVCache",
        "window": "RotatingKVCache",
        "recurrent": "ArraysCache",
        "composite": "CacheList",
    }
    assert classes == {by_kind[kind] for kind in TEXT[name].kinds}


def test_lm_models_return_logits_and_fill_the_cache_they_are_given(
    text_model: tuple[str, nn.Module],
) -> None:
    _, network = text_model
    whole = network(mx.array([ids(30)]))
    caches = lm_cache.make_prompt_cache(network)
    network(mx.array([ids(30)[:20]]), cache=caches)
    rest = network(mx.array([ids(30)[20:]]), cache=caches)
    assert isinstance(whole, mx.array)
    assert whole.shape == (1, 30, VOCAB)
    assert rest.shape == (1, 10, VOCAB)
    assert float(mx.abs(whole[:, 20:] - rest).max()) < 1e-3


def test_lm_sliding_windows_have_the_size_of_the_config() -> None:
    network, _ = lm_utils.load_model(checkpoint_dir("llama_sliding"), lazy=True)
    sizes = {getattr(it, "max_size", None) for it in lm_cache.make_prompt_cache(network)}
    assert sizes == {None, WINDOW}


def test_lm_load_model_is_lazy_and_asks_for_trust() -> None:
    parameters = inspect.signature(lm_utils.load_model).parameters
    assert parameters["trust_remote_code"].default is False
    mx.synchronize()
    before = mx.get_active_memory()
    network, config = lm_utils.load_model(checkpoint_dir("llama"), lazy=True)
    assert config["model_type"] == "llama"
    assert mx.get_active_memory() - before < 64 * 1024
    mx.eval(network.parameters())
    assert mx.get_active_memory() - before > 256 * 1024


def test_lm_knows_other_names_of_its_models() -> None:
    assert lm_utils.MODEL_REMAPPING["mistral"] == "llama"
    for module in set(lm_utils.MODEL_REMAPPING.values()):
        assert (Path(lm_cache.__file__).parent / f"{module}.py").exists(), module


@pytest.mark.long
def test_importing_lm_lowers_the_limit_of_open_files() -> None:
    """When this fails, the guard around the import in `models/load.py` can go."""
    code = (
        "import resource\n"
        "calls = []\n"
        "resource.setrlimit = lambda *call: calls.append(call)\n"
        "import mlx_lm.utils\n"
        "assert [call[0] for call in calls] == [resource.RLIMIT_NOFILE], calls\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_mlx_modules_that_pin_some_weights_say_so_by_a_predicate() -> None:
    """Casting to a narrow format leaves out what `cast_predicate` keeps."""
    network, _ = lm_utils.load_model(checkpoint_dir("qwen3_5"), lazy=True)
    owner: Any = getattr(network, "language_model", network)
    keep = getattr(network, "cast_predicate", getattr(owner, "cast_predicate", None))
    assert keep is not None
    assert not keep("model.layers.0.linear_attn.A_log")
    assert keep("model.layers.0.mlp.down_proj.weight")


# -- mlx-vlm ----------------------------------------------------------------------------------

Loaded = tuple[str, Any, Any]


@pytest.fixture(scope="module", params=["qwen3_5_vl", "qwen3_vl", "gemma4_vl", "smolvlm"])
def vision_model(request: pytest.FixtureRequest) -> Loaded:
    path = str(checkpoint_dir(request.param))
    network, processor = mlx_vlm.load(path, lazy=True, trust_remote_code=False)
    return request.param, network, processor


def prepared(loaded: Loaded) -> dict[str, Any]:
    name, network, processor = loaded
    return vlm_utils.prepare_inputs(
        processor,
        images=[picture(MEDIUM)],
        videos=None,
        prompts=f"See {VISION[name].placeholder} there",
        image_token_index=getattr(network.config, "image_token_index", None),
        add_special_tokens=False,
    )


def embedded(loaded: Loaded) -> tuple[mx.array, dict[str, Any]]:
    inputs = prepared(loaded)
    tokens = mx.array(inputs.pop("input_ids"))
    inputs.pop("attention_mask", None)
    pixels = inputs.pop("pixel_values")
    features = loaded[1].get_input_embeddings(tokens, pixels, mask=mx.ones_like(tokens), **inputs)
    return tokens, features.to_dict()


def test_vlm_load_gives_a_network_and_a_processor_with_a_tokenizer(vision_model: Loaded) -> None:
    _, network, processor = vision_model
    tokenizer: Any = getattr(processor, "tokenizer", processor)
    assert tokenizer.encode("a")
    assert hasattr(network, "language_model")
    assert hasattr(network, "config")


def test_vlm_prepare_inputs_expands_the_placeholder(vision_model: Loaded) -> None:
    family = VISION[vision_model[0]]
    inputs = prepared(vision_model)
    assert {"input_ids", "pixel_values"} <= inputs.keys()
    found = np.asarray(inputs["input_ids"]).reshape(-1).tolist()
    assert found.count(family.image_token_id) == family.image_tokens[1]


def test_vlm_tells_how_a_processor_wants_its_videos() -> None:
    """`Preparer.sampling`; of decoded frames the metadata that came with them is believed."""
    _, processor = mlx_vlm.load(str(checkpoint_dir("qwen3_vl")), lazy=True)
    wish = vlm_utils.resolve_video_sampling(processor, {})
    assert (wish.fps, wish.min_frames, wish.max_frames, wish.frame_factor) == (2.0, 4, 768, 2)
    frames = np.stack([np.asarray(picture(MEDIUM, at)) for at in range(4)]).transpose(0, 3, 1, 2)
    told = {"total_num_frames": 400, "fps": 10.0, "frames_indices": [0, 100, 200, 300]}
    inputs = vlm_utils.prepare_inputs(
        processor,
        videos=[frames],
        video_metadata=[told],
        prompts="See <|vision_start|><|video_pad|><|vision_end|> there",
    )
    written = processor.tokenizer.decode(inputs["input_ids"][0].tolist())
    assert "<5.0 seconds>" in written
    assert "<25.0 seconds>" in written


def test_vlm_counts_frames_of_qwen2_5_vl_and_not_seconds() -> None:
    """`vision.video_time` does; once the library takes seconds, they would count twice."""
    network, _ = mlx_vlm.load(str(checkpoint_dir("qwen2_5_vl")), lazy=True)
    config, index = network.config, network.language_model.get_rope_index
    start, token = config.vision_start_token_id, config.video_token_id
    ids = mx.array([[start, *[token] * 12, start]])
    positions, _ = index(ids, None, mx.array([[3, 4, 4]]))
    assert positions[0, 0].tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
    assert "second_per_grid_ts" not in inspect.signature(index).parameters


def test_vlm_configs_name_their_image_token(vision_model: Loaded) -> None:
    name, network, _ = vision_model
    names = ("image_token_id", "image_token_index")
    assert VISION[name].image_token_id in [getattr(network.config, it, None) for it in names]


def test_vlm_embeddings_come_with_the_keys_that_are_read(vision_model: Loaded) -> None:
    """Extras by column, deepstack, positions, pictures, and what marks families not served yet."""
    tokens, found = embedded(vision_model)
    assert found["inputs_embeds"].shape[:2] == tokens.shape
    known = {
        "inputs_embeds",
        "visual_pos_masks",
        "deepstack_visual_embeds",
        "per_layer_inputs",
        "position_ids",
        "rope_deltas",
        "cross_attention_states",
        "cross_attention_mask",
        "full_text_row_masked_out_mask",
        "decoder_inputs_embeds",
        "pos_hw",
        # Not read: whole-prompt masks, of no use to a chunk.
        "attention_mask_4d",
        "attention_mask",
    }
    assert found.keys() == known


def test_vlm_deepstack_features_are_a_list_in_order_of_the_image_tokens() -> None:
    network, processor = mlx_vlm.load(str(checkpoint_dir("qwen3_vl")), lazy=True)
    _, found = embedded(("qwen3_vl", network, processor))
    count = VISION["qwen3_vl"].image_tokens[1]
    assert [len(layer) for layer in found["deepstack_visual_embeds"]] == [count] * 2
    assert int(found["visual_pos_masks"].sum()) == count


def test_vlm_language_models_take_embeddings_and_return_logits(vision_model: Loaded) -> None:
    _, network, _ = vision_model
    language = network.language_model
    caches = vlm_cache.make_prompt_cache(language)
    tokens = mx.array([ids(12)])
    embeds = network.get_input_embeddings(tokens, None, mask=mx.ones_like(tokens)).to_dict()
    extras = {
        key: embeds[key]
        for key in ("per_layer_inputs", "position_ids")
        if embeds.get(key) is not None
    }
    if "position_ids" in extras and extras["position_ids"].ndim == 2:
        extras["position_ids"] = mx.broadcast_to(extras["position_ids"][None], (3, 1, 12))
    first = language(tokens, inputs_embeds=embeds["inputs_embeds"], cache=caches, **extras).logits
    assert first.shape == (1, 12, VOCAB)
    plain = language(tokens, cache=vlm_cache.make_prompt_cache(language)).logits
    assert float(mx.abs(first - plain).max()) < 1e-3


@pytest.mark.parametrize("name", one_in(4, [name for name in VISION if EVERY or name in tried()]))
def test_vlm_families_that_keep_positions_have_a_rope_index(name: str) -> None:
    """They need explicit positions; the others take none."""
    network, _ = mlx_vlm.load(str(checkpoint_dir(name)), lazy=True)
    assert hasattr(network.language_model, "get_rope_index") == VISION[name].keeps_positions


@pytest.mark.parametrize("name", ["glm4v", "qwen2_5_vl"])
def test_vlm_positions_are_left_on_the_model_or_returned(name: str) -> None:
    network, processor = mlx_vlm.load(str(checkpoint_dir(name)), lazy=True)
    tokens, found = embedded((name, network, processor))
    positions = found["position_ids"]
    if positions is None:
        positions = network.language_model._position_ids
    deltas = found["rope_deltas"]
    if deltas is None:
        deltas = network.language_model._rope_deltas
    assert positions.shape == (3, 1, tokens.shape[1])
    assert int(np.asarray(deltas).reshape(-1)[0]) == int(positions.max()) + 1 - tokens.shape[1]


def test_vlm_bidirectional_images_veto_chunks() -> None:
    """Asked with the prompt's extras; only prompts with images are vetoed."""
    network, _ = mlx_vlm.load(str(checkpoint_dir("gemma4_bidir")), lazy=True)
    policy = network.language_model.chunked_prefill_policy
    assert "prefill_kwargs" in inspect.signature(policy).parameters
    assert policy(prefill_kwargs={}) is True
    assert policy(prefill_kwargs={"mm_token_type_ids": mx.array([[0, 1, 1, 0]])}) is False


def test_vlm_tells_the_model_type_without_importing_it() -> None:
    assert vlm_utils.get_model_type({"model_type": "qwen3_5"}) == "qwen3_5"
    assert vlm_utils.get_model_type({"model_type": "lfm2-vl"}) == "lfm2_vl"
    assert vlm_utils.get_model_type({}) is None


def test_vlm_hy_v4_chooses_as_what_it_extends_does() -> None:
    """Which is put in its place, because it does not compile the choice for one length."""
    from mlx_vlm.models.deepseek_v32.language import Indexer
    from mlx_vlm.models.hy_v4.indexer import HyV4Indexer

    assert HyV4Indexer.__base__ is Indexer
    assert {name for name in vars(HyV4Indexer) if not name.startswith("__")} == set()
    assert "__init__" not in vars(HyV4Indexer)


def test_vlm_make_prompt_cache_asks_the_language_model(vision_model: Loaded) -> None:
    name, network, _ = vision_model
    by_kind = {"kv": "KVCache", "window": "RotatingKVCache", "recurrent": "ArraysCache"}
    caches = vlm_cache.make_prompt_cache(network.language_model)
    assert {type(cache).__name__ for cache in caches} == {
        by_kind[kind] for kind in VISION[name].kinds
    }
    assert all(type(cache).__module__ == "mlx_vlm.models.cache" for cache in caches)


@pytest.mark.long
def test_vlm_does_not_bring_the_other_library_with_it() -> None:
    """The guard on the limit of open files stands around imports of mlx-lm alone."""
    code = "import sys, mlx_vlm.utils; assert 'mlx_lm' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
