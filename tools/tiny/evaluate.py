"""Held-out accuracy through Bushel's engine: greedy, in batches of mixed requests and alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bushel import LLM, SamplingParams
from bushel.core import Output
from tools.tiny.acceptance import acceptance
from tools.tiny.chat import Check, Talk, render
from tools.tiny.questions import QUESTIONS, SECOND
from tools.tiny.score import ends_with, right, well_thought
from tools.tiny.tasks import (
    compare,
    long_talk,
    mind,
    mix,
    pictures,
    recall,
    small,
    structured,
    tools,
)
from tools.tiny.tasks.base import Exchange
from tools.tiny.tokens import read_tokenizer
from tools.tiny.words import Draw

BATCH = 8
_REPLY = SamplingParams(temperature=0.0, max_tokens=160)


@dataclass(frozen=True)
class Case:
    """A request, and what is right for it."""

    task: str
    request: dict[str, Any]
    check: Check
    thinking: bool = False


def to_request(talk: Talk) -> dict[str, Any]:
    """The conversation up to the reply, as a client sends it."""
    messages = []
    for message in talk.messages[:-1]:
        content = message.get("content")
        if isinstance(content, list):
            content = [
                {"type": "image_url", "image_url": {"url": part["image"].image}}
                if part["type"] == "image"
                else part
                for part in content
            ]
        messages.append({**message, "content": content})
    options: dict[str, Any] = {"tool_format": talk.tool_format}
    if talk.thinking:
        options["enable_thinking"] = True
    request: dict[str, Any] = {"messages": messages, "chat_template_kwargs": options}
    if talk.tools:
        request["tools"] = talk.tools
    return request


def _case(task: str, talk: Talk) -> Case:
    return Case(task, to_request(talk), talk.check, talk.thinking)


def _first_call(talk: Talk, nth: int = 0) -> Talk:
    """Cut at the nth reply with calls, which is then what must come."""
    places = [at for at, message in enumerate(talk.messages) if message.get("tool_calls")]
    at = places[min(nth, len(places) - 1)]
    wanted = [call["function"] for call in talk.messages[at]["tool_calls"]]
    return replace(talk, messages=talk.messages[: at + 1], check=Check("calls", wanted))


Maker = Callable[[Draw], Exchange]


def _reads(characters: int) -> Callable[[Draw], Talk]:
    """A coding agent with rules and tools of that length, asked for a file."""
    return _without_thinking(lambda draw: mix.agent_talk(draw, characters, 1))


def _calls_for(make: Callable[[Draw], Talk]) -> Callable[[Draw], Talk]:
    return lambda draw: _first_call(make(draw))


def _alone(make: Maker, thinking: bool = False) -> Callable[[Draw], Talk]:
    return lambda draw: mix.single(draw, make, thinking=thinking)


def _without_thinking(make: Callable[[Draw], Talk]) -> Callable[[Draw], Talk]:
    def made(draw: Draw) -> Talk:
        while (talk := make(draw)).thinking:
            pass
        return talk

    return made


def _only(kind: str, make: Callable[[Draw], Talk]) -> Callable[[Draw], Talk]:
    def made(draw: Draw) -> Talk:
        while (talk := make(draw)).kind != kind:
            pass
        return talk

    return made


def _never_told(never: bool, make: Callable[[Draw], Talk]) -> Callable[[Draw], Talk]:
    """Only questions about what nobody said, or none of them: saying so is not recall."""

    def made(draw: Draw) -> Talk:
        while ((talk := make(draw)).check == recall.NOT_TOLD) != never:
            pass
        return talk

    return made


def _thoughtful(draw: Draw) -> Talk:
    while True:
        talk = mix.talk(draw)
        if talk.thinking and talk.kind != "long" and not talk.tools:
            return talk


def _digit(draw: Draw) -> Exchange:
    while (exchange := pictures.digit(draw)).kind != "digit":
        pass
    return exchange


def _no_tool(draw: Draw) -> Talk:
    """Half ask for what no tool does, half for what needs none."""
    if draw.chance(0.5):
        return mix.single(draw, tools.no_fit, thinking=False)
    while True:
        talk = mix.tool_talk(draw)
        plain = talk.check.how == "no_call" and not talk.thinking
        if plain and isinstance(talk.check.expected, Check):
            return talk


TASKS: dict[str, Callable[[Draw], Talk]] = {
    "colour": _alone(pictures.colour),
    "shape": _alone(pictures.shape),
    "digit": _alone(_digit),
    "two images": _alone(lambda draw: mix.weighted(draw, compare.TWO)),
    "count": _alone(pictures.count),
    "position": _alone(pictures.position),
    "presence": _alone(pictures.presence),
    "word in a picture": _alone(pictures.word),
    "description": _alone(pictures.describe),
    "recall, system": _without_thinking(_never_told(False, mix.recall_system)),
    "recall, earlier turns": _without_thinking(mix.recall_turns),
    "never told": _without_thinking(_never_told(True, mix.recall_system)),
    "recall, 1k tokens": lambda draw: long_talk(draw, 2_600),
    "recall, 4k tokens": lambda draw: long_talk(draw, 10_600),
    "recall, 8k tokens": lambda draw: long_talk(draw, 21_000),
    "tool call": lambda draw: _first_call(_alone(tools.one_call)(draw)),
    "two tool calls": lambda draw: _first_call(_alone(tools.two_calls)(draw), draw.between(0, 1)),
    "no tool fits": _no_tool,
    "tool result": _alone(tools.one_call),
    "agent, call": _calls_for(_reads(3_000)),
    "agent, answer": _reads(3_000),
    "agent, 4k tokens": _calls_for(_reads(12_000)),
    "agent, 8k tokens": _calls_for(_reads(24_000)),
    "thinking": _thoughtful,
    "end with": _without_thinking(_only("end_with", mix.mannered)),
    "start with": _without_thinking(_only("start_with", mix.mannered)),
    "echo": _alone(mind.echo),
    "sort": _alone(mind.sort),
    "sums": _alone(mind.sums),
    "JSON": _alone(structured.as_json),
    "small talk": _alone(small.chatter),
    "facts": _alone(small.fact),
}
BY_HAND = {"written by hand": QUESTIONS, "written by hand, second": SECOND}
# Text alone, and replies of some length.
_DRAFTED = ("recall, system", "tool call", "tool result", "JSON", "echo", "sort")
TARGETS = {
    "colour": 0.95, "shape": 0.95, "digit": 0.95, "two images": 0.90, "recall, system": 0.97,
    "recall, earlier turns": 0.97, "recall, 4k tokens": 0.90, "tool call": 0.95,
    "no tool fits": 0.95, "thinking format": 0.98, "end with": 0.95, "written by hand": 0.85,
    "written by hand, second": 0.85,
}  # fmt: skip
# Long texts take long, and what no figure is asked of is asked half as often.
FEWER = {"recall, 4k tokens": 4, "recall, 8k tokens": 8, "recall, 1k tokens": 4, "thinking": 1,
         "agent, 4k tokens": 4, "agent, 8k tokens": 8}  # fmt: skip


def _count(task: str, count: int) -> int:
    return max(8, count // FEWER.get(task, 1 if task in TARGETS else 2))


def cases(count: int, only: Sequence[str] = ()) -> list[Case]:
    made = []
    for task, make in TASKS.items():
        if only and task not in only:
            continue
        for at in range(_count(task, count)):
            made.append(_case(task, make(Draw(f"evaluate {task} {at}", held=True))))
    for task, questions in BY_HAND.items():
        if not only or task in only:
            made += [_case(task, question.talk()) for question in questions]
    return made


def replies(llm: LLM, requests: Sequence[dict[str, Any]]) -> list[Output]:
    outputs = llm.generate(list(requests), _REPLY)
    for output in outputs:
        if output.error:
            raise RuntimeError(output.error)
    return outputs


def _written(llm: LLM, output: Output) -> str:
    """All of a reply, with its thoughts and calls as the model wrote them."""
    return str(llm.tokenizer.decode(output.token_ids, skip_special_tokens=True))


def evaluate(path: Path, count: int, only: Sequence[str] = (), alone: int = 0) -> dict[str, Any]:
    """Accuracy per task; `alone` replies are also made one by one and must be the same."""
    todo = cases(count, only)
    order = list(range(len(todo)))
    Draw("order").rng.shuffle(order)
    llm = LLM(str(path))
    outputs: dict[int, Output] = {}
    begun = time.monotonic()
    for at in range(0, len(order), BATCH):
        some = order[at : at + BATCH]
        outputs.update(zip(some, replies(llm, [todo[i].request for i in some]), strict=True))
        if at % (20 * BATCH) == 0:
            print(f"{at}/{len(order)} {time.monotonic() - begun:.0f} s", flush=True)
    texts = {at: _written(llm, output) for at, output in outputs.items()}
    report = _report(todo, texts)
    alone_texts = (_written(llm, *replies(llm, [todo[i].request])) for i in order[:alone])
    different = [i for i, text in zip(order, alone_texts, strict=False) if text != texts[i]]
    report["alone"] = {"compared": min(alone, len(order)), "different": len(different)}
    llm.close()
    chosen = [i for i in order if todo[i].task in _DRAFTED][:80]
    pairs = [(_prompt(path, todo[i].request), outputs[i].token_ids) for i in chosen]
    report["mtp acceptance"] = round(acceptance(path, pairs), 4)
    return report


def _prompt(path: Path, request: dict[str, Any]) -> list[int]:
    options = request["chat_template_kwargs"]
    text = render(request["messages"], request.get("tools"), add_generation_prompt=True, **options)
    return list(read_tokenizer(path).encode(text, add_special_tokens=False).ids)


def _report(todo: list[Case], texts: dict[int, str]) -> dict[str, Any]:
    hits: dict[str, list[bool]] = {}
    failures = []
    for at, case in enumerate(todo):
        good = right(texts[at], case.check)
        if case.task == "end with":
            hits.setdefault("end with, right answer", []).append(good)
            marked = ends_with(texts[at], case.check.expected["mark"])
            hits.setdefault(case.task, []).append(marked)
        else:
            hits.setdefault(case.task, []).append(good)
        if case.thinking:
            hits.setdefault("thinking format", []).append(well_thought(texts[at]))
        if not good:
            last = case.request["messages"][-1]["content"]
            if isinstance(last, list):
                last = " ".join(part.get("text", "<image>") for part in last)
            failures.append(
                {
                    "task": case.task,
                    "asked": str(last)[-300:],
                    "replied": texts[at][:300],
                    "expected": repr(case.check.expected)[:300],
                }
            )
    tasks = {
        task: {"right": sum(found), "of": len(found), "share": round(sum(found) / len(found), 4)}
        for task, found in hits.items()
    }
    return {"tasks": tasks, "failures": failures}


def table(report: dict[str, Any]) -> str:
    lines = ["| task | right | of | share | wanted |", "|---|---|---|---|---|"]
    for task, found in report["tasks"].items():
        wanted = f"{TARGETS[task]:.0%}" if task in TARGETS else ""
        lines.append(
            f"| {task} | {found['right']} | {found['of']} | {found['share']:.1%} | {wanted} |"
        )
    same = report["alone"]
    lines.append(f"\nMTP, drafts at depth 1 that hold: {report['mtp acceptance']:.1%}.")
    lines.append(f"\n{same['compared']} replies made alone as well: {same['different']} differ.")
    return "\n".join(lines)


def write(path: Path, report: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
