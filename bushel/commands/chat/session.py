"""The conversation that goes on in a terminal: reads, asks, shows, and goes on whatever happens."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bushel.commands.chat.conversation import Exchange, TerminalConversation
from bushel.commands.chat.line_editor import LineEditor
from bushel.commands.chat.reply_view import ReplyView
from bushel.commands.model_connection import ModelConnection, start
from bushel.commands.own_server import require_model
from bushel.commands.pictures import data_url, take_pictures
from bushel.commands.reply_stream import StreamedReply
from bushel.commands.server_client import ServerError
from bushel.commands.terminal.terminal_text import Ink, one_line, printable
from bushel.core import BushelError


class Leave(Exception):
    """The person has said goodbye."""


@dataclass
class Totals:
    """Of all replies of a session."""

    replies: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0  # in which tokens came

    def add(self, reply: StreamedReply) -> None:
        self.replies += 1
        self.tokens += reply.tokens
        self.prompt_tokens += reply.prompt_tokens
        self.cached_tokens += reply.cached_tokens
        self.seconds += reply.seconds - (reply.first or reply.seconds)


class ChatSession:
    """pending: pictures that go with the next question. unanswered: a question that failed, or was
    stopped before anything was said to it; /retry asks it again.
    """

    def __init__(self, connection: ModelConnection, conversation: TerminalConversation, ink: Ink):
        self.connection = connection
        self.conversation = conversation
        self.ink = ink
        self.pending: list[str] = []
        self.unanswered: Exchange | None = None
        self.last: StreamedReply | None = None
        self.totals = Totals()
        self.files: set[Path] = set()  # that it has saved or loaded, and may write over

    def say(self, text: str) -> None:
        """A line of our own, beside what the model says."""
        print(self.ink.dim(printable(text)), flush=True)

    def complain(self, error: BushelError | str) -> None:
        print(self.ink.red(one_line(str(error))), flush=True)

    # -- reading ---------------------------------------------------------------------------

    def run(self, editor: LineEditor, take: Callable[[ChatSession, str], None]) -> int:
        """take: does what a message says. Returns the exit code once the person leaves."""
        interrupted = False
        while True:
            try:
                message = editor.read()
            except EOFError:
                print()
                return 0
            except KeyboardInterrupt:
                print()
                if interrupted:
                    return 0
                interrupted = True
                self.say("Ctrl-C once more, or Ctrl-D, leaves.")
                continue
            interrupted = False
            try:
                take(self, message)
            except Leave:
                return 0
            except KeyboardInterrupt:
                print()
            except BushelError as error:
                self.complain(error)

    # -- asking ----------------------------------------------------------------------------

    def attach(self, paths: Sequence[Path]) -> None:
        """BushelError if one cannot be sent; the others are attached then."""
        for path in paths:
            self.pending.append(data_url(path))
            self.say(f"{path.name} goes with your question.")

    def ask(self, message: str) -> None:
        """A question, with the pictures that it names."""
        text, paths = take_pictures(message)
        self.attach(paths)
        if not text:
            return  # a picture alone: the question comes next
        images, self.pending = tuple(self.pending), []
        self.answer(Exchange(text, images))

    def answer(self, asked: Exchange) -> None:
        """Streams the reply. What is stopped is kept as far as it came."""
        self.unanswered = asked
        self._revive()
        reply = StreamedReply()
        view = ReplyView(reply, self.ink)
        view.wait(self._waiting())
        stopped = False
        body = self.conversation.body(self.connection.model, asked)
        try:
            with contextlib.closing(reply.stream(self.connection.client, body)) as parts:
                for kind, part in parts:
                    view.show(kind, part)
        except KeyboardInterrupt:
            stopped = True
        except ServerError as error:
            view.end()
            self.complain(f"{error} (/retry asks again)")
            return
        view.end(stopped)
        self._keep(asked, reply)

    def _keep(self, asked: Exchange, reply: StreamedReply) -> None:
        self.last = reply
        reply.ask_figures(self.connection.client)
        self.totals.add(reply)
        if reply.text:
            asked.reply = reply.text
            self.conversation.exchanges.append(asked)
            self.unanswered = None
        cut = ", cut off by its limit" if reply.finish_reason == "length" else ""
        self.say(f"{reply.figures()}{cut}")

    # -- who answers -----------------------------------------------------------------------

    def _revive(self) -> None:
        """A server of our own that died is started again."""
        own = self.connection.own
        if own is not None and own.ended:
            self.say(f"The engine of {own.model} is gone: starting it again.")
            own.close()
            self.connection = start(own.model, self.say)

    def _waiting(self) -> str:
        """What is shown until the first token comes."""
        with contextlib.suppress(ServerError):
            card = self.connection.client.card(self.connection.model) or {}
            if card.get("state", "ready") != "ready":
                return f"loading {printable(self.connection.model)} ..."
        return "..."

    def switch(self, model: str) -> None:
        """To a model that is served here, or to one that a server of our own then serves."""
        with contextlib.suppress(ServerError):
            if self.connection.client.card(model) is not None:
                self.connection.model = model
                return
        self.say(f"{self.connection.client.url} does not serve {model}: starting it here.")
        require_model(model)
        self.connection.close()  # memory for two is not always there
        self.connection = start(model, self.say)

    def close(self) -> None:
        self.connection.close()
        sys.stdout.flush()
