"""From a directory to a model that runs, or to one clear error and nothing left behind."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from mlx.utils import tree_flatten

from bushel import LLM, ModelError, RequestError, SamplingParams
from bushel.core.checkpoint import read_checkpoint
from bushel.core.context_borders import context_borders
from bushel.models import Model, load
from bushel.models.known_families import rotation_borders
from bushel.models.load import open_host, outline
from bushel.models.text_model import TextModel
from bushel.models.vision.vision_model import VisionModel
from tests.families import checkpoint_dir
from tests.families.checkpoint import END_OF_TEXT, IM_END, SPECIAL
from tests.families.images import MEDIUM, SMALL, picture
from tests.llm.request_builders import (
    assert_same,
    chat,
    difference,
    forcing,
    greedy,
    ids,
    image,
    prompt,
    solo,
    text,
)

from .altered_checkpoints import Weights, change_weights, copied, set_json, set_template
from .refused_checkpoints import SLACK, assert_refused, settled


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value for name, value in weights.items() if part not in name}


def dtypes(model: Model) -> set[mx.Dtype]:
    network: Any = model.network  # type: ignore[attr-defined]
    leaves: Any = tree_flatten(network.parameters())
    return {value.dtype for _, value in leaves}


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LONG = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 4}


@pytest.mark.parametrize(
    ("name", "scaling"),
    [
        *(("exaone", LLAMA3), ("nemotron-nas", LLAMA3), ("telechat3", YARN)),
        *(("bailing_moe", YARN), ("Klear", YARN), ("phi4mm", LONG)),
    ],
)
def test_a_family_that_transformers_does_not_know_may_scale_its_positions(
    name: str, scaling: dict[str, Any], tmp_path: Path
) -> None:
    """As it is published: its tokenizer has nothing to do with that. B8."""
    path = copied(name, tmp_path)
    set_json(path / "config.json", rope_scaling=scaling)
    model = load(str(path))
    assert model.host.sees == (name == "phi4mm")
    model.close()


@pytest.mark.conformance
@pytest.mark.parametrize("scaling", [LLAMA3, YARN, LONG])
def test_transformers_alone_cannot_read_such_a_config(
    scaling: dict[str, Any], tmp_path: Path
) -> None:
    """When this fails, `_plain_configs` of `text/transformers_import.py` can go."""
    set_json(tmp_path / "config.json", model_type="exaone", rope_scaling=scaling, rope_theta=1.0)
    code = "import sys, transformers; transformers.PreTrainedConfig.from_pretrained(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "no attribute 'max_position_embeddings'" in done.stderr


# -- which library owns it --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3_5_vl", "gemma3_vl", "smolvlm", "pixtral"])
def test_vision_config_and_weights_make_a_model_that_sees(name: str) -> None:
    """Nobody has to say that a checkpoint takes images. B8."""
    model = load(str(checkpoint_dir(name)))
    assert isinstance(model, VisionModel)
    model.close()


@pytest.mark.parametrize("name", ["minimax_m3", "hy_v4"])
def test_a_text_model_that_mlx_vlm_alone_has_is_served(name: str) -> None:
    """It writes, chats, and says why it takes no image. B8."""
    with LLM(str(checkpoint_dir(name))) as llm:
        refused, said = llm.generate(
            [chat(image(picture(MEDIUM)), text("?")), chat(text("Hello"))], greedy(4)
        )
    assert "text model" in (refused.error or "")
    assert len(said.token_ids) == 4


BORDERS = {
    # Beyond them sparse attention leaves tokens out,
    "minimax_m3": (24,),
    "minimax_m3_vl": (24,),
    "minimax_m3_vl-text": (24,),
    "hy_v4": (24,),
    "deepseek_v4": (24,),
    # or queries grow.
    "llama4": (8,),
    "inkling": (16,),
    "ministral3": (16,),
    "mistral3_mistral4": (16,),
    "llama": (),
    "gemma3_text": (),  # its states tell windows
    "deepseek_v3": (),  # YaRN has an original length, and no border there
}


@pytest.mark.parametrize("name", BORDERS)
def test_a_checkpoint_tells_where_its_attention_becomes_another_one(name: str) -> None:
    """`bushel check` tries contexts on both sides of that."""
    assert read_checkpoint(str(checkpoint_dir(name))).context_borders == BORDERS[name]


@pytest.mark.parametrize(("name", "borders"), [("phi3_v_long", {32}), ("phimoe", set())])
def test_a_network_with_two_rotations_tells_from_where_on(name: str, borders: set[int]) -> None:
    """mlx-lm's has one, that of long contexts, whatever the config says."""
    model = load(str(checkpoint_dir(name)))
    assert rotation_borders(model.network) == borders
    model.close()


