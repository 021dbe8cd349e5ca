"""Replies as models write them, with what they say: harmony, and what `registry.py` lists."""

# DeepSeek's bars are wide ones.
# ruff: noqa: RUF001

import json
from typing import Any

from tests.chat.reply.sample_replies import Example, add

_A = {
    "path": 'a "b"\n{c',
    "limit": 5,
    "follow": True,
    "where": {"x": ["é]", {"y": "</z>"}, 1.5]},
}
_JSON = json.dumps(_A, ensure_ascii=False)
_WHERE = json.dumps(_A["where"], ensure_ascii=False)
_BOTH = (("read", _A), ("write_file", {"text": "b"}))
_PARAMETERS = (("path", _A["path"]), ("limit", "5"), ("follow", "true"), ("where", _WHERE))


def _invoked(tag: str) -> str:
    """Calls as elements whose names begin with `tag`."""
    values = "".join(
        f'<{tag}parameter name="{key}">{value}</{tag}parameter>\n' for key, value in _PARAMETERS
    )
    return (
        f'<{tag}invoke name="read">\n{values}</{tag}invoke>\n'
        f'<{tag}invoke name="write_file">\n<{tag}parameter name="text">b</{tag}parameter>\n'
        f"</{tag}invoke>\n"
    )


def _paired(before: str, after: str, line: str, separator: str = "") -> str:
    """Calls as GLM's keys and values."""

    def tag(name: str, text: str) -> str:
        return f"<{before}{name}{after}>{text}</{before}{name}{after}>{line}"

    pairs = "".join(tag("arg_key", key) + tag("arg_value", value) for key, value in _PARAMETERS)
    first = tag("tool_call", f"read{separator}{line}{pairs}")
    only = tag("arg_key", "text") + tag("arg_value", "b")
    return first + tag("tool_call", f"write_file{separator}{line}{only}")


_OBJECTS = (
    f'{{"name": "read", "arguments": {_JSON}, "id": "abcdefghi"}}',
    '{"id": "x", "name": "write_file", "arguments": {"text": "b"}}',
)
_LIST = f"[{', '.join(_OBJECTS)}]"
_MARK = "]<]minimax[>["
_FENCED = f"function<｜tool▁sep｜>read\n```json\n{_JSON}\n```"
_V3 = (
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{_FENCED}<｜tool▁call▁end｜>\n"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n"
    '```json\n{"text": "b"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
_V31 = (
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{_JSON}<｜tool▁call▁end｜>"
    '<｜tool▁call▁begin｜>write_file<｜tool▁sep｜>{"text": "b"}<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>"
)
_DSML = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read">\n'
    f'<｜DSML｜parameter name="path" string="true">{_A["path"]}</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="limit" string="false">5</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="follow" string="false">true</｜DSML｜parameter>\n'
    f'<｜DSML｜parameter name="where" string="false">{_WHERE}</｜DSML｜parameter>\n'
    '</｜DSML｜invoke>\n<｜DSML｜invoke name="write_file">\n'
    '<｜DSML｜parameter name="text" string="true">b</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)
_KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    f"{_JSON}<|tool_call_end|><|tool_call_begin|>functions.write_file:1<|tool_call_argument_begin|>"
    '{"text": "b"}<|tool_call_end|><|tool_calls_section_end|>'
)
_SOLAR = (
    "<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>read<|tool_call:args|>"
    f"{_JSON}<|tool_call:end|><|tool_call:begin|>abd<|tool_call:name|>write_file<|tool_call:args|>"
    '{"text": "b"}<|tool_call:end|><|calls|>'
)


def _kimi3(key: str, kind: str, value: str) -> str:
    tag = f'<|open|>argument key="{key}" type="{kind}"<|sep|>'
    return f"{tag}{value}<|close|>argument<|sep|>"


