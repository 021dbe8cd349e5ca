"""What templates can take is found by rendering, never guessed."""

from typing import Any

import pytest

from bushel.chat.reply.format_detection import reply_format_of
from bushel.core.options import ChatOptions
from bushel.models.load import open_host
from bushel.text.template_abilities import Abilities, Effort, Switch
from bushel.text.template_probe import UNKNOWN, TemplateProbe
from bushel.text.tokenizer import Tokenizer
from tests.chat.preparers import host as host_of
from tests.chat.templates import ALL, MADE, OWN, REAL, templated

pytestmark = pytest.mark.corpus


def can(name: str) -> Abilities:
    return templated(name).profile.abilities


# What each of the made-up templates has that others have not.
KNOWN: dict[str, dict[str, Any]] = {
    "chatml_json": {
        **{
            "calls": "object",
            "text_arguments": True,
            "text_with_calls": "beside",
            "parallel": True,
        },
        **{"system": True, "middle": True, "users": True, "reply_first": True, "thoughts": ""},
        **{"images": {"user", "tool"}, "tools": "nested", "after_results": True},
    },
    "chatml_thinking": {
        **{"middle": False, "alone": False, "thoughts": "reasoning_content", "forgets": True},
        **{"switch": Switch("enable_thinking", True, False), "text_arguments": False},
    },
    "alternating": {
        **{"system": False, "users": False, "assistants": False, "reply_first": False},
        **{"tools": "", "calls": "", "results": False, "images": set()},
    },
    "bracketed": {
        **{
            "ids": "nine",
            "text_with_calls": "",
            "after_results": False,
            "gap": True,
            "unanswered": False,
        },
        **{"system": False, "users": False, "parallel": True, "calls": "object"},
    },
    "headed": {"parallel": False, "text_with_calls": "before", "ids": "any"},
    "gathered": {
        **{"middle": False, "calls": "text", "text_arguments": True, "silence": None},
        **{"thoughts": "content", "text_with_calls": "before"},
    },
    "indexed": {"ids": "indexed", "calls": "object", "images": {"user", "tool"}},
    "channels": {
        **{"orphans": False, "parallel": False, "middle": False},
        "effort": Effort("reasoning_effort", frozenset(("low", "medium", "high")), strict=True),
    },
    "listed": {"tools": "nested", "calls": "", "results": True, "orphans": True},
    "parts_only": {"as_parts": True, "images": {"user"}, "tools": ""},
    "signatures": {"needs_tools": True, "any_schema": False, "tools": "nested"},
}


@pytest.mark.parametrize("name", sorted(MADE))
def test_abilities_of_a_template(name: str) -> None:
    found = can(name)
    for ability, wanted in KNOWN[name].items():
        assert getattr(found, ability) == wanted, ability


REALLY: dict[str, dict[str, Any]] = {
    "Qwen3.5-4B": {"middle": False, "alone": False, "forgets": True, "images": {"user", "tool"}},
    "meta-llama-Llama-3.1-8B-Instruct": {
        "parallel": False,
        "text_with_calls": "before",
        "middle": True,
    },
    "google-gemma-2-2b-it": {"system": False, "users": False, "tools": ""},
    "mistralai-Mistral-Nemo-Instruct-2407": {"ids": "nine", "after_results": False},
    "moonshotai-Kimi-K2": {"ids": "numbered"},
    "openai-gpt-oss-120b": {"parallel": False, "orphans": False, "text_with_calls": "before"},
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {"calls": "text", "thoughts": "content"},
    "hfjs-HuggingFaceTB-SmolVLM-Instruct": {"as_parts": True},
    "mistralai-Ministral-3-14B-Reasoning-2512": {"thoughts": "part"},
    "upstage-Solar-Open-100B": {"thoughts": "reasoning"},
    "vllm-tool-hermes": {"any_schema": False},
    "vllm-tool-functiongemma": {"below_system": True, "needs_tools": True},
    "MiniMax-M3": {"switch": Switch("thinking_mode", "enabled", "disabled")},
    "ByteDance-Seed-OSS": {"budget": "thinking_budget"},
}


@pytest.mark.parametrize("name", sorted(REALLY.keys() & REAL.keys()))
def test_abilities_of_a_real_template(name: str) -> None:
    found = can(name)
    for ability, wanted in REALLY[name].items():
        assert getattr(found, ability) == wanted, ability


