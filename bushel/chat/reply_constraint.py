"""From a request to what its reply is held to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bushel.chat.reply.thinking_formats import THINKING_FORMATS, ThinkingFormat
from bushel.chat.structured_output.answer_grammar import AnswerGrammar, answer_of
from bushel.chat.structured_output.custom_input import has_grammar, input_schema
from bushel.chat.structured_output.json_schema import checked
from bushel.chat.structured_output.lark import SPACE, Lark, without
from bushel.chat.template.options import NOTHING
from bushel.chat.tool_parsers.generic import GENERIC
from bushel.chat.tool_parsers.grammar.call_form import CallForm, ToolGrammar
from bushel.chat.tool_parsers.harmony import HARMONY
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.chat.tool_parsers.tool_format import ToolFormat
from bushel.core import Constraint, ReplyFormat, RequestError, ThinkingBudget
from bushel.models import Preparer

_MOST_TOOLS = 1024
_NAME = re.compile(r"[^\s\"'<>(){}\[\]=|\\]{1,256}")


def constraint_of(
    reply_format: ReplyFormat,
    request: Mapping[str, Any],
    *,
    opened: bool,
    host: Preparer,
    defaults: Mapping[str, Any] = NOTHING,
) -> Constraint | None:
    """None if the reply is free. request: a `core.conversation.Conversation`. defaults: variables
    of the template where it sets none.

    opened: the prompt ends inside a thinking block. RequestError for what cannot be held to.
    """
    tokens = (request.get("thinking") or {}).get("budget")
    thinking = THINKING_FORMATS.get(reply_format.thinking)
    answer = answer_of(request.get("shape"))
    wanted = _wanted(request)
    if answer is None and wanted is None and tokens is None:
        return None
    grammar = None
    if answer is not None or wanted is not None:
        may_think = _may_think(request, host, defaults)
        writer = _GrammarWriter(reply_format, thinking, opened, may_think, host)
        writer.require_tokens()
        grammar = writer.grammar(answer, wanted)
        _require_text(grammar or "")
    budget = _budget(tokens, thinking, opened, reply_format, host)
    return None if grammar is None and budget is None else Constraint(grammar, budget)


def _may_think(request: Mapping[str, Any], host: Preparer, defaults: Mapping[str, Any]) -> bool:
    """Whether a reply may begin with thoughts, if its prompt has not begun with them already."""
    asked = request.get("thinking") or {}
    switch = host.profile.abilities.switch
    options = request.get("chat_template_kwargs") or {}
    enabled = asked.get("enabled")
    if switch is not None and switch.name in options:
        enabled = options[switch.name] != switch.off
    if enabled is None and (asked.get("budget") or asked.get("effort")):
        enabled = True
    if enabled is None and switch is not None and switch.name in defaults:
        enabled = defaults[switch.name] != switch.off
    return host.profile.thinks_by_default if enabled is None else bool(enabled)


def _require_text(grammar: str) -> None:
    """JSON can say halves of characters, which no reply can."""
    try:
        grammar.encode()
    except UnicodeEncodeError:
        raise RequestError(
            "A schema, a choice or a tool's name holds half of a character (a lone surrogate).",
            code="invalid_grammar",
            param="response_format",
        ) from None


@dataclass(frozen=True)
class _Wanted:
    """What calls a reply may, or must, make."""

    tools: Sequence[ToolGrammar]
    must: bool
    several: bool


def _wanted(request: Mapping[str, Any]) -> _Wanted | None:
    """None: no more is asked of calls than that the model makes them by itself."""
    given, choice = request.get("tools") or [], request.get("tool_choice") or "auto"
    several = request.get("parallel") is not False
    named = choice.get("name") if isinstance(choice, Mapping) else None
    known = _referred(request.get("messages") or ())
    offered = [
        (at, tool)
        for at, tool in enumerate(given)
        if not tool.get("deferred") or _function(tool)["name"] in known
    ]
    if named is not None:
        offered = [(at, tool) for at, tool in offered if _function(tool)["name"] == named]
    must = named is not None or choice == "required"
    if must and not offered:
        offers = f"has no tool called {named!r}" if named else "has no tools"
        raise RequestError(
            f"tool_choice asks for a call, and the request {offers}.", param="tool_choice"
        )
    strict = any(_function(tool).get("strict") or has_grammar(tool) for _, tool in offered)
    shaped = request.get("shape") is not None
    if not offered or not (must or strict or shaped or not several):
        return None
    if len(offered) > _MOST_TOOLS:
        raise RequestError(
            f"Calls cannot be held to more than {_MOST_TOOLS} tools.",
            code="invalid_grammar",
            param="tools",
        )
    tools = [_tool(at, tool, strict or must) for at, tool in offered]
    return _Wanted(tools, must, several and named is None)


def _referred(messages: Sequence[Any]) -> set[str]:
    """Names of deferred tools that the model has been told of."""
    parts = [part for turn in messages for part in _parts(turn)]
    return {str(part.get("name")) for part in parts if part.get("type") == "tool_reference"}


def _parts(turn: Any) -> list[Mapping[str, Any]]:
    content = turn.get("content") if isinstance(turn, Mapping) else None
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, Mapping)]


def _function(tool: Any) -> Mapping[str, Any]:
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def _tool(at: int, tool: Any, held: bool) -> ToolGrammar:
    """held: also arguments of tools that are not strict are held to what can be enforced."""
    function = _function(tool)
    if not _NAME.fullmatch(function["name"]):
        raise RequestError(
            f"tools[{at}].function.name has signs that a call cannot be held to: use letters, "
            "digits, dots, dashes and underscores.",
            code="invalid_grammar",
            param="tools",
        )
    if has_grammar(tool):
        return ToolGrammar(function["name"], input_schema(f"tools[{at}]", tool["input"]), True)
    exact = bool(function.get("strict"))
    schema = (function.get("parameters") if exact or held else None) or {}
    where = f"tools[{at}].function.parameters"
    return ToolGrammar(function["name"], checked(schema, "tools", where, exact=exact), exact)


class _GrammarWriter:
    """One request's grammar."""

    def __init__(
        self,
        reply_format: ReplyFormat,
        thinking: ThinkingFormat | None,
        opened: bool,
        may_think: bool,
        host: Preparer,
    ):
        self._reply_format = reply_format
        self._thinking = thinking
        self._opened = opened
        self._may_think = may_think
        self._host = host
        tokens, plain = _tokens(reply_format, host)
        self._lark = Lark(tokens, plain)
        self._tokens = tokens

    def require_tokens(self) -> None:
        if self._host.tokenizer.as_json() is None:
            raise RequestError(
                f"{self._host.name} cannot be held to a response format, a required tool or "
                "strict tools: its tokenizer is not of the tokenizers library.",
                code="unsupported_grammar",
                param="response_format",
            )

    def grammar(self, answer: AnswerGrammar | None, wanted: _Wanted | None) -> str | None:
        form = None if wanted is None else self._calls(wanted)
        if answer is None and form is None:
            return None
        if self._reply_format.thinking == HARMONY.name:
            start = self._harmony(answer, wanted, form)
        else:
            parts = [] if answer is None else [answer.write(self._lark)]
            if wanted is not None and form is not None and (wanted.must or answer is not None):
                parts.append(self._made(form, wanted.several))
            elif wanted is not None and form is not None:
                parts.append(self._maybe(form, wanted.several))
            start = f"{self._thoughts()} ({' | '.join(parts)})"
        text = self._lark.text(start)
        return text if answer is None else answer.whole(text)

    # -- calls --

    def _calls(self, wanted: _Wanted) -> CallForm | None:
        format = FORMATS.get(self._reply_format.tools)
        if format is None:
            if not wanted.must:
                return None
            raise RequestError(
                f"tool_choice cannot be enforced with {self._host.name}: nothing tells how it "
                "calls tools. Name its tool format when the server is started, or leave out "
                "tool_choice.",
                code="unsupported_grammar",
                param="tool_choice",
            )
        return format.grammar(self._lark, wanted.tools, self._knows)

    def _knows(self, text: str) -> bool:
        written = self._host.tokenizer.template
        return text in self._tokens or text in written or text.replace("\n", "\\n") in written

    def _call(self, form: CallForm) -> str:
        body = self._lark.rule(" | ".join(form.bodies))
        return self._lark.rule(f"{body} {self._lark.mark(form.close)}")

    def _rest(self, form: CallForm, several: bool) -> str:
        """Behind `begin` and the first `open`."""
        lark, call = self._lark, self._call(form)
        next = f"({lark.mark(form.between + form.open)} {call})*"
        more = next if several and not form.single else ""
        return lark.rule(f"{call} {more} {lark.mark(form.end)}")

    def _made(self, form: CallForm, several: bool) -> str:
        """Calls, and nothing else."""
        return f"{self._lark.mark(form.begin + form.open)} {self._rest(form, several)}"

    def _maybe(self, form: CallForm, several: bool) -> str:
        """Text, with calls in it as the model likes."""
        lark, rest = self._lark, self._rest(form, several)
        own = FORMATS.get(self._reply_format.tools, GENERIC)
        if form.leading:
            first = lark.terminal(without(r"/\s*[^\s\[{](?s:.*)/", own.later_starts))
            return f"({first} | {self._made(form, several)})?"
        whole = form.begin + form.open
        begin = max(
            (start for start in own.starts if whole.startswith(start)), key=len, default=whole
        )
        never = self._starts(begin, own)
        call = f"{lark.upto(begin, never)} {lark.mark(whole[len(begin) :])} {rest}"
        text = lark.free(never)
        return f"({call})* {text}" if several and not form.single else f"({call} | {text})"

    def _starts(self, begin: str, own: ToolFormat) -> list[str]:
        """What text may not spell, so that no call comes unheld.

        Where the beginning itself is spelled it is enough that its lexeme is lazy, and comes first;
        more would cost the lexer too much.
        """
        if self._lark.is_spelled(begin):
            return []
        return [*own.later_starts, *GENERIC.later_starts]

    # -- thoughts --

    def _thoughts(self) -> str:
        """Those that come before anything else, and the white space behind them."""
        if self._thinking is None or not (self._opened or self._may_think):
            return ""
        lark, ends = self._lark, self._thinking.ends
        inside = lark.upto(_ending(self._thinking), ends)
        if self._opened:
            return f"{inside} {SPACE}"
        block = lark.rule(f"{lark.mark(self._thinking.opening)} {inside} {SPACE}")
        return f"({block})?"

    def _harmony(
        self, answer: AnswerGrammar | None, wanted: _Wanted | None, form: CallForm | None
    ) -> str:
        """Messages: of thoughts, of text before a call where it is free, and the last one."""
        lark = self._lark
        on = "<|end|><|start|>assistant"
        thoughts = lark.upto(on)
        free = wanted is not None and not wanted.must and answer is None
        kinds = ("analysis", "commentary") if free else ("analysis",)
        heads = [lark.mark(f"<|channel|>{kind}<|message|>") for kind in kinds]
        messages = lark.rule(f"({' | '.join(heads)}) {thoughts}")
        final = lark.mark("<|channel|>final<|message|>")
        last = [] if answer is None else [f"{final} {answer.write(lark)}"]
        if form is not None and wanted is not None:
            last.append(self._made(form, several=False))
            if free:
                last.append(f"{final} {lark.free(())}")
        return f"{thoughts if self._opened else ''} {messages}* ({' | '.join(last)})"


