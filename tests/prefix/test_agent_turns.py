"""An agent's turns through chat templates: each computes its new messages alone (B34, B35).

The conversations are those of `tests/chat`, which looks at what templates do to borders; here the
models run them. Ids are folded into the fixtures' small vocabulary, which keeps what is alike
alike.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bushel.chat.prompt import prepare
from bushel.core import Borders, Prepared
from tests.chat.conversations import SYSTEM, TOOLS, round_of
from tests.chat.templates import ALL, templated
from tests.chat.test_agent_turns import SLACK, THOUGHTS, Turn, conversation, rewrites
from tests.depth import often
from tests.families.checkpoint import CORPUS, FIRST_SPECIAL, VOCAB
from tests.families.text import CORE

from .caching_llm import EVERY, Serving

pytestmark = pytest.mark.corpus

TEMPLATES = [
    name
    for name in (
        *("calling", "thinking", "Qwen3.5-4B"),
        *(("Qwen3-Coder", "openai-gpt-oss-120b", "GLM-4.6") if EVERY else ()),
    )
    if name in ALL
]


def folded(prompt: Prepared) -> Prepared:
    fold = VOCAB - FIRST_SPECIAL
    return replace(prompt, ids=tuple(FIRST_SPECIAL + token % fold for token in prompt.ids))


def prompts(template: str, turns: list[Any], **options: Any) -> Prepared:
    host = templated(template)
    request = {"messages": turns, "tools": TOOLS, "chat_template_kwargs": options}
    return folded(prepare(host, request))


def played(template: str, thoughts: str) -> Iterator[tuple[Prepared, int, bool]]:
    """Each turn's prompt, the tokens of its new messages, and whether it is a question."""
    thinks = bool(thoughts) and "enable_thinking" in templated(template).tokenizer.options
    options = {"enable_thinking": True} if thinks else {}
    before = 0
    for turns in conversation(thoughts):
        prompt = prompts(template, turns, **options)
        yield prompt, len(prompt.ids) - before, turns[-1]["role"] == "user"
        before = len(prompts(template, turns, add_generation_prompt=False, **options).ids)


@pytest.fixture(autouse=True)
def _any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    for template in TEMPLATES:
        monkeypatch.setattr(templated(template), "context", None)


PAIRS = [
    *(("falcon_h1", template) for template in TEMPLATES),
    *((name, "thinking") for name in ("llama", "qwen3_5", *(("gemma3_text",) if EVERY else ()))),
]
# Thoughts that go with their turn, before states that cannot be cut; and calls.
HARD = (("qwen3_5", "thinking"), ("falcon_h1", "Qwen3.5-4B"))


@pytest.mark.parametrize(("name", "template"), PAIRS if EVERY else often(PAIRS, *HARD))
def test_a_turn_computes_its_new_messages_alone(name: str, template: str) -> None:
    thoughts = THOUGHTS if template != "calling" else ""
    with Serving(name) as serving:
        for at, (prompt, new, asks) in enumerate(played(template, thoughts)):
            computed = len(prompt.ids) - serving.ask(prompt).cached
            excused = rewrites(template, Turn(0, 0, 0, asks))
            if at and not excused:
                assert computed <= new + SLACK


@pytest.mark.long
@pytest.mark.parametrize(
    "name", CORE if EVERY else often(["llama", "gemma3_text", "qwen3_5"], "qwen3_5")
)
def test_thoughts_that_are_stripped_lose_nothing_before_them(name: str) -> None:
    """A question, a loop of tools with thoughts, and the next question without them. B35."""
    turns: list[Any] = [SYSTEM, {"role": "user", "content": CORPUS[:120]}]
    with Serving(name) as serving:
        question = prompts("thinking", turns, enable_thinking=True)
        serving.ask(question)
        for at in range(3):
            turns += round_of(THOUGHTS, CORPUS[40 * at : 40 * at + 90], at)
            serving.ask(prompts("thinking", turns, enable_thinking=True))
        turns += [{"role": "assistant", "content": "It rains."}, {"role": "user", "content": "So?"}]
        cached = serving.ask(prompts("thinking", turns, enable_thinking=True)).cached
        # Up to the generation prompt of the first, give or take what cuts may merge.
        assert cached >= len(question.ids) - SLACK


@pytest.mark.long
def test_a_typical_conversation_reuses_nearly_all() -> None:
    """96 % and more of turns two to five, with an agent's long instructions. B34."""
    turns: list[Any] = [{"role": "system", "content": CORPUS * 4}, {"role": "user", "content": "?"}]
    with Serving("lfm2", prefill_chunk=512) as serving:
        serving.ask(prompts("calling", turns))
        for at in range(4):
            turns += round_of("", CORPUS[30 * at : 30 * at + 20], at)
            prompt = prompts("calling", turns)
            assert serving.ask(prompt).cached >= 0.96 * len(prompt.ids)


@pytest.mark.long
def test_control_without_borders_the_history_is_lost() -> None:
    """A model that cannot go back finds nothing in place when thoughts are stripped."""
    found = [prompt for prompt, _, _ in played("thinking", THOUGHTS)]
    bare = [replace(prompt, borders=Borders()) for prompt in found]
    computed = []
    for asked in (found, bare):
        with Serving("qwen3_5") as serving:
            computed.append(sum(len(it.ids) - serving.ask(it).cached for it in asked))
    assert computed[0] + 4 * SLACK < computed[1]