def test_they_are_found_once_and_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    render = Tokenizer.render

    def counted(self: Tokenizer, *args: Any, **more: Any) -> str:
        said.append(1)
        return render(self, *args, **more)

    monkeypatch.setattr(Tokenizer, "render", counted)
    for name in (*OWN, *MADE):
        said.clear()
        TemplateProbe(templated(name).tokenizer).find()
        assert 10 < len(said) < 64
    first = templated("thinking").profile.abilities
    said.clear()
    assert templated("thinking").profile.abilities is first
    assert not said


BROKEN = {
    "raises": "{{- raise_exception('Never.') -}}",
    "says nothing": "",
    "is wrong": "{{- messages[0].content.nothing.at.all -}}",
    "adds": "{{- messages + 1 -}}",
    "is no template": "{%- for m in messages -%}",
}


@pytest.mark.parametrize("template", BROKEN.values(), ids=BROKEN)
def test_a_template_that_renders_nothing_is_given_what_was_sent(
    template: str, tmp_path: Any
) -> None:
    """So that it is the template who refuses it, in its own words. B16."""
    assert host_of(tmp_path, template).profile.abilities == UNKNOWN


@pytest.mark.parametrize("name", sorted(ALL))
def test_options_for_thinking_are_those_that_the_template_reads(name: str) -> None:
    """However thinking is asked for, the template gets only names that it reads. B15."""
    found = can(name)
    for asked in (
        *({"enabled": it} for it in (True, False, None)),
        *({"effort": it} for it in ("none", "minimal", "low", "medium", "high", "xhigh", "odd")),
        *({"budget": it} for it in (0, 500)),
        {"enabled": False, "effort": "high", "budget": 9},
    ):
        assert found.thinking_options(asked).keys() <= templated(name).tokenizer.options


def test_efforts_go_to_the_nearest_that_is_known() -> None:
    strict = Effort("e", frozenset(("low", "medium", "high")), strict=True)
    words = ("minimal", "low", "medium", "high", "xhigh", "max", "odd")
    found = [strict.nearest(word) for word in words]
    assert found == ["low", "low", "medium", "high", "high", "high", None]
    few = Effort("e", frozenset(("low", "high", "max")), strict=True)
    assert few.nearest("medium") == "low"
    only = Effort("e", frozenset(("max",)), strict=False)
    assert [only.nearest(word) for word in words] == [None] * 4 + ["max", "max", None]
    weak = Effort("e", frozenset(("low", "minimal")), strict=False)
    assert [weak.nearest(word) for word in words] == ["minimal", "low", *[None] * 5]


def test_what_is_said_of_thinking_turns_the_switch() -> None:
    switch = Abilities(switch=Switch("t", "yes", "no"))
    for asked, wanted in (
        ({}, {}),
        ({"enabled": True}, {"t": "yes"}),
        ({"enabled": False, "effort": "high"}, {"t": "no"}),
        ({"effort": "none"}, {"t": "no"}),
        ({"effort": "minimal"}, {}),
        ({"effort": "high"}, {"t": "yes"}),
        ({"budget": 0}, {"t": "no"}),
        ({"budget": 100}, {"t": "yes"}),
        ({"enabled": None, "effort": None, "budget": None}, {}),
    ):
        assert switch.thinking_options(asked) == wanted
        assert Abilities().thinking_options(asked) == {}
    effort = Abilities(effort=Effort("e", frozenset(("no_think", "low", "high")), strict=True))
    assert effort.thinking_options({"enabled": False}) == {"e": "no_think"}
    assert effort.thinking_options({"effort": "medium"}) == {"e": "low"}
    budget = Abilities(budget="b")
    assert budget.thinking_options({"enabled": True, "budget": 512}) == {"b": 512}


def test_of_several_forms_in_a_template_the_one_it_writes_counts() -> None:
    """The tiny model's template has two, and writes JSON unless it is told otherwise. B25."""
    host = open_host("bushel:tiny", trust_remote_code=False)
    assert "<function=" in host.tokenizer.template
    assert reply_format_of(host, ChatOptions()).tools == "hermes"
    assert reply_format_of(host, ChatOptions(tools="xml")).tools == "xml"
