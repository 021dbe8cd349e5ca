"""Bodies that are small to send and long to work on, each in a few lines.

Every one is below the largest body that is read, and asks the event loop to do too much at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
MB = 1 << 20
MANY = 2_000_000
Body = tuple[str, bytes]  # where it is sent, and what

_SPOKEN = b'"messages":[{"role":"user","content":"Hello"}],"max_tokens":2'
_ITEM = b'{"role":"user","content":"Hello"}'
_TEXT = b'{"type":"text","text":"x"}'
BODIES: dict[str, Callable[[], Body]] = {}


def _body(make: Callable[[], Body]) -> Callable[[], Body]:
    BODIES[make.__name__.strip("_")] = make
    return make


def repeated(piece: bytes, count: int) -> bytes:
    return b",".join([piece] * count)


def keys(count: int, value: bytes = b"1") -> bytes:
    return b",".join(b'"k%d":%b' % (at, value) for at in range(count))


def chat(more: bytes) -> Body:
    return CHAT, b"{" + _SPOKEN + b"," + more + b"}"


# -- many small things -------------------------------------------------------------------------


@_body
def _prompts_of_one_token() -> Body:
    return COMPLETIONS, b'{"prompt":[' + repeated(b"[1]", MANY) + b"]}"


@_body
def _prompts_of_one_letter() -> Body:
    return COMPLETIONS, b'{"prompt":[' + repeated(b'"a"', MANY) + b"]}"


@_body
def _one_prompt_of_many_tokens() -> Body:
    return COMPLETIONS, b'{"prompt":[' + repeated(b"1", MANY) + b"]}"


@_body
def _unknown_fields() -> Body:
    return chat(keys(MANY))


@_body
def _the_same_field_again_and_again() -> Body:
    return chat(repeated(b'"seed":1', MANY))


@_body
def _template_options() -> Body:
    return chat(b'"chat_template_kwargs":{' + keys(MANY, b'""') + b"}")


@_body
def _tools() -> Body:
    tool = b'{"type":"function","function":{"name":"f","parameters":{}}}'
    return chat(b'"tools":[' + repeated(tool, 300_000) + b"]")


@_body
def _biases() -> Body:
    return chat(b'"logit_bias":{' + b",".join(b'"%d":1' % at for at in range(MANY)) + b"}")


@_body
def _biases_that_are_all_wrong() -> Body:
    return chat(b'"logit_bias":{' + keys(100_000, b'"x"') + b"}")


@_body
def _wrong_alternatives() -> Body:
    return chat(b'"guided_choice":[' + repeated(b"1", 200_000) + b"]")


@_body
def _wrong_tokens_to_detokenize() -> Body:
    return "/detokenize", b'{"tokens":[' + repeated(b'"x"', 500_000) + b"]}"


@_body
def _stops() -> Body:
    return chat(b'"stop":[' + repeated(b'"x"', MANY) + b"]")


@_body
def _empty_lists() -> Body:
    return chat(b'"metadata":{"x":[' + repeated(b"[]", MANY) + b"]}")


@_body
def _nested_lists() -> Body:
    return chat(b'"metadata":{"x":[' + repeated(b"[" * 50 + b"]" * 50, 40_000) + b"]}")


@_body
def _very_deep_lists() -> Body:
    return chat(b'"metadata":{"x":' + b"[" * 10 * MB + b"]" * 10 * MB + b"}")


@_body
def _fractions_that_are_slow_to_read() -> Body:
    return chat(b'"metadata":{"x":[' + repeated(b"1.7976931348623157e307", MANY) + b"]}")


@_body
def _long_fractions() -> Body:
    number = b"0." + b"1" * 700 + b"e-300"
    return chat(b'"metadata":{"x":[' + repeated(number, 30_000) + b"]}")


@_body
def _one_endless_number() -> Body:
    return chat(b'"seed":1.' + b"0" * 40 * MB + b"1")


# -- many messages, parts and items that each are fine -----------------------------------------


@_body
def _messages() -> Body:
    return CHAT, b'{"messages":[' + repeated(_ITEM, 400_000) + b"]}"


@_body
def _messages_that_are_allowed() -> Body:
    return CHAT, b'{"max_tokens":2,"messages":[' + repeated(_ITEM, 16_384) + b"]}"


@_body
def _messages_of_many_parts() -> Body:
    message = b'{"role":"user","content":[' + repeated(_TEXT, 2_000) + b"]}"
    return CHAT, b'{"max_tokens":2,"messages":[' + repeated(message, 60) + b"]}"


@_body
def _blocks() -> Body:
    message = b'{"role":"user","content":[' + repeated(_TEXT, 2_000) + b"]}"
    return MESSAGES, b'{"max_tokens":2,"messages":[' + repeated(message, 60) + b"]}"


@_body
def _thoughts_one_after_the_other() -> Body:
    thought = b'{"type":"reasoning","summary":[{"type":"summary_text","text":"%b"}]}' % (
        b"hm " * 1000
    )
    return RESPONSES, b'{"input":[' + _ITEM + b"," + repeated(thought, 12_000) + b"]}"


@_body
def _replies_around_a_call() -> Body:
    call = b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}'
    reply = b'{"role":"assistant","content":[{"type":"output_text","text":"%b"},' + b"%b" + b"]}"
    said = reply % (b"hm " * 800, b'{"type":"output_text","text":"x"}')
    inside = b",".join([_ITEM, call, repeated(said, 12_000)])
    return RESPONSES, b'{"max_output_tokens":2,"input":[' + inside + b"]}"


@_body
def _allowed_tools_against_tools() -> Body:
    tools = b",".join(
        b'{"type":"function","function":{"name":"f%d","parameters":{}}}' % at for at in range(1000)
    )
    named = b",".join(b'{"name":"f%d"}' % (at % 1000) for at in range(60_000))
    choice = b'{"type":"allowed_tools","mode":"auto","tools":[' + named + b"]}"
    return chat(b'"tools":[' + tools + b'],"tool_choice":' + choice)


@_body
def _a_tool_of_many_properties() -> Body:
    schema = b'{"type":"object","properties":{' + keys(120_000, b"{}") + b"}}"
    tool = b'{"type":"function","function":{"name":"f","parameters":' + schema + b"}}"
    return chat(b'"tools":[' + tool + b"]")


# -- long strings ------------------------------------------------------------------------------


@_body
def _a_text_of_escapes() -> Body:
    return chat(b'"user":"' + b"\\n" * 28 * MB + b'"')


@_body
def _a_text_with_one_picture_character() -> Body:
    text = b"a" * 60 * MB + "\N{GRINNING FACE}".encode()
    return CHAT, b'{"max_tokens":2,"messages":[{"role":"user","content":"' + text + b'"}]}'


@_body
def _texts_of_picture_characters() -> Body:
    text = b'{"type":"text","text":"' + "\N{GRINNING FACE}".encode() * 3 * MB + b'"}'
    content = repeated(text, 4)
    return CHAT, b'{"max_tokens":2,"messages":[{"role":"user","content":[' + content + b"]}]}"


@_body
def _a_picture_of_50_megabytes() -> Body:
    url = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}' % (b"A" * 50 * MB)
    return CHAT, b'{"max_tokens":2,"messages":[{"role":"user","content":[' + url + b"]}]}"


@_body
def _a_long_name_of_a_model() -> Body:
    return chat(b'"model":"' + b"m" * 50 * MB + b'"')


@_body
def _a_long_name_of_a_field() -> Body:
    return chat(b'"logit_bias":{"' + b"9" * 30 * MB + b'":"x"}')


@_body
def _a_schema_inside_a_string() -> Body:
    inside = "{" + ",".join(f'"k{at}":[]' for at in range(1_500_000)) + "}"
    return chat(b'"guided_json":' + json.dumps(inside).encode())


@_body
def _a_deep_schema_inside_a_string() -> Body:
    return chat(b'"guided_json":"' + b"[" * MB + b'"')


@_body
def _long_instructions_in_a_stream() -> Body:
    head = b'{"stream":true,"input":"Hello","instructions":"'
    return RESPONSES, head + b'\\"' * 7 * MB + b'"}'


@_body
def _a_file_of_percent_signs() -> Body:
    part = b'{"type":"input_file","file_data":"data:text/plain,' + b"%41" * 15 * MB + b'"}'
    return RESPONSES, b'{"input":[{"role":"user","content":[' + part + b"]}]}"


@_body
def _a_text_to_tokenize() -> Body:
    return "/tokenize", b'{"prompt":"' + b"a b " * 2 * MB + b'"}'


def bodies() -> Iterator[tuple[str, Body]]:
    for name, make in BODIES.items():
        yield name.replace("_", " "), make()