_KIMI3 = (
    '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|>'
    + _kimi3("path", "string", str(_A["path"]))
    + _kimi3("limit", "number", "5")
    + _kimi3("follow", "boolean", "true")
    + _kimi3("where", "object", _WHERE)
    + '<|close|>call<|sep|><|open|>call tool="write_file" index="2"<|sep|>'
    + '<|open|>json type="object"<|sep|>{"text": "b"}<|close|>json<|sep|>'
    + "<|close|>call<|sep|><|close|>tools<|sep|>"
)
_M3 = (
    f'{_MARK}<tool_call>\n{_MARK}<invoke name="read">{_MARK}<path>{_A["path"]}{_MARK}</path>'
    f"{_MARK}<limit>5{_MARK}</limit>{_MARK}<follow>true{_MARK}</follow>{_MARK}<where>{_MARK}<x>"
    f"{_MARK}<item>é]{_MARK}</item>{_MARK}<item>{_MARK}<y></z>{_MARK}</y>{_MARK}</item>"
    f"{_MARK}<item>1.5{_MARK}</item>{_MARK}</x>{_MARK}</where>{_MARK}</invoke>\n"
    f'{_MARK}<invoke name="write_file">{_MARK}<text>b{_MARK}</text>{_MARK}</invoke>\n'
    f"{_MARK}</tool_call>"
)
_Q = '<|"|>'
_GEMMA = (
    f"<|tool_call>call:read{{path:{_Q}{_A['path']}{_Q},limit:5,follow:true,"
    f"where:{{x:[{_Q}é]{_Q},{{y:{_Q}</z>{_Q}}},1.5]}}}}"
    f"<tool_call|><|tool_call>call:write_file{{text:{_Q}b{_Q}}}<tool_call|>"
)
_FUNCTION_GEMMA = (
    f"<start_function_call>call:read{{path:<escape>{_A['path']}<escape>,limit:5,"
    f"follow:<escape>True<escape>,where:<escape>{_A['where']}<escape>}}<end_function_call>"
    "<start_function_call>call:write_file{text:<escape>b<escape>}<end_function_call>"
)
_MINICPM = (
    f'<function name="read"><param name="path"><![CDATA[{_A["path"]}]]></param>'
    '<param name="limit">5</param><param name="follow">True</param><param name="where">'
    f"{_A['where']}</param></function>\n"
    '<function name="write_file"><param name="text">b</param></function>'
)

add(
    *(
        Example(name, tools, f"Let me look.{text}", text="Let me look.", calls=_BOTH)
        for name, tools, text in (
            ("mistral list", "mistral", f"[TOOL_CALLS]{_LIST}"),
            (
                "mistral",
                "mistral",
                f'[TOOL_CALLS]read[ARGS]{_JSON}[TOOL_CALLS]write_file[ARGS]{{"text": "b"}}',
            ),
            (
                "mistral ids",
                "mistral",
                f"[TOOL_CALLS]read[CALL_ID]abcdefghi[ARGS]{_JSON}"
                '[TOOL_CALLS]write_file[CALL_ID]abcdefghj[ARGS]{"text": "b"}',
            ),
            ("deepseek v3", "deepseek", _V3),
            ("deepseek v3.1", "deepseek", _V31),
            ("deepseek v4", "dsml", f"\n\n{_DSML}"),
            ("glm 4.5", "glm", "\n" + _paired("", "", "\n")),
            ("glm 4.7", "glm", _paired("", "", "")),
            ("longcat", "longcat", _paired("longcat_", "", "\n")),
            (
                "hunyuan",
                "hunyuan",
                "<tool_calls:opensource>\n"
                + _paired("", ":opensource", "\n", "<tool_sep:opensource>")
                + "</tool_calls:opensource>",
            ),
            ("kimi k2", "kimi", _KIMI),
            ("kimi k3", "kimi3", _KIMI3),
            ("solar", "solar", _SOLAR),
            ("minimax m2", "minimax", f"\n<minimax:tool_call>\n{_invoked('')}</minimax:tool_call>"),
            ("minimax m3", "minimax3", _M3),
            ("gemma 4", "gemma", _GEMMA),
            ("functiongemma", "function_gemma", _FUNCTION_GEMMA),
            ("granite 3", "granite", f"<|tool_call|>{_LIST}"),
            ("granite fc", "granite", "".join(f"<function_call> {each}\n" for each in _OBJECTS)),
            (
                "cohere",
                "cohere",
                "<|START_ACTION|>[\n"
                f'    {{"tool_call_id": "0", "tool_name": "read", "parameters": {_JSON}}},\n'
                '    {"tool_call_id": "1", "tool_name": "write_file", "parameters": {"text": "b"}}'
                "\n]<|END_ACTION|>",
            ),
            (
                "apertus",
                "apertus",
                f'<|tools_prefix|>[{{"read": {_JSON}}}, {{"write_file": {{"text": "b"}}}}]'
                "<|tools_suffix|>",
            ),
            ("apriel", "tool_calls", f"\n<tool_calls>{_LIST}</tool_calls>"),
            (
                "minimax m1",
                "tool_calls",
                "<tool_calls>\n" + "\n".join(_OBJECTS) + "\n</tool_calls>",
            ),
            ("nemotron nano", "nemotron", f"\n<TOOLCALL>{_LIST}</TOOLCALL>"),
            (
                "internlm",
                "internlm",
                "".join(f"<|action_start|><|plugin|>\n{each}<|action_end|>" for each in _OBJECTS),
            ),
            ("gigachat", "gigachat", "".join(f"<|function_call|>{each}" for each in _OBJECTS)),
            ("phi 4 mini", "functools", f"functools{_LIST}"),
            ("minicpm 5", "minicpm", f"\n{_MINICPM}"),
            (
                "muse",
                "atem",
                f"<atem:function_calls>\n{_invoked('atem:')}</atem:function_calls>",
            ),
        )
    )
)

