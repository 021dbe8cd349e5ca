"""Calls and their results, as a template can take them: one part of `chat.template.normalise`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bushel.chat.parse_messages import FOLDED, MATCHED, Picture, Turn, collapsed, joined
from bushel.text.template_abilities import Abilities

_ROUND = ("tool", "system")


def matched(turns: Sequence[Turn]) -> list[Turn]:
    """Every call has an id, and every result that of its call, its name, and its place.

    Results come in the order of their calls: many templates tell them apart by nothing else.
    """
    answered: list[Turn] = []
    calls: list[dict[str, Any]] = []  # of the last turn that had any
    waiting: list[int] = []  # which of them have no result yet
    named = 0
    for turn in turns:
        if turn.get("tool_calls"):
            calls = []
            for call in turn["tool_calls"]:
                calls.append({**call, "id": call.get("id") or f"call_{named}"})
                named += 1
            waiting = list(range(len(calls)))
            turn = {**turn, "tool_calls": calls}
        elif turn["role"] == "tool":
            at = _call_of(turn, calls, waiting)
            if at is not None:
                waiting = [n for n in waiting if n != at]
                call = calls[at]
                name = turn.get("name") or call["function"]["name"]
                turn = {**turn, "tool_call_id": call["id"], "name": name, MATCHED: at}
        answered.append(turn)
    return _ordered(answered)


def _call_of(turn: Turn, calls: Sequence[Any], waiting: Sequence[int]) -> int | None:
    id, name = turn.get("tool_call_id"), turn.get("name")
    for at in [*waiting, *range(len(calls))]:
        if id and calls[at]["id"] == id:
            return at
    if id:
        return None
    fits = [at for at in waiting if name in (None, calls[at]["function"]["name"])]
    return fits[0] if fits else None


def _ordered(turns: Sequence[Turn]) -> list[Turn]:
    """What stands between results, or between them and their calls, comes behind them."""
    ordered: list[Turn] = []
    at = 0
    while at < len(turns):
        turn, at = turns[at], at + 1
        ordered.append(turn)
        behind = []
        while turn.get("tool_calls") and at < len(turns) and turns[at]["role"] in _ROUND:
            behind.append(turns[at])
            at += 1
        ordered += sorted(behind, key=lambda result: _place(result, len(turn["tool_calls"])))
    return ordered


def _place(turn: Turn, calls: int) -> int:
    return int(turn.get(MATCHED, calls)) if turn["role"] == "tool" else calls + 1


def _runs(turns: Sequence[Turn]) -> Iterable[list[Turn]]:
    """Turns of tools that follow one another, together; any other alone."""
    run: list[Turn] = []
    for turn in turns:
        if run and not (run[-1]["role"] == turn["role"] == "tool"):
            yield run
            run = []
        run.append(turn)
    if run:
        yield run


def with_calls(turns: Sequence[Turn], can: Abilities) -> list[Turn]:
    """Every turn that calls, with its results, as one or more rounds that the template takes."""
    written: list[Turn] = []
    at = 0
    while at < len(turns):
        turn, at = turns[at], at + 1
        if not turn.get("tool_calls"):
            written.append(turn)
            continue
        results = []
        while at < len(turns) and turns[at]["role"] == "tool":
            results.append(turns[at])
            at += 1
        if not results and at < len(turns) and not can.unanswered:
            results = [_silent(n, call) for n, call in enumerate(turn["tool_calls"])]
        written += _rounds(turn, results, can)
    return written


def _silent(at: int, call: Mapping[str, Any]) -> Turn:
    name = call["function"]["name"]
    return {"role": "tool", "content": "", "tool_call_id": call["id"], "name": name, MATCHED: at}


def _rounds(turn: Turn, results: Sequence[Turn], can: Abilities) -> Iterable[Turn]:
    calls = turn["tool_calls"]
    if turn["content"] and can.text_with_calls == "before":
        thoughts = {key: value for key, value in turn.items() if key == "reasoning_content"}
        spoken = {key: value for key, value in turn.items() if key not in ("tool_calls", *thoughts)}
        yield {**spoken, **thoughts} if can.thoughts_with_text else spoken
        turn = {"role": "assistant", "content": "", "tool_calls": calls}
        turn |= {} if can.thoughts_with_text else thoughts
    if can.parallel or len(calls) == 1:
        yield turn
        yield from results
        return
    for at, call in enumerate(calls):
        yield {**turn, "tool_calls": [call]}
        yield from (result for result in results if result.get(MATCHED) == at)
        turn = {"role": "assistant", "content": ""}
    yield from (result for result in results if MATCHED not in result)


def with_results(turns: Sequence[Turn], can: Abilities) -> list[Turn]:
    """Pictures, and what the user says, where results stand that cannot hold or precede them."""
    written: list[Turn] = []
    for run in _runs(turns):
        shown: list[Any] = []
        for turn in run:
            content = turn["content"]
            if turn["role"] != "tool":
                _follow(written, turn, can)
                continue
            if isinstance(content, list) and can.images and "tool" not in can.images:
                shown += [part for part in content if isinstance(part, Picture)]
                texts = [part for part in content if not isinstance(part, Picture)]
                turn = {**turn, "content": collapsed(texts)}
            if MATCHED in turn or (
                can.orphans and any(earlier["role"] == "user" for earlier in written)
            ):
                written.append(turn)
            else:
                _follow(written, {"role": "user", "content": turn["content"], FOLDED: True}, can)
        if shown:
            _follow(written, {"role": "user", "content": shown, FOLDED: True}, can)
    return written


def _follow(turns: list[Turn], turn: Turn, can: Abilities) -> None:
    """Adds a turn that is no tool's.

    Some templates take no user's turn behind results, and others forget thoughts at it, whoever
    speaks. Then it becomes part of the last result, unless it is a user's own.
    """
    behind = bool(turns) and turns[-1]["role"] == "tool" and turn["role"] == "user"
    fits = isinstance(turn["content"], str) or "tool" in can.images
    if behind and fits and FOLDED in turn and (can.forgets or not can.after_results):
        turns[-1] = {**turns[-1], "content": joined(turns[-1]["content"], turn["content"])}
    elif behind and not can.after_results and can.gap:
        turns += [{"role": "assistant", "content": ""}, turn]
    elif behind and not can.after_results and fits:
        turns[-1] = {**turns[-1], "content": joined(turns[-1]["content"], turn["content"])}
    else:
        turns.append(turn)