@pytest.mark.parametrize(
    "odd",
    [
        {"compress_ratios": 4},
        {"compress_ratios": {"of some": 4}, "index_topk": None},
        {"floor_scale": math.inf},
        {"index_topk": math.nan},
        {"index_topk": [16, 16]},
        {"index_topk": True},
        {"log_scaling_n_floor": "8192"},
        {"rope_scaling": "long_factor"},
    ],
    ids=str,
)
def test_a_setting_of_another_kind_is_no_border(odd: dict[str, Any]) -> None:
    """Some other family's, of the same name: its model is loaded all the same."""
    assert context_borders(odd) == ()


@pytest.mark.parametrize("name", ["qwen3_5_vl", "qwen3_vl", "gemma3_vl"])
def test_a_vision_config_without_vision_weights_makes_a_text_model(
    name: str, tmp_path: Path
) -> None:
    """It serves text as the whole checkpoint does, and says why it takes no image. B8."""
    path = copied(name, tmp_path)
    change_weights(
        path,
        lambda weights: {
            key: value for key, value in weights.items() if key.startswith("language_model")
        },
    )
    with LLM(str(checkpoint_dir(name))) as whole:
        expected = solo(whole, prompt(20), greedy(6))
    model = load(str(path))
    assert isinstance(model, TextModel)
    model.close()
    with LLM(str(path)) as llm:
        output = solo(llm, prompt(20), greedy(6))
        assert output.token_ids == expected.token_ids
        # The two libraries' own code differs by 1e-6 to 2e-4 on these families.
        assert difference(output.logprobs, expected.logprobs) < 1e-3
        [refused] = llm.generate([chat(image(picture(MEDIUM)), text("?"))], greedy(2))
        assert "text model" in (refused.error or "")


def test_text_checkpoints_make_text_models() -> None:
    model = load(str(checkpoint_dir("qwen3_5")))
    assert isinstance(model, TextModel)
    model.close()


def test_extra_weights_of_a_prediction_head_are_ignored(tmp_path: Path) -> None:
    """Checkpoints carry them, by a name the library knows. B8."""
    path = copied("qwen3_5", tmp_path)
    change_weights(path, lambda weights: {**weights, "mtp.fc.weight": mx.ones((64, 128))})
    with LLM(str(checkpoint_dir("qwen3_5"))) as llm:
        expected = solo(llm, prompt(20), greedy(6))
    with LLM(str(path)) as llm:
        assert_same(solo(llm, prompt(20), greedy(6)), expected)


# -- what cannot be loaded --------------------------------------------------------------------


def remove(*names: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        for name in names:
            (path / name).unlink()

    return change


def truncate(keep: float) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = path / "model.safetensors"
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * keep)])

    return change


def weights(change: Callable[[Weights], Weights]) -> Callable[[Path], None]:
    return lambda path: change_weights(path, change)


def config(**fields: Any) -> Callable[[Path], None]:
    return lambda path: set_json(path / "config.json", **fields)


def text_config(**fields: Any) -> Callable[[Path], None]:
    """Change the language model's own settings, wherever they stand."""

    def change(path: Path) -> None:
        nested = json.loads((path / "config.json").read_text()).get("text_config")
        config(**({"text_config": {**nested, **fields}} if nested else fields))(path)

    return change


