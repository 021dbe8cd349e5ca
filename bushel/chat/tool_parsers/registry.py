"""All tool formats by name, in the order in which a template is tried."""

from __future__ import annotations

from bushel.chat.tool_parsers.apertus import APERTUS
from bushel.chat.tool_parsers.apriel import APRIEL
from bushel.chat.tool_parsers.atem import ATEM
from bushel.chat.tool_parsers.cohere import COHERE
from bushel.chat.tool_parsers.deepseek import DEEPSEEK, DSML
from bushel.chat.tool_parsers.gemma import FUNCTION_GEMMA, GEMMA
from bushel.chat.tool_parsers.generic import GENERIC
from bushel.chat.tool_parsers.gigachat import GIGACHAT
from bushel.chat.tool_parsers.glm import GLM, HUNYUAN, LONGCAT
from bushel.chat.tool_parsers.granite import GRANITE
from bushel.chat.tool_parsers.harmony import HARMONY
from bushel.chat.tool_parsers.hermes import HERMES
from bushel.chat.tool_parsers.internlm import INTERNLM
from bushel.chat.tool_parsers.kimi import KIMI, KIMI3
from bushel.chat.tool_parsers.llama import LLAMA
from bushel.chat.tool_parsers.minicpm import MINICPM
from bushel.chat.tool_parsers.minimax import MINIMAX, MINIMAX3
from bushel.chat.tool_parsers.mistral import MISTRAL
from bushel.chat.tool_parsers.nemotron import NEMOTRON
from bushel.chat.tool_parsers.phi4 import PHI4
from bushel.chat.tool_parsers.pythonic import PYTHONIC
from bushel.chat.tool_parsers.qwen_coder import QWEN_CODER
from bushel.chat.tool_parsers.solar import SOLAR
from bushel.chat.tool_parsers.tool_format import ToolFormat

# Many models' tags are Hermes', with something else inside: particular forms come first.
FORMATS: dict[str, ToolFormat] = {
    format.name: format
    for format in (
        HARMONY,
        MISTRAL,
        DSML,
        DEEPSEEK,
        HUNYUAN,
        LONGCAT,
        GLM,
        KIMI,
        KIMI3,
        SOLAR,
        MINIMAX3,
        MINIMAX,
        GEMMA,
        FUNCTION_GEMMA,
        GRANITE,
        COHERE,
        APERTUS,
        NEMOTRON,
        INTERNLM,
        GIGACHAT,
        PHI4,
        MINICPM,
        ATEM,
        APRIEL,
        QWEN_CODER,
        HERMES,
        PYTHONIC,
        LLAMA,
        GENERIC,
    )
}
