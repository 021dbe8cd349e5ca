"""The form of every tool format's calls, by the format's name (`chat.reply.formats`)."""

from __future__ import annotations

from collections.abc import Mapping

from bushel.chat.grammar import elements, objects
from bushel.chat.grammar.elements import Tags
from bushel.chat.grammar.form import Write

_XML = Tags("<parameter=KEY>\n", "\n</parameter>\n", ("\n<parameter=", "\n</function>"))
_INVOKE = Tags('<parameter name="KEY">', "</parameter>\n")
_ATEM = Tags('<atem:parameter name="KEY">', "</atem:parameter>\n")
_MARK = "]<]minimax[>["
_KIMI3 = Tags('<|open|>argument key="KEY" type="KIND"<|sep|>', "<|close|>argument<|sep|>")

FORMS: Mapping[str, Write] = {
    "hermes": objects.alone("<tool_call>\n", "\n</tool_call>", "\n"),
    "generic": objects.alone("<tool_call>\n", "\n</tool_call>", "\n"),
    "llama": objects.llama,
    "mistral": objects.mistral,
    "deepseek": objects.deepseek,
    "kimi": objects.kimi,
    "solar": objects.solar,
    "granite": objects.granite,
    "cohere": objects.cohere,
    "apertus": objects.apertus,
    "tool_calls": objects.tool_calls,
    "nemotron": objects.listed("<TOOLCALL>", "</TOOLCALL>"),
    "functools": objects.listed("functools", ""),
    "internlm": objects.alone("<|action_start|><|plugin|>", "<|action_end|>", key="parameters"),
    "gigachat": objects.alone("<|function_call|>", ""),
    "harmony": objects.harmony,
    "xml": elements.elements(
        _XML,
        "<function=NAME>\n",
        "</function>",
        open="<tool_call>\n",
        close="\n</tool_call>",
        between="\n",
    ),
    "glm": elements.glm("", ""),
    "longcat": elements.glm("longcat_", ""),
    "hunyuan": elements.glm(
        "",
        ":opensource",
        "<tool_calls:opensource>\n",
        "\n</tool_calls:opensource>",
        "<tool_sep:opensource>",
    ),
    "minimax": elements.elements(
        _INVOKE,
        '<invoke name="NAME">\n',
        "</invoke>\n",
        begin="<minimax:tool_call>\n",
        end="</minimax:tool_call>",
    ),
    "minimax3": elements.elements(
        Tags(f"{_MARK}<KEY>", f"{_MARK}</KEY>", (_MARK,)),
        f'{_MARK}<invoke name="NAME">',
        f"{_MARK}</invoke>\n",
        begin=f"{_MARK}<tool_call>\n",
        end=f"{_MARK}</tool_call>",
    ),
    "dsml": elements.dsml,
    "atem": elements.elements(
        _ATEM,
        '<atem:invoke name="NAME">\n',
        "</atem:invoke>\n",
        begin="<atem:function_calls>\n",
        end="</atem:function_calls>",
    ),
    "minicpm": elements.elements(
        Tags('<param name="KEY">', "</param>"),
        'name="NAME">',
        "",
        open="<function ",
        close="</function>",
    ),
    "kimi3": elements.elements(
        _KIMI3,
        'call tool="NAME" index="1"<|sep|>',
        "<|close|>call<|sep|>",
        begin="<|open|>tools<|sep|>",
        open="<|open|>",
        end="<|close|>tools<|sep|>",
    ),
    "gemma": elements.gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "function_gemma": elements.gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    "pythonic": elements.pythonic,
}
