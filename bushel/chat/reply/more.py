"""The formats that are not in `pick.py` itself, in the order in which a template is tried."""

from __future__ import annotations

from bushel.chat.reply.deepseek import DeepSeek, Dsml
from bushel.chat.reply.format import Format
from bushel.chat.reply.gemma import FunctionGemma, Gemma
from bushel.chat.reply.glm import Glm, Hunyuan, Longcat
from bushel.chat.reply.granite import Granite
from bushel.chat.reply.invoke import Atem, MiniCpm
from bushel.chat.reply.kimi import Kimi, Kimi3, Solar
from bushel.chat.reply.lists import (
    Apertus,
    Cohere,
    Functools,
    GigaChat,
    InternLm,
    Nemotron,
    ToolCalls,
)
from bushel.chat.reply.minimax import MiniMax, MiniMax3
from bushel.chat.reply.mistral import Mistral

MORE: tuple[Format, ...] = (
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
