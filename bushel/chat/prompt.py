"""From what a caller sends (ids, a string, or a conversation) to a `Prepared` prompt.

    messages ─ parse_messages ─> one form ─ normalise ─> the template's ─ control_tokens ─> rendered
    ─ Preparer ─> ids

Templates and processors see one form of content: parts of type text, image and video, in
order, with the pictures beside the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bushel.chat.client_headers import without_headers
from bushel.chat.control_tokens import ControlTokens
from bushel.chat.embedding_prompt import embedding_prompt, writes_nothing
from bushel.chat.infill_prompt import infill_ids
from bushel.chat.media.decode import OWN, Intake
from bushel.chat.parse_messages import ParsedMessages
from bushel.chat.prompt_length import require_countable, require_room
from bushel.chat.reply.format_detection import reply_format_of
from bushel.chat.reply.thinking_formats import ends_inside_thoughts
from bushel.chat.reply_constraint import constraint_of
from bushel.chat.reuse_borders import TemplateCall, find_borders
from bushel.chat.template.inline_calls import inline_calls_of, inlined, with_inline_calls
from bushel.chat.template.normalise import normalise, pictures_of, require_places, tools_for
from bushel.chat.template.options import template_options
from bushel.chat.token_rules import token_rules_of
from bushel.chat.tool_fields import checked_tools
from bushel.chat.truncation import truncated, truncates
from bushel.core import ContextLengthError, Prepared, ReplyFormat, RequestError
from bushel.core.options import ChatOptions
from bushel.core.params import MAX_SALT, MOST_PRIORITY
from bushel.core.wire import MediaRules
from bushel.models import Preparer

_TRUNCATED = 16  # contexts that a text may have whose end alone is wanted
PLAIN = ChatOptions()
FORMS = ("prompt_token_ids", "prompt", "messages")
NEEDS_ONE = f"A request needs exactly one of {', '.join(FORMS)}."


def prepare(
    host: Preparer,
    request: Mapping[str, Any],
    rules: MediaRules = OWN,
    *,
    chat_options: ChatOptions = PLAIN,
) -> Prepared:
    """Raises RequestError for anything that cannot be served as it was sent (B48).

    `rules` say where its media may come from: scripts open their own files, a server none
    unless it was told to. A URL in a text is text.
    """
    if not isinstance(request, Mapping):
        raise RequestError(f"A request is a mapping, not {type(request).__name__}.")
    if request.get("result") == "embedding":
        return embedding_prompt(host, request)
    if host.task != "generate":
        raise writes_nothing(host)
    form = form_of(request)
    if form == "messages":
        prepared = _from_messages(host, request, rules, chat_options)
    else:
        prepared = (_from_ids if form == "prompt_token_ids" else _from_text)(host, request)
        constraint = constraint_of(ReplyFormat(), request, opened=False, host=host)
        prepared = replace(prepared, constraint=constraint)
    prepared = truncated(host, request, prepared)
    if not prepared.ids:
        raise RequestError("The prompt is empty: it needs at least one token.", param=form)
    if host.context is not None and len(prepared.ids) >= host.context:
        param = "messages" if form == "messages" else "prompt"
        raise ContextLengthError(len(prepared.ids), host.context, param)
    rules_in_tokens = token_rules_of(host, request)
    return replace(prepared, token_rules=rules_in_tokens, prediction=_predicted(host, request))


def _predicted(host: Preparer, request: Mapping[str, Any]) -> tuple[int, ...]:
    """What the reply may repeat, if it says so."""
    text = request.get("prediction")
    if not text:
        return ()
    require_room(host, text, "prediction")
    return tuple(host.tokenizer.encode(text, add_special_tokens=False))


def form_of(request: Mapping[str, Any]) -> str:
    """Which of the three its prompt comes in."""
    given = [form for form in FORMS if request.get(form) is not None]
    if len(given) != 1:
        raise RequestError(NEEDS_ONE)
    return given[0]


def salt_of(request: Mapping[str, Any]) -> str:
    """What must be the same for two requests to share anything; they say it by `cache_salt`."""
    salt = request.get("cache_salt") or ""
    if not isinstance(salt, str) or len(salt) > MAX_SALT:
        raise RequestError(
            f"cache_salt must be a string of at most {MAX_SALT} characters.", param="cache_salt"
        )
    return salt


def priority_of(request: Mapping[str, Any]) -> int:
    """The lowest goes first."""
    priority = request.get("priority") or 0
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        raise RequestError(
            f"priority must be a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}.",
            param="priority",
        )
    return priority


def _from_ids(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    ids = request["prompt_token_ids"]
    good = isinstance(ids, Sequence) and all(type(token) is int for token in ids)
    if not good or not all(0 <= token < host.vocab for token in ids):
        raise RequestError(
            f"prompt_token_ids must be integers below {host.vocab}.", param="prompt_token_ids"
        )
    return Prepared(tuple(ids))


def _from_text(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    text, behind = request["prompt"], request.get("suffix")
    if not isinstance(text, str):
        raise RequestError("prompt must be a string.", param="prompt")
    _require_room(host, request, text + (behind or ""), "prompt")
    if behind:
        return Prepared(infill_ids(host, text, behind))
    return Prepared(tuple(host.tokenizer.encode(text, add_special_tokens=True)))


def _require_room(host: Preparer, request: Mapping[str, Any], text: str, param: str) -> None:
    """Of a text whose end alone is wanted, all the same all is tokenized."""
    if truncates(request):
        require_countable(host, text, param, contexts=_TRUNCATED)
    else:
        require_room(host, text, param)


def _from_messages(
    host: Preparer, request: Mapping[str, Any], rules: MediaRules, chat_options: ChatOptions
) -> Prepared:
    prompt = read(host, request, rules, chat_options)
    if prompt.media and not host.sees:
        host.prepare("", prompt.media)  # which says so
    text = prompt.call.render()
    unmarked = text.replace(prompt.mark, "") if prompt.mark else text
    _require_room(host, request, unmarked, "messages")
    prepared = host.prepare(text, prompt.media, prompt.mark)
    reply_format = reply_format_of(host, chat_options)
    thinks = ends_inside_thoughts(reply_format, text)
    return replace(
        prepared,
        borders=find_borders(host, prompt.call, text, prepared, prompt.mark),
        opened=thinks,
        constraint=constraint_of(
            reply_format,
            request,
            opened=thinks,
            host=host,
            defaults=chat_options.template_kwargs,
        ),
    )


@dataclass(frozen=True)
class RenderablePrompt:
    """A conversation that is ready to be rendered."""

    call: TemplateCall
    media: list[Any]  # in the order of their places
    mark: str  # inside control strings that clients wrote


def read(
    host: Preparer,
    request: Mapping[str, Any],
    rules: MediaRules = OWN,
    chat_options: ChatOptions = PLAIN,
) -> RenderablePrompt:
    can = host.profile.abilities
    options = template_options(
        host, request, chat_options.template_kwargs
    )  # before any media is fetched
    tools = checked_tools(request.get("tools"))
    media = Intake(rules, host.sampling)
    parsed = ParsedMessages(request["messages"], tools, media)
    inline = inline_calls_of(host.tokenizer.controls, can)
    can = can if inline is None else with_inline_calls(can, inline)
    try:
        require_places(parsed.turns, tools, can)
    except RequestError as error:
        raise _with_complaint(error, host, parsed.turns, tools) from None
    turns = parsed.turns if chat_options.keep_headers else without_headers(parsed.turns)
    called = any(turn.get("tool_calls") or turn["role"] == "tool" for turn in turns)
    told_tools = tools_for(tools, parsed.referred, can, called=called)

    def normal(turns: Sequence[Any]) -> list[Any]:
        return normalise(turns, can, hoist=chat_options.hoist, tools=bool(told_tools))

    written = normal(turns)
    controls = ControlTokens((written, told_tools, options), host.tokenizer.controls)

    def final(turns: Sequence[Any]) -> list[Any]:
        marked: list[Any] = controls.apply(normal(turns))
        return marked if inline is None else inlined(marked, inline)

    call = TemplateCall(
        host.tokenizer,
        turns,
        controls.apply(told_tools),
        controls.apply(options),
        write=final,
        read=parsed.numbers.restored,
    )
    return RenderablePrompt(call, [media.items[at] for at in pictures_of(written)], controls.mark)


def _with_complaint(
    error: RequestError, host: Preparer, turns: Sequence[Any], tools: Sequence[Any]
) -> RequestError:
    """With what the template itself says of what it has no place for, if it says anything (B16)."""
    try:
        host.tokenizer.render(turns, tools=tools or None)
    except RequestError as own:
        return RequestError(f"{error} {own}", code=error.code, param=error.param)
    return error
