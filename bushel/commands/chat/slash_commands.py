"""What can be done in a chat beside talking: /commands, a function each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bushel.commands.chat.session import ChatSession, Leave
from bushel.commands.pictures import path_of
from bushel.commands.sampling_flags import SETTINGS, read_setting
from bushel.commands.server_client import ServerError
from bushel.commands.terminal.terminal_text import printable
from bushel.core import BushelError
from bushel.core.hub_folders import cached_models
from bushel.core.spelling import did_you_mean

_COMMAND = re.compile(r"/([A-Za-z?]+)(?:\s+(.*))?", re.DOTALL)
_SWITCHES = {"on": True, "off": False}


@dataclass(frozen=True)
class SlashCommand:
    usage: str
    about: str
    run: Callable[[ChatSession, str], None]


def take(session: ChatSession, message: str) -> None:
    """A message as it was typed: a command, a question, or nothing. Leave, BushelError."""
    match = _COMMAND.fullmatch(message.strip())
    if match is None:  # a path that was dragged here begins with a slash, too
        if message.strip():
            session.ask(message)
        return
    name, argument = match[1].lower(), (match[2] or "").strip()
    name = _ALIASES.get(name, name)
    if name not in COMMANDS:
        raise BushelError(f"/{name} is no command{did_you_mean(name, COMMANDS)} /help lists them.")
    COMMANDS[name].run(session, argument)


def completions(session: ChatSession, before: str) -> Sequence[str]:
    """Words that may follow."""
    match before.split():
        case []:
            return [f"/{name}" for name in COMMANDS]
        case ["/model"]:
            try:
                return [*session.connection.served(), *cached_models()]
            except ServerError:
                return cached_models()
        case ["/set"]:
            return [*SETTINGS, "thinking"]
        case ["/set", "thinking"]:
            return list(_SWITCHES)
    return ()


def _help(session: ChatSession, _: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        print(f"  {command.usage:{width}}  {session.ink.dim(command.about)}")
    session.say(
        'Several lines: end each with a backslash, or write """ before and after them. The path of '
        "a picture in a question sends the picture. Ctrl-C stops a reply, Ctrl-D leaves."
    )


def _model(session: ChatSession, name: str) -> None:
    if name:
        session.switch(name)
        session.say(f"{session.connection.model} answers from now on.")
        return
    served = session.connection.served()
    for model in served:
        print(f"{'*' if model == session.connection.model else ' '} {printable(model)}")
    others = [model for model in cached_models() if model not in served]
    for model in others:
        print(f"  {model}  {session.ink.dim('on this machine')}")
    session.say("/model NAME changes to another.")


def _system(session: ChatSession, text: str) -> None:
    if text in ("-", "none"):
        session.conversation.system = ""
    elif text:
        session.conversation.system = text
    now = session.conversation.system
    session.say(f"System: {now}" if now else "There is no system message: /system TEXT sets one.")


def _image(session: ChatSession, path: str) -> None:
    if not path:
        raise BushelError("/image PATH: which one?")
    session.attach([path_of(path)])


def _retry(session: ChatSession, _: str) -> None:
    asked = session.unanswered
    if asked is None:
        if not session.conversation.exchanges:
            raise BushelError("Nothing has been asked yet.")
        asked = session.conversation.exchanges.pop()
    session.answer(asked)


def _undo(session: ChatSession, _: str) -> None:
    if session.unanswered is not None:
        gone, session.unanswered = session.unanswered, None
    elif session.conversation.exchanges:
        gone = session.conversation.exchanges.pop()
    else:
        raise BushelError("Nothing has been said yet.")
    session.say(f"Forgotten: {gone.text.splitlines()[0][:60]}")


def _clear(session: ChatSession, _: str) -> None:
    session.conversation.exchanges.clear()
    session.pending.clear()
    session.unanswered = None
    session.say("A new conversation begins.")


def _save(session: ChatSession, name: str) -> None:
    path = _file(name, "/save FILE")
    if path.exists() and path not in session.files:
        raise BushelError(f"{path} is there already: choose another name.")
    session.conversation.save(path, session.connection.model)
    session.files.add(path)
    session.say(f"Saved in {path}; /load reads it.")


