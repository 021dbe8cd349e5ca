"""The formats that are not in `pick.py` itself, in the order in which a template is tried."""

from __future__ import annotations

from bushel.chat.reply.format import Format
from bushel.chat.reply.formats.deepseek import DeepSeek, Dsml
from bushel.chat.reply.formats.gemma import FunctionGemma, Gemma
from bushel.chat.reply.formats.glm import Glm, Hunyuan, Longcat
from bushel.chat.reply.formats.granite import Granite
from bushel.chat.reply.formats.invoke import Atem, MiniCpm
from bushel.chat.reply.formats.kimi import Kimi, Kimi3, Solar
from bushel.chat.reply.formats.lists import (
    Apertus,
    Cohere,
    Functools,
    GigaChat,
    InternLm,
    Nemotron,
    ToolCalls,
)
from bushel.chat.reply.formats.minimax import MiniMax, MiniMax3
from bushel.chat.reply.formats.mistral import Mistral

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