def _ending(thinking: ThinkingFormat) -> str:
    """The whole way from thoughts to what follows them."""
    longer = (end for end in thinking.endings if end.startswith(thinking.ending))
    return next(longer, thinking.ending)


def _tokens(reply_format: ReplyFormat, host: Preparer) -> tuple[dict[str, int], list[int]]:
    """What llguidance takes for tokens without text; and those of them that are text in fact."""
    tokenizer = host.tokenizer
    added = getattr(tokenizer.hf, "added_tokens_decoder", {})
    tokens = {str(text): token for token, text in added.items() if token < host.vocab}
    calls = FORMATS.get(reply_format.tools)
    thinking = THINKING_FORMATS.get(reply_format.thinking)
    markup = [
        *(calls.starts + calls.markup if calls else ()),
        *GENERIC.starts,
        *GENERIC.markup,
        *(thinking.markers if thinking else ()),
    ]
    special = {*tokenizer.controls.values(), *tokenizer.hf.all_special_ids, *tokenizer.end_ids}

    def is_text(text: str, token: int) -> bool:
        return token not in special and not any(text in mark or mark in text for mark in markup)

    return tokens, [token for text, token in tokens.items() if is_text(text, token)]


def _budget(
    tokens: Any,
    thinking: ThinkingFormat | None,
    opened: bool,
    reply_format: ReplyFormat,
    host: Preparer,
) -> ThinkingBudget | None:
    if tokens is None or thinking is None:
        return None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        raise RequestError("The thinking budget must be a number of tokens.", param="thinking")
    ending = _ending(thinking)
    closing = f"\n{ending}\n\n" if thinking.ending.startswith("</") else ending
    ids = _encoded(closing, host)
    return ThinkingBudget(
        tokens, opened, thinking.opening, thinking.ending, ids, reply_format.markers
    )


def _encoded(text: str, host: Preparer) -> tuple[int, ...]:
    """Behind other text: some tokenizers begin a text with a space of their own."""
    encode: Callable[..., list[int]] = host.tokenizer.encode
    before = encode("a", add_special_tokens=False)
    both = encode(f"a{text}", add_special_tokens=False)
    if both[: len(before)] == before:
        return tuple(both[len(before) :])
    return tuple(encode(text, add_special_tokens=False))