def write(name: str, content: str | bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def reshaped(found: Weights) -> Weights:
    name = next(name for name in found if name.endswith("embed_tokens.weight"))
    return {**found, name: found[name][:, :-1]}


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (remove("config.json"), "config.json"),
    "broken config": (write("config.json", '{"model_type": '), "config.json"),
    "config is a list": (write("config.json", "[1]"), "config.json"),
    "config is not text": (write("config.json", b"\xff\xfe"), "config.json"),
    "no model type": (config(model_type=None), "model_type"),
    "unknown model type": (config(model_type="no_such_thing"), "no_such_thing"),
    "model type is a path": (config(model_type="../../etc"), "../../etc"),
    "no weights": (remove("model.safetensors"), "weights"),
    "empty weights file": (truncate(0), "model.safetensors"),
    "weights cut in their header": (truncate(0.001), "model.safetensors"),
    "weights cut in the middle": (truncate(0.5), "cannot be loaded"),
    "weights are something else": (write("model.safetensors", "<html>"), "model.safetensors"),
    "a weight is missing": (weights(without("layers.1.mlp.down_proj")), "layers.1.mlp.down_proj"),
    "a weight too many": (
        weights(lambda found: {**found, "no.such.weight": mx.ones(3)}),
        "no.such.weight",
    ),
    "a weight of another shape": (weights(reshaped), "embed_tokens.weight"),
    "broken index": (write("model.safetensors.index.json", "{"), "index.json"),
    "broken generation config": (write("generation_config.json", "{"), "generation_config.json"),
    "broken tokenizer config": (write("tokenizer_config.json", "{"), "tokenizer_config.json"),
    "no tokenizer": (remove("tokenizer.json", "tokenizer_config.json"), "okenizer"),
    "broken tokenizer": (write("tokenizer.json", "{"), "cannot be loaded"),
    "a config key of a wrong type": (text_config(num_attention_heads="four"), "cannot be loaded"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("name", ["llama", "qwen3_5_vl"])
def test_a_broken_checkpoint_gives_one_clear_error(name: str, case: str, tmp_path: Path) -> None:
    """One line says what is wrong with it, and no memory stays in use. B8."""
    path = copied(name, tmp_path)
    change, message = BROKEN[case]
    change(path)
    assert_refused(str(path), message)


@pytest.mark.parametrize("name", ["llama", "qwen3_5_vl"])
def test_a_failed_load_gives_back_what_it_had_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one fails when all of its weights are in memory. B8."""
    held: list[int] = []

    def fail(*_: object) -> None:
        held.append(settled())
        raise RuntimeError("no such luck")

    monkeypatch.setattr(sys.modules[load.__module__], "_run_once", fail)
    before = settled()
    assert_refused(str(checkpoint_dir(name)), "no such luck")
    assert held[0] - before > 10 * SLACK


@pytest.mark.parametrize(
    "model", ["/no/such/place", "./no/such/place", "~/no/such/place", "", "a/b/c"]
)
def test_a_place_that_is_no_directory_is_named(model: str) -> None:
    assert_refused(model, model)


def test_a_file_is_not_a_checkpoint() -> None:
    file = str(checkpoint_dir("llama") / "model.safetensors")
    assert_refused(file, "model.safetensors")


def test_a_hub_id_that_cannot_be_fetched_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert_refused("no-such-owner/no-such-model", "no-such-owner/no-such-model")


def test_an_unknown_dtype_is_named() -> None:
    assert_refused(str(checkpoint_dir("llama")), "int7", dtype="int7")


def test_the_next_load_after_a_failure_works(tmp_path: Path) -> None:
    path = copied("llama", tmp_path)
    weights(without("layers.1."))(path)
    with pytest.raises(ModelError):
        LLM(str(path))
    with LLM(str(checkpoint_dir("llama"))) as llm:
        assert solo(llm, prompt(20), greedy(3)).finish_reason == "length"


# -- number formats ---------------------------------------------------------------------------


def as_bfloat16(found: Weights) -> Weights:
    return {name: value.astype(mx.bfloat16) for name, value in found.items()}


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="the default differs on a GPU")
@pytest.mark.parametrize("name", ["llama", "qwen3_5_vl"])
def test_a_bfloat16_checkpoint_runs_in_float32_on_the_cpu(name: str, tmp_path: Path) -> None:
    path = copied(name, tmp_path)
    change_weights(path, as_bfloat16)
    model = load(str(path))
    assert dtypes(model) == {mx.float32}
    model.close()
    narrow = load(str(path), dtype="bfloat16")
    assert mx.bfloat16 in dtypes(narrow)
    narrow.close()


@pytest.mark.parametrize("name", ["kimi_vl", "kimi_k25_vl", "deepseek_v3"])
def test_weights_that_a_family_pins_keep_their_format(name: str) -> None:
    """However its library tells them."""
    network: Any = outline(str(checkpoint_dir(name)), dtype="bfloat16").network  # type: ignore[attr-defined]
    leaves: Any = tree_flatten(network.parameters())
    pinned = {path for path, weight in leaves if weight.dtype == mx.float32}
    assert pinned
    assert all("e_score_correction_bias" in path for path in pinned)


# bfloat16 has 8 bits of mantissa: these models move by 0.11 to 0.17 nats at most.
BFLOAT16_BOUND = 0.5


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "qwen2_5_vl"])
def test_bfloat16_agrees_with_float32_within_its_rounding(name: str) -> None:
    wanted = greedy(1, logprobs=512, prompt_logprobs=0)
    found = []
    for dtype in ("float32", "bfloat16"):
        with LLM(str(checkpoint_dir(name)), dtype=dtype) as llm:
            asked = [prompt(30), prompt(12, seed=2)]
            outputs = llm.generate(asked, wanted)
            found.append(
                [
                    logprob.logprob
                    for out in outputs
                    for logprob in out.prompt_logprobs or []
                    if logprob
                ]
            )
            rows = [dict(out.logprobs[0].top) for out in outputs]  # type: ignore[index]
            found[-1] += [row[token] for row in rows for token in range(512)]
    gaps = [abs(a - b) for a, b in zip(*found, strict=True)]
    assert 1e-3 < max(gaps) < BFLOAT16_BOUND
    rolled = found[1][1:] + found[1][:1]
    assert max(abs(a - b) for a, b in zip(found[0], rolled, strict=True)) > 2 * BFLOAT16_BOUND


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_formats_serve_a_batch(dtype: str) -> None:
    """Rows of other lengths join and leave. B1."""
    with LLM(str(checkpoint_dir("qwen3_5")), dtype=dtype) as llm:
        asked = [prompt(7 + 5 * at, seed=at) for at in range(3)]
        params = [greedy(2 + at) for at in range(3)]
        outputs = llm.generate(asked, params)
        assert [len(output.token_ids) for output in outputs] == [2, 3, 4]
        assert llm.status()["max_decode_batch"] == 3


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = copied("llama", tmp_path_factory.mktemp("quantized"))
    network = mlx_lm.load(str(path))[0]
    nn.quantize(network, group_size=32, bits=4)
    leaves: Any = tree_flatten(network.parameters())
    mx.save_safetensors(str(path / "model.safetensors"), dict(leaves), metadata={"format": "mlx"})
    set_json(path / "config.json", quantization={"group_size": 32, "bits": 4})
    return path


def test_a_quantized_checkpoint_gives_the_same_tokens_in_a_batch(quantized: Path) -> None:
    asked = [prompt(15 + 9 * at, seed=at) for at in range(5)]
    with LLM(str(quantized)) as llm:
        assert mx.uint32 in dtypes(llm._engine.model)  # type: ignore[union-attr]
        alone = [solo(llm, request, greedy(12)) for request in asked]
        together = llm.generate(asked, greedy(12))
        assert llm.status()["max_decode_batch"] == 5
    for one, two in zip(together, alone, strict=True):
        assert_same(one, two)
    with LLM(str(checkpoint_dir("llama"))) as llm:
        exact = solo(llm, asked[0], greedy(12))
    assert (
        alone[0].token_ids != exact.token_ids
        or difference(alone[0].logprobs, exact.logprobs) > 1e-2
    )


# -- end tokens -------------------------------------------------------------------------------


def end_ids(path: Path) -> frozenset[int]:
    model = load(str(path))
    found = model.tokenizer.end_ids
    model.close()
    return found


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A checkpoint that names no end token anywhere."""
    path = copied("llama", tmp_path)
    set_json(path / "generation_config.json", eos_token_id=None)
    set_json(path / "config.json", eos_token_id=None)
    set_json(path / "tokenizer_config.json", eos_token=None)
    set_template(path, "{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    return path


def test_no_end_token_is_invented(endless: Path) -> None:
    """The control of the tests below. B30."""
    assert end_ids(endless) == frozenset()


def test_end_tokens_come_from_the_generation_config(endless: Path) -> None:
    """It may name one or several. B30."""
    set_json(endless / "generation_config.json", eos_token_id=77)
    assert end_ids(endless) == {77}
    set_json(endless / "generation_config.json", eos_token_id=[77, 78])
    assert end_ids(endless) == {77, 78}


def test_end_tokens_come_from_the_config(endless: Path) -> None:
    """`eos_token_id` of the model's config ends a reply. B30."""
    set_json(endless / "config.json", eos_token_id=[IM_END])
    assert end_ids(endless) == {IM_END}


def test_end_tokens_come_from_the_tokenizer(endless: Path) -> None:
    """`eos_token` of the tokenizer's config ends a reply. B30."""
    set_json(endless / "tokenizer_config.json", eos_token=SPECIAL[END_OF_TEXT])
    assert end_ids(endless) == {END_OF_TEXT}


def test_end_tokens_come_from_the_template(endless: Path) -> None:
    """What it writes after an assistant's turn, if that is a special token. B30."""
    turn = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    set_template(endless, turn + "{% endfor %}")
    assert end_ids(endless) == {IM_END}


def test_generation_ends_at_every_end_token(endless: Path) -> None:
    """Whichever file names it, the reply stops there and does not show it. B21, B30."""
    set_json(endless / "generation_config.json", eos_token_id=77)
    set_json(endless / "tokenizer_config.json", eos_token=SPECIAL[END_OF_TEXT])
    with LLM(str(endless)) as llm:
        for token in (77, END_OF_TEXT):
            output = solo(llm, prompt(5), SamplingParams(logit_bias=forcing(token)))
            assert (output.token_ids, output.finish_reason) == ([token], "stop")
            assert output.text == ""
        free = SamplingParams(logit_bias=forcing(78), max_tokens=3)
        assert solo(llm, prompt(5), free).finish_reason == "length"


# -- the process ------------------------------------------------------------------------------

LIMITS = """
import resource
soft, hard = 1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from bushel import LLM, SamplingParams
for path in {paths!r}:
    with LLM(path) as llm:
        assert llm.generate([{{"prompt_token_ids": [50, 51]}}], SamplingParams(max_tokens=2))
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard), "limits changed"
"""


def test_the_limit_of_open_files_is_left_alone() -> None:
    """A server needs them for its connections; importing mlx-lm would set 2048 of at most 4096."""
    paths = [str(checkpoint_dir(name)) for name in ("llama", "qwen3_5_vl")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITS.format(paths=paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_names_of_the_config_are_read_where_the_text_model_keeps_them(tmp_path: Path) -> None:
    """The context of a vision checkpoint stands in its text config. B50."""
    path = copied("qwen3_5_vl", tmp_path)
    content = json.loads((path / "config.json").read_text())
    content["text_config"]["max_position_embeddings"] = 48
    (path / "config.json").write_text(json.dumps(content))
    with LLM(str(path)) as llm:
        [output] = llm.generate([{"prompt_token_ids": ids(60)}], greedy(2))
    assert "48 tokens" in (output.error or "")


def test_a_dtype_the_machine_cannot_run_is_refused_at_load() -> None:
    """Experts run in float32 alone on the CPU; every request would fail. B3."""
    assert_refused(str(checkpoint_dir("qwen3_moe")), "dtype bfloat16", dtype="bfloat16")


def test_pictures_that_a_family_would_keep_are_refused() -> None:
    """molmo_point: what mlx-vlm leaves of them on the model would be in later replies."""
    path = checkpoint_dir("molmo_point")
    assert read_checkpoint(str(path)).sees  # it was made for them
    host = open_host(str(path))
    with pytest.raises(RequestError, match="keeps a reply's pictures on the model") as refused:
        host.prepare("What is this?", [picture(SMALL, 0)])
    assert refused.value.code == "unsupported_media"
    assert host.prepare("What is this?", []).ids
