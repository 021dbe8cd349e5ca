"""The form of every tool format's calls, by the format's name (`chat.tool_parsers`)."""

from __future__ import annotations

from collections.abc import Mapping

from bushel.chat.structured_output import element_calls, object_calls
from bushel.chat.structured_output.call_form import Write
from bushel.chat.structured_output.element_calls import Tags

_XML = Tags("<parameter=KEY>\n", "\n</parameter>\n", ("\n<parameter=", "\n</function>"))
_INVOKE = Tags('<parameter name="KEY">', "</parameter>\n")
_ATEM = Tags('<atem:parameter name="KEY">', "</atem:parameter>\n")
_MARK = "]<]minimax[>["
_KIMI3 = Tags('<|open|>argument key="KEY" type="KIND"<|sep|>', "<|close|>argument<|sep|>")

FORMS: Mapping[str, Write] = {
    "hermes": object_calls.alone("<tool_call>\n", "\n</tool_call>", "\n"),
    "generic": object_calls.alone("<tool_call>\n", "\n</tool_call>", "\n"),
    "llama": object_calls.llama,
    "mistral": object_calls.mistral,
    "deepseek": object_calls.deepseek,
    "kimi": object_calls.kimi,
    "solar": object_calls.solar,
    "granite": object_calls.granite,
    "cohere": object_calls.cohere,
    "apertus": object_calls.apertus,
    "tool_calls": object_calls.tool_calls,
    "nemotron": object_calls.listed("<TOOLCALL>", "</TOOLCALL>"),
    "functools": object_calls.listed("functools", ""),
    "internlm": object_calls.alone(
        "<|action_start|><|plugin|>", "<|action_end|>", key="parameters"
    ),
    "gigachat": object_calls.alone("<|function_call|>", ""),
    "harmony": object_calls.harmony,
    "xml": element_calls.elements(
        _XML,
        "<function=NAME>\n",
        "</function>",
        open="<tool_call>\n",
        close="\n</tool_call>",
        between="\n",
    ),
    "glm": element_calls.glm("", ""),
    "longcat": element_calls.glm("longcat_", ""),
    "hunyuan": element_calls.glm(
        "",
        ":opensource",
        "<tool_calls:opensource>\n",
        "\n</tool_calls:opensource>",
        "<tool_sep:opensource>",
    ),
    "minimax": element_calls.elements(
        _INVOKE,
        '<invoke name="NAME">\n',
        "</invoke>\n",
        begin="<minimax:tool_call>\n",
        end="</minimax:tool_call>",
    ),
    "minimax3": element_calls.elements(
        Tags(f"{_MARK}<KEY>", f"{_MARK}</KEY>", (_MARK,)),
        f'{_MARK}<invoke name="NAME">',
        f"{_MARK}</invoke>\n",
        begin=f"{_MARK}<tool_call>\n",
        end=f"{_MARK}</tool_call>",
    ),
    "dsml": element_calls.dsml,
    "atem": element_calls.elements(
        _ATEM,
        '<atem:invoke name="NAME">\n',
        "</atem:invoke>\n",
        begin="<atem:function_calls>\n",
        end="</atem:function_calls>",
    ),
    "minicpm": element_calls.elements(
        Tags('<param name="KEY">', "</param>"),
        'name="NAME">',
        "",
        open="<function ",
        close="</function>",
    ),
    "kimi3": element_calls.elements(
        _KIMI3,
        'call tool="NAME" index="1"<|sep|>',
        "<|close|>call<|sep|>",
        begin="<|open|>tools<|sep|>",
        open="<|open|>",
        end="<|close|>tools<|sep|>",
    ),
    "gemma": element_calls.gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "function_gemma": element_calls.gemma(
        "<start_function_call>", "<end_function_call>", "<escape>"
    ),
    "pythonic": element_calls.pythonic,
}