_READ = f"<|channel|>commentary to=functions.read <|constrain|>json<|message|>{_JSON}<|call|>"
_WRITE = ' to=functions.write_file<|channel|>commentary json<|message|>{"text": "b"}'


def _harmony(name: str, reply: str, **said: Any) -> Example:
    return Example(name, "harmony", reply, thinking="harmony", **said)


add(
    _harmony(
        "thoughts, a preamble and calls",
        "<|channel|>analysis<|message|>So, <b>.<|end|><|start|>assistant<|channel|>commentary"
        f"<|message|>Let me look.<|end|><|start|>assistant{_READ}<|start|>assistant{_WRITE}",
        thoughts="So, <b>.",
        text="Let me look.",
        calls=_BOTH,
    ),
    _harmony("the recipient first", f"{_WRITE}<|call|>", calls=_BOTH[1:]),
    _harmony(
        "an answer",
        "<|channel|>analysis<|message|>So.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is 1 < 2.\n<|return|>",
        thoughts="So.",
        text="It is 1 < 2.\n",
    ),
    _harmony("the middle of a message", "to be or not<|return|>", text="to be or not"),
    _harmony(
        "messages without ends",
        "<|channel|>analysis<|message|>So.<|channel|>final<|message|>Yes.<|start|>assistant"
        "<|channel|>commentary to=functions.now<|message|><|call|>",
        thoughts="So.",
        text="Yes.",
        calls=(("now", {}),),
    ),
    _harmony(
        "a tool that was not offered",
        "<|channel|>commentary to=browser.find<|message|>words<|call|>",
        text="<|channel|>commentary to=browser.find<|message|>words<|call|>",
    ),
)

add(
    Example(
        "one of three was not offered",
        "kimi",
        _KIMI.replace("<|tool_calls_section_end|>", "")
        + "<|tool_call_begin|>functions.rm:2<|tool_call_argument_begin|>{}<|tool_call_end|>"
        + "<|tool_calls_section_end|>Done",
        text="<|tool_call_begin|>functions.rm:2<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>Done",
        calls=_BOTH,
    ),
    Example(
        "no arguments, and no marker around the call",
        "deepseek",
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜>Done",
        text="Done",
        calls=(("now", {}),),
    ),
    Example(
        "no arguments in the first of two calls",
        "mistral",
        '[TOOL_CALLS]now[ARGS][TOOL_CALLS]write_file[ARGS]{"text": "b"}',
        calls=(("now", {}), *_BOTH[1:]),
    ),
    Example(
        "prose behind a marker",
        "mistral",
        "[TOOL_CALLS] is a marker" + " that models write" * 20,
        text="[TOOL_CALLS] is a marker" + " that models write" * 20,
    ),
    Example(
        "types that the schema decides",
        "glm",
        "<tool_call>read<arg_key>path</arg_key><arg_value>5</arg_value><arg_key>limit</arg_key>"
        "<arg_value>5</arg_value><arg_key>anything</arg_key><arg_value>[5]</arg_value>"
        "</tool_call>",
        calls=(("read", {"path": "5", "limit": 5, "anything": [5]}),),
    ),
    Example(
        "an object where keys and values are expected",
        "glm",
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        calls=(("now", {}),),
    ),
    Example(
        "text behind calls",
        "gemma",
        "<|tool_call>call:now{}<tool_call|>\nDone {}",
        text="\nDone {}",
        calls=(("now", {}),),
    ),
)
