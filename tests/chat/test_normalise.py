"""Conversations in the form that each template needs, without loss (B11, B12, B13, B17, B18)."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bushel.chat.media.decode import OWN as OPEN
from bushel.chat.media.decode import Intake
from bushel.chat.parse_messages import ParsedMessages, joined
from bushel.chat.prompt import PLAIN, prepare, read
from bushel.chat.template.normalise import normalise, pictures_of, tools_for
from bushel.chat.template.to_template import nine
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.chat.tool_parsers.tool_format import InlineCalls
from bushel.core import RequestError
from bushel.core.options import ChatOptions
from bushel.text.template_probe import UNKNOWN
from tests.chat.conversations import TOOLS, common
from tests.chat.templates import MADE, templated
from tests.depth import one_in, some
from tests.families.images import SMALL, picture

HOIST = ChatOptions(hoist=True)
TAKES_ALL = UNKNOWN


def system(said: str) -> dict[str, Any]:
    return {"role": "system", "content": said}


def user(said: Any) -> dict[str, Any]:
    return {"role": "user", "content": said}


def reply(said: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": said, **more}


def call(arguments: Any = "{}", id: str = "call_1", name: str = "get_weather") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: dict[str, Any], said: Any = None, **more: Any) -> dict[str, Any]:
    return reply(said, tool_calls=list(made), **more)


def result(said: Any, id: str | None = "call_1") -> dict[str, Any]:
    return {"role": "tool", "content": said, **({"tool_call_id": id} if id else {})}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def see(seed: int = 0) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": picture(SMALL, seed)}}


def shown(name: str, *turns: Any, chat_options: ChatOptions = PLAIN, **more: Any) -> str:
    found = read(templated(name), {"messages": list(turns), **more}, chat_options=chat_options)
    return found.call.render()


def refused(name: str, *turns: Any, **more: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        prepare(templated(name), {"messages": list(turns), **more})
    return caught.value


def places(said: str, *words: str) -> list[int]:
    assert all(said.count(word) == 1 for word in words), said
    return [said.index(word) for word in words]


def in_order(said: str, *words: str) -> bool:
    found = places(said, *words)
    return found == sorted(found)


# -- roles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_developer_is_the_system(name: str) -> None:
    """Wherever it stands, the template sees a system message. B11."""
    turns = [system("One."), user("Two?"), reply("Three."), system("Four."), user("Five?")]
    other = [{**turn, "role": "developer"} if turn["role"] == "system" else turn for turn in turns]
    assert shown(name, *turns) == shown(name, *other)


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_text_and_a_list_of_one_text_are_the_same(name: str) -> None:
    turns = [system("One."), user("Two?"), reply("Three."), user("Four?")]
    listed = [{**turn, "content": [text(turn["content"])]} for turn in turns]
    assert shown(name, *turns) == shown(name, *listed)


def test_results_may_be_lists_of_texts() -> None:
    round = [user("?"), calls(call())]
    two = shown("headed", *round, result([text("one"), text("two")]), tools=TOOLS)
    assert two == shown("headed", *round, result("one\ntwo"), tools=TOOLS)


@pytest.mark.parametrize("name", sorted(MADE))
def test_leading_system_messages_are_one(name: str) -> None:
    """The model reads both, one after the other. B13."""
    said = shown(name, system("First."), system("Second."), user("Third?"))
    assert in_order(said, "First.\n\nSecond.", "Third?")


def test_a_template_without_a_system_message_has_it_in_the_first_question() -> None:
    said = shown("alternating", system("Be brief."), user("Why?"), reply("So."), user("How?"))
    assert "user\nBe brief.\n\nWhy?<end_of_turn>" in said


def test_a_system_message_alone_is_a_question_where_there_must_be_one() -> None:
    assert "<|im_start|>user\nBe brief.<|im_end|>" in shown("chatml_thinking", system("Be brief."))
    assert "<|im_start|>system\nBe brief.<|im_end|>" in shown("chatml_json", system("Be brief."))


def test_a_later_system_message_stays_where_templates_take_it() -> None:
    """It is a system turn of its own in the middle of the prompt. B13."""
    turns = [user("Why?"), reply("So."), system("Be brief."), user("How?")]
    assert "<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>" in shown("chatml_json", *turns)


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_later_system_message_keeps_its_place(name: str) -> None:
    """Before a question, behind one, and before the reply. B13."""
    for words in (
        [user("u0"), reply("a0"), system("s0"), user("u1")],
        [user("u0"), system("s0"), reply("a0"), user("u1")],
        [system("s9"), user("u0"), reply("a0"), user("u1"), system("s0")],
        [user("u0"), system("s0"), system("s1"), user("u1")],
        [user("u0"), reply("a0"), system("s0")],
    ):
        assert in_order(shown(name, *words), *(word["content"] for word in words))


def test_a_later_system_message_is_folded_into_the_turn_beside_it() -> None:
    """The user turn before or behind it holds its text. B13."""
    behind = shown("chatml_thinking", user("Why?"), system("Be brief."), reply("So."), user("How?"))
    assert "user\nWhy?\n\nBe brief.<|im_end|>" in behind
    before = shown("chatml_thinking", user("Why?"), reply("So."), system("Be brief."), user("How?"))
    assert "user\nBe brief.\n\nHow?<|im_end|>" in before


@pytest.mark.parametrize("name", sorted(MADE))
def test_hoisting_puts_all_system_messages_at_the_top(name: str) -> None:
    turns = [system("s0"), user("u0"), reply("a0"), system("s1"), user("u1")]
    assert in_order(shown(name, *turns, chat_options=HOIST), "s0", "s1", "u0", "a0", "u1")


def test_a_system_message_behind_results_makes_nobody_forget() -> None:
    """As a question of its own it would take the thoughts before it away. B13."""
    round = [user("u0"), calls(call(), reasoning_content="Hm."), result("r0")]
    before = shown("chatml_thinking", *round, tools=TOOLS)
    round += [calls(call(id="b"), reasoning_content="So."), result("r1", "b"), system("s0")]
    after = shown("chatml_thinking", *round, tools=TOOLS)
    assert after.startswith(before)
    assert in_order(after, "Hm.", "r0", "So.", "r1", "s0")
    assert "Hm." not in shown("chatml_thinking", *round[:-1], user("u1"), tools=TOOLS)  # a control


def test_roles_alternate_where_they_must() -> None:
    """Two questions in a row become one turn, but only for templates that need it. B12."""
    turns = [user("u0"), user("u1"), reply("a0"), reply("a1"), user("u2")]
    said = shown("alternating", *turns)
    assert "u0\n\nu1<end_of_turn>" in said
    assert "a0\n\na1<end_of_turn>" in said
    assert shown("chatml_json", *turns).count("<|im_start|>") == 6


def test_a_reply_before_any_question_is_kept() -> None:
    for name in ("alternating", "bracketed", "chatml_json"):
        assert in_order(
            shown(name, reply("Good morning."), user("Hello.")), "Good morning.", "Hello."
        )


# -- content ---------------------------------------------------------------------------------------

words = st.sampled_from(["one", "two", "three", "", "a\nb"])
parts = st.lists(st.one_of(words.map(text), st.just("see")), min_size=1, max_size=4)
contents = st.one_of(words, parts)
talks = st.lists(
    st.tuples(st.sampled_from(["system", "user", "assistant", "developer"]), contents),
    min_size=1,
    max_size=7,
)


def said_in(turns: list[Any]) -> list[Any]:
    """Words and pictures in order, however they are grouped."""
    found: list[Any] = []
    for turn in turns:
        content = turn["content"]
        for part in [text(content)] if isinstance(content, str) else content:
            found += part["text"].split() if part["type"] == "text" else [part.at]
    return found


@pytest.mark.parametrize("name", ["alternating", "chatml_thinking", "bracketed", "chatml_json"])
@given(talk=talks)
@settings(max_examples=some(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_merging_and_folding_keep_every_part_in_order(
    name: str, talk: list[tuple[str, Any]]
) -> None:
    """Nothing that was said is lost or moved, and no picture either. B12, B13."""
    messages = [
        {"role": role, "content": [see() if it == "see" else it for it in said]}
        if isinstance(said, list)
        else {"role": role, "content": said}
        for role, said in talk
    ]
    media = Intake(OPEN)
    turns = ParsedMessages(messages, [], media).turns
    can = templated(name).profile.abilities
    found = normalise(turns, can)
    assert said_in(found) == said_in(turns)
    assert pictures_of(found) == list(range(len(media.items)))
    roles = [it["role"] for it in found]
    if not can.users:
        assert all(a != b for a, b in pairwise(roles))
    if not can.middle:
        assert "system" not in roles[1:]


@pytest.mark.parametrize("name", one_in(2, sorted(set(MADE) - {"bracketed"})))
@given(talk=talks, more=talks)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_comes_later_changes_no_earlier_token(
    name: str, talk: list[tuple[str, Any]], more: list[tuple[str, Any]]
) -> None:
    """Wherever system messages come, a prompt begins with the one before it. B13."""

    def plain(said: Any) -> str:
        return (
            " ".join(it for it in said if isinstance(it, str)) if isinstance(said, list) else said
        )

    turns = [{"role": role, "content": f"x{plain(it)}x"} for role, it in talk]
    begun = [*turns, user("What now?")]
    later = [{"role": role, "content": f"y{plain(it)}y"} for role, it in more]
    one = shown(name, *begun, chat_template_kwargs={"add_generation_prompt": False})
    two = shown(name, *begun, reply("This."), *later)
    end = one.rindex("What now?") + len("What now?")
    if any(turn["role"] in ("user", "assistant") for turn in turns):
        assert common(one, two) >= end


def test_lists_of_parts_are_kept_whole() -> None:
    """Two messages with pictures become one list of all their parts. B12."""
    one, two = [text("a"), see()], [text("b"), see(1)]
    assert joined(one, two) == [*one, *two]
    assert joined([*one, text("c")], two) == [*one, text("c"), text("\n\n"), *two]
    assert joined("a", two) == [text("a"), text("\n\n"), *two]
    assert joined("a", "b") == "a\n\nb"
    assert joined("", two) == two
    assert joined(one, "") == one


BAD: list[tuple[Any, str]] = [
    ("hello", "messages[1]"),
    ({"content": "hello"}, "messages[1]"),
    (user([]), "messages[1].content"),
    (user(5), "messages[1].content"),
    (user([text("a"), "b"]), "messages[1].content[1]"),
    (user([text("a"), {"type": "odd"}]), "messages[1].content[1]"),
    (user([{"type": "tool_reference", "name": "x"}]), "messages[1].content[0]"),
    (result([text("a"), {"type": "tool_reference"}]), "messages[1].content[1]"),
    (reply("", tool_calls="x"), "messages[1].tool_calls"),
    (reply("", tool_calls=["x"]), "messages[1].tool_calls[0]"),
    (calls(call(), {"function": {}}), "messages[1].tool_calls[1]"),
    (calls(call(arguments=[1])), "messages[1].tool_calls[0].function.arguments"),
    (calls({**call(), "id": 5}), "messages[1].tool_calls[0].id"),
]


@pytest.mark.parametrize(("message", "where"), BAD, ids=repr)
def test_what_is_malformed_is_named(message: Any, where: str) -> None:
    """The error begins with the place of what is wrong. B17."""
    error = refused("chatml_json", user("Hello"), message, tools=TOOLS)
    assert str(error).startswith(f"{where} ")
    assert error.param == "messages"


# -- calls -----------------------------------------------------------------------------------------


def test_arguments_are_objects_in_the_template() -> None:
    """A template never gets a text inside a text. B18."""
    said = shown("headed", user("?"), calls(call('{"city": "Zürich", "n": [1, true, null]}')),
                 result("x"), tools=TOOLS)  # fmt: skip
    assert '"parameters": {"city": "Zürich", "n": [1, true, null]}' in said


def test_arguments_are_text_where_the_template_needs_that() -> None:
    written = '{"city":  "Zürich"}'  # as it was sent
    for sent in (written, json.loads(written)):
        said = shown("gathered", user("?"), calls(call(sent)), result("x"), tools=TOOLS)
        assert re.search(r"get_weather\n\{.city.: +.Zürich.\}<", said)
    assert written in shown("gathered", user("?"), calls(call(written)), tools=TOOLS)


@pytest.mark.parametrize("empty", ["", "  ", None, "{}", {}])
def test_no_arguments_are_an_empty_object(empty: Any) -> None:
    said = shown("headed", user("?"), calls(call(empty)), result("x"), tools=TOOLS)
    assert '"parameters": {}}' in said


@pytest.mark.parametrize("wrong", ['{"city": ', "[1]", "NaN", '{"a": NaN}'])
def test_arguments_that_are_no_object_stay_or_are_refused(wrong: str) -> None:
    turns = [user("?"), calls(call(), call(wrong, "b")), result("x"), result("y", "b")]
    assert wrong in shown("chatml_json", *turns, tools=TOOLS)
    error = refused("headed", *turns, tools=TOOLS)
    assert str(error).startswith("messages[1].tool_calls[1] ")


@pytest.mark.parametrize(
    "number",
    [
        "0.1",
        "12345678901234567890123",
        "0.12345678901234567890123",
        "-1e400",
        "1e-7",
        "2.50",
        "1E5",
    ],
)
def test_numbers_lose_no_digit(number: str) -> None:
    for name in ("headed", "chatml_thinking", "gathered"):
        said = shown(name, user("?"), calls(call(f'{{"x": {number}}}')), result("r"), tools=TOOLS)
        found = re.search(r"x[\">: ]+(-?[0-9][0-9.eE+-]*)", said[said.index("?") :])
        assert found is not None
        assert Decimal(found[1]) == Decimal(number)


@pytest.mark.parametrize("silence", [None, "", "\n", [text(" ")]])
def test_silence_beside_calls_has_one_form(silence: Any) -> None:
    for name in sorted(MADE):
        if templated(name).profile.abilities.calls:
            turns = [user("?"), calls(call(), said=silence), result("x")]
            plain = [user("?"), calls(call(), said=""), result("x")]
            assert shown(name, *turns, tools=TOOLS) == shown(name, *plain, tools=TOOLS)


def test_no_text_is_invented() -> None:
    """After many rounds all that stands between the words is markup. B18."""
    turns: list[Any] = [user("u0")]
    for at in range(12):
        turns += [calls(call({"city": f"c{at}"}, f"id{at}")), result(f"r{at}", f"id{at}")]
    said = shown("chatml_json", *turns, tools=TOOLS)
    assert "alling" not in said
    rounds = re.findall(r"<tool_call>\n(.*)\n</tool_call>", said)
    wanted = [{"name": "get_weather", "arguments": {"city": f"c{at}"}} for at in range(12)]
    assert [json.loads(it) for it in rounds] == wanted


def test_several_calls_become_rounds_where_only_one_is_taken() -> None:
    turns = [
        user("u0"),
        calls(call({"city": "c0"}, "a"), call({"city": "c1"}, "b"), said="t0"),
        result("r1", "b"),
        result("r0", "a"),
    ]
    for name in ("headed", "channels"):
        assert in_order(shown(name, *turns, tools=TOOLS), "u0", "t0", "c0", "r0", "c1", "r1")
    said = shown("chatml_json", *turns, tools=TOOLS)
    assert in_order(said, "u0", "t0", "c0", "c1", "r0", "r1")


def test_ids_have_the_form_that_the_template_demands() -> None:
    turns = [user("u0"), calls(call({"city": "c0"}, "toolu_01AbC"), call("{}", "b")),
             result("r1", "b"), result("r0", "toolu_01AbC")]  # fmt: skip
    said = shown("bracketed", *turns, tools=TOOLS)
    one, two = (nine(it) for it in ("toolu_01AbC", "b"))
    assert said.count(one) == said.count(two) == 2
    assert in_order(said, f'"r0", "call_id": "{one}"', f'"r1", "call_id": "{two}"')
    more = [*turns, calls(call({"city": "c2"}, "c")), result("r2", "c")]
    said = shown("indexed", *more, tools=TOOLS)
    assert re.findall(r"functions\.get_weather:\d", said) == [
        f"functions.get_weather:{at}" for at in (0, 1, 0, 1, 2, 2)
    ]
    assert "toolu_01AbC" in shown("headed", *turns[:1], reply("toolu_01AbC"), tools=TOOLS)


@given(id=st.text(max_size=30))
def test_nine_letters_and_digits(id: str) -> None:
    assert re.fullmatch("[A-Za-z0-9]{9}", nine(id))
    assert nine(nine(id)) == nine(id)


def test_ids_do_not_collide() -> None:
    assert len({nine(f"call_{at}") for at in range(5000)}) == 5000


def test_results_without_ids_belong_to_the_calls_in_turn() -> None:
    turns = [user("?"), calls(call({"city": "c0"}, "a"), call({"city": "c1"}, "b")),
             result("r0", None), result("r1", None)]  # fmt: skip
    found = normalise(ParsedMessages(turns, [], Intake(OPEN)).turns, TAKES_ALL)
    assert [it.get("tool_call_id") for it in found[2:]] == ["a", "b"]
    assert [it.get("name") for it in found[2:]] == ["get_weather"] * 2


def test_calls_in_the_older_form() -> None:
    old = reply(None, function_call={"name": "get_weather", "arguments": '{"city": "c0"}'})
    answered = {"role": "function", "name": "get_weather", "content": "r0"}
    for name in ("chatml_json", "bracketed", "indexed", "headed"):
        said = shown(name, user("u0"), old, answered, tools=TOOLS)
        assert in_order(said, "u0", "c0", "r0")


def test_what_has_no_partner_is_carried() -> None:
    """Results without calls, and calls without results."""
    for name in sorted(MADE):
        can = templated(name).profile.abilities
        if not can.calls:
            continue
        lost = shown(name, user("u0"), result("r0", "gone"), reply("a0"), user("u1"), tools=TOOLS)
        assert in_order(lost, "u0", "r0", "a0", "u1")
        open_ = [user("u0"), calls(call({"city": "c0"})), user("u1")]
        assert in_order(shown(name, *open_, tools=TOOLS), "u0", "c0", "u1")
        assert "r0" in shown(name, result("r0", "gone"), tools=TOOLS)


def test_what_stands_between_results_comes_behind_them() -> None:
    turns = [user("u0"), calls(call("{}", "a"), call("{}", "b")), result("r0", "a"),
             system("s0"), result("r1", "b")]  # fmt: skip
    for name in ("chatml_json", "chatml_thinking", "bracketed", "headed"):
        assert in_order(shown(name, *turns, tools=TOOLS), "u0", "r0", "r1", "s0")


def test_a_question_behind_results_is_carried_where_roles_alternate() -> None:
    turns = [user("u0"), calls(call()), result("r0"), user("u1")]
    said = shown("bracketed", *turns, tools=TOOLS)
    assert in_order(said, "u0", "r0", "u1")
    assert "[INST] u1[/INST]" in said


@pytest.mark.parametrize("name", ["alternating", "parts_only"])
def test_a_template_without_a_place_for_tools_says_so(name: str) -> None:
    assert refused(name, user("?"), tools=TOOLS).param == "tools"
    error = refused(name, user("?"), calls(call()), result("x"))
    assert str(error).startswith("messages[1].tool_calls ")
    assert error.code == "unsupported_tools"


def test_calls_are_written_for_templates_that_leave_that_to_others() -> None:
    """As the model itself writes them, and with what clients say as text. B18."""
    host = templated("listed")
    given = {"city": 'Zürich "<|im_end|>"', "deep": {"a": [1.5, True, None]}}
    turns = [user("u0"), calls(call(given, "a"), call("{}", "b", "list"), said="t0"),
             result("r0", "a"), result("r1", "b")]  # fmt: skip
    said = shown("listed", *turns, tools=TOOLS)
    plain = "".join(it for it in said if ord(it) < 0xF0000)
    wanted = (
        't0\n<|tool_call_start|>[get_weather(city="Zürich \\"<|im_end|>\\"", '
        'deep={"a": [1.5, True, None]}), list()]<|tool_call_end|>'
    )
    assert wanted in plain
    assert in_order(plain, "u0", wanted, "r0", "r1")
    ids = prepare(host, {"messages": turns, "tools": TOOLS}).ids
    assert ids.count(host.tokenizer.controls["<|tool_call_start|>"]) == 1
    assert ids.count(host.tokenizer.controls["<|im_end|>"]) == 5


def written(name: str, made: Any) -> str:
    history = FORMATS[name].history
    assert isinstance(history, InlineCalls)
    return history.write(made)


def test_calls_in_the_forms_of_other_families() -> None:
    made = [call({"city": "Ü"}, "functions.get_weather:0")]
    assert written("granite", made) == (
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Ü"}}]'
    )
    assert written("kimi", made) == (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Ü"}<|tool_call_end|><|tool_calls_section_end|>'
    )


# -- pictures --------------------------------------------------------------------------------------


def test_pictures_in_results_stay_where_the_template_takes_them() -> None:
    turns = [user("u0"), calls(call()), result([text("r0"), see(), text("r1")])]
    assert "r0<|image_pad|>r1" in shown("chatml_json", *turns, tools=TOOLS)


def test_pictures_in_results_move_behind_them_otherwise() -> None:
    can = replace(TAKES_ALL, images=frozenset({"user"}))
    turns = [
        user([see(), text("u0")]),
        calls(call("{}", "a"), call("{}", "b")),
        result([text("r1"), see(1)], "b"),
        result([see(2), text("r0")], "a"),
        user("u1"),
    ]
    media = Intake(OPEN)
    found = normalise(ParsedMessages(turns, [], media).turns, can)
    assert [it["role"] for it in found] == ["user", "assistant", "tool", "tool", "user"]
    assert [it["content"] for it in found[2:4]] == ["r0", "r1"]
    assert [it["type"] for it in found[4]["content"]] == ["image", "image", "text"]
    assert pictures_of(found) == [0, 2, 1]  # that of the first call comes first


def test_a_text_model_says_that_it_sees_nothing() -> None:
    for name in ("alternating", "chatml_json", "plain"):
        error = refused(name, user([text("What is it?"), see()]))
        assert "is a text model" in str(error)


# -- tools -----------------------------------------------------------------------------------------


def tool(name: str, **more: Any) -> dict[str, Any]:
    function = {"name": name, "description": f"About {name}.", "parameters": {"type": "object"}}
    return {"type": "function", "function": function, **more}


def test_deferred_tools_are_told_where_they_are_referred_to() -> None:
    search = [user("u0"), calls(call(name="search"))]
    found = result([{"type": "tool_reference", "name": "later"}])
    before = shown("chatml_json", *search, tools=[tool("search"), tool("later", deferred=True)])
    assert "About later" not in before
    for tools in (
        [tool("search"), tool("later", deferred=True), tool("never", deferred=True)],
        [tool("later"), tool("search")],  # some clients no longer call it deferred
    ):
        after = shown("chatml_json", *search, found, tools=tools)
        ended = before.removesuffix("<|im_start|>assistant\n")
        assert after.startswith(ended)
        told = re.search(r"<tool_response>\n(.*)\n</tool_response>", after)
        assert told is not None
        assert json.loads(told[1]) == tool("later")["function"]
        assert "never" not in after


def test_a_tool_that_is_not_there_is_referred_to_by_its_name() -> None:
    found = result([{"type": "tool_reference", "name": "gone"}])
    assert '{"name": "gone"}' in shown("chatml_json", user("?"), calls(call()), found, tools=TOOLS)


def test_tools_are_told_in_the_form_that_the_template_reads() -> None:
    assert tools_for([tool("a", deferred=True)], (), TAKES_ALL, called=False) is None
    flat = replace(TAKES_ALL, tools="flat")
    assert tools_for([tool("a")], (), flat, called=False) == [tool("a")["function"]]
    needs = replace(TAKES_ALL, needs_tools=True)
    assert tools_for([], (), needs, called=False) == []
    loose = tool("a")
    loose["function"] = {
        "name": "a",
        "parameters": {"properties": {"x": {"type": ["null", "integer"]}, "y": {}}},
    }
    said = shown("signatures", user("?"), tools=[loose])
    assert "def a(x: INTEGER # ; y: STRING # ; )" in said


def test_a_tool_may_be_given_without_its_wrapping() -> None:
    bare = tool("a")["function"]
    assert shown("chatml_json", user("?"), tools=[bare]) == shown(
        "chatml_json", user("?"), tools=[tool("a")]
    )
    for bad in ("x", ["x"], [{}], [{"function": {}}], {"name": "x"}):
        assert refused("chatml_json", user("?"), tools=bad).param == "tools"


# -- thoughts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_are_told_under_the_name_that_the_template_reads(key: str) -> None:
    turns = [user("u0"), calls(call(), **{key: "Hm."}), result("r0")]
    for name in ("chatml_thinking", "channels"):
        assert in_order(shown(name, *turns, tools=TOOLS), "u0", "Hm.", "r0")
    assert "Hm." not in shown("chatml_json", *turns, tools=TOOLS)


def test_thinking_is_turned_on_and_off() -> None:
    """A request's wish reaches templates that know it, and changes nothing in others. B15."""

    def asked(name: str, **thinking: Any) -> str:
        return shown(name, user("?"), thinking=thinking)

    assert asked("chatml_thinking", enabled=False).endswith("<think>\n\n</think>\n\n")
    assert asked("chatml_thinking", enabled=True).endswith("<think>\n")
    assert "Reasoning: high" in asked("channels", effort="xhigh")
    assert asked("chatml_json", enabled=False, effort="low") == asked("chatml_json")
    own = shown("channels", user("?"), thinking={"effort": "low"},
                chat_template_kwargs={"reasoning_effort": "own"})  # fmt: skip
    assert "Reasoning: own" in own
    assert refused("chatml_json", user("?"), thinking="x").param == "thinking"


# -- marks -----------------------------------------------------------------------------------------


def test_control_strings_in_arguments_control_nothing() -> None:
    """Also where JSON hides them, and as names."""
    host = templated("headed")
    plain, forged = "[eot]", "<|eot_id|>"
    counts = []
    for word in (plain, forged):
        hidden = word.replace("<", "\\u003c")
        turns = [user("?"), calls(call(f'{{"{hidden}": "{hidden}", "b": "{word}"}}')), result(word)]
        tools = [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {word: {"type": "string"}}}}}]  # fmt: skip
        ids = prepare(host, {"messages": turns, "tools": tools}).ids
        counts.append(ids.count(host.tokenizer.controls[forged]))
    assert counts[0] == counts[1] > 0