def _load(session: ChatSession, name: str) -> None:
    path = _file(name, "/load FILE")
    session.conversation.load(path)
    session.files.add(path)
    session.unanswered = None
    count = len(session.conversation.exchanges)
    session.say(f"{count} question{'' if count == 1 else 's'} and replies are back.")


def _file(name: str, usage: str) -> Path:
    if not name:
        raise BushelError(f"{usage}: which one?")
    path = path_of(name)
    return path if path.suffix else path.with_suffix(".json")


def _set(session: ChatSession, text: str) -> None:
    settings = session.conversation.settings
    match text.split():
        case []:
            shown = {**settings, "thinking": settings.get("enable_thinking", "as the model has it")}
            shown.pop("enable_thinking", None)
            session.say("\n".join(f"{name} {value}" for name, value in shown.items()))
            session.say(f"/set NAME VALUE: {', '.join(SETTINGS)}, thinking on or off.")
            return
        case ["thinking", value] if value in _SWITCHES:
            settings["enable_thinking"] = _SWITCHES[value]
        case ["thinking"]:
            settings.pop("enable_thinking", None)
        case [name] if name in SETTINGS:
            settings.pop(name, None)
        case [name, value] if name in SETTINGS:
            try:
                settings[name] = read_setting(name, value)
            except ValueError as error:
                raise BushelError(f"{error}.") from None
        case [name, *_]:
            known = (*SETTINGS, "thinking")
            raise BushelError(f"/set {name} is unknown{did_you_mean(name, known)} /set lists all.")
    session.say("From the next reply on.")


def _thoughts(session: ChatSession, _: str) -> None:
    thoughts = session.last.thoughts.strip() if session.last else ""
    session.say(thoughts or "The last reply was given without thoughts.")


def _stats(session: ChatSession, _: str) -> None:
    totals, connection = session.totals, session.connection
    whose = "its own server" if connection.own is not None else connection.client.url
    session.say(f"{connection.model} at {whose}")
    if session.last is not None:
        session.say(f"last reply: {session.last.figures()}")
        if why := session.last.known.get("why"):
            session.say(f"not more was cached, because {why}")
        used = session.last.prompt_tokens + session.last.tokens
        card = connection.client.card(connection.model) or {}
        context = card.get("max_model_len")
        session.say(f"context: {used:,}{f' of {context:,}' if context else ''} tokens")
    rate = f", {totals.tokens / totals.seconds:.1f} tokens/s" if totals.seconds > 0 else ""
    session.say(
        f"all {totals.replies} replies: {totals.tokens:,} tokens{rate}; prompts: "
        f"{totals.prompt_tokens:,}, {totals.cached_tokens:,} of them cached"
    )


def _exit(_: ChatSession, __: str) -> None:
    raise Leave


COMMANDS = {
    "help": SlashCommand("/help", "this list", _help),
    "model": SlashCommand("/model [NAME]", "which models there are, or change to another", _model),
    "system": SlashCommand("/system [TEXT]", "what it is told before all else; - for no", _system),
    "image": SlashCommand("/image PATH", "send a picture with the next question", _image),
    "retry": SlashCommand("/retry", "answer the last question again", _retry),
    "undo": SlashCommand("/undo", "forget the last question and its reply", _undo),
    "clear": SlashCommand("/clear", "begin anew", _clear),
    "save": SlashCommand("/save FILE", "write the conversation to a file", _save),
    "load": SlashCommand("/load FILE", "go on with one that was saved", _load),
    "set": SlashCommand("/set [NAME VALUE]", "temperature, max_tokens, thinking and others", _set),
    "thoughts": SlashCommand("/thoughts", "what it thought before its last reply", _thoughts),
    "stats": SlashCommand("/stats", "speed, context, and what was cached", _stats),
    "exit": SlashCommand("/exit", "leave", _exit),
}
# As other chats have them.
_ALIASES = {"quit": "exit", "bye": "exit", "q": "exit", "?": "help"}
