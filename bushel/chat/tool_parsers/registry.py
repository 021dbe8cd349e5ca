"""The formats that are not in `pick.py` itself, in the order in which a template is tried."""

from __future__ import annotations

from bushel.chat.tool_parsers.deepseek import DeepSeek, Dsml
from bushel.chat.tool_parsers.gemma import FunctionGemma, Gemma
from bushel.chat.tool_parsers.glm import Glm, Hunyuan, Longcat
from bushel.chat.tool_parsers.granite import Granite
from bushel.chat.tool_parsers.invoke import Atem, MiniCpm
from bushel.chat.tool_parsers.kimi import Kimi, Kimi3, Solar
from bushel.chat.tool_parsers.lists import (
    Apertus,
    Cohere,
    Functools,
    GigaChat,
    InternLm,
    Nemotron,
    ToolCalls,
)
from bushel.chat.tool_parsers.minimax import MiniMax, MiniMax3
from bushel.chat.tool_parsers.mistral import Mistral
from bushel.chat.tool_parsers.tool_format import ToolFormat

MORE: tuple[ToolFormat, ...] = (
    Mistral(),
    Dsml(),
    DeepSeek(),
    Hunyuan(),
    Longcat(),
    Glm(),
    Kimi(),
    Kimi3(),
    Solar(),
    MiniMax3(),
    MiniMax(),
    Gemma(),
    FunctionGemma(),
    Granite(),
    Cohere(),
    Apertus(),
    Nemotron(),
    InternLm(),
    GigaChat(),
    Functools(),
    MiniCpm(),
    Atem(),
    ToolCalls(),
)
