"""What has been said: turns of a question and its reply, as a request has them and as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bushel.core import BushelError


@dataclass
class Exchange:
    """A question, and what was said to it. images: data: URLs."""

    text: str
    images: tuple[str, ...] = ()
    reply: str = ""

    @property
    def question(self) -> dict[str, Any]:
        if not self.images:
            return {"role": "user", "content": self.text}
        images = [{"type": "image_url", "image_url": {"url": url}} for url in self.images]
        text = [{"type": "text", "text": self.text}] if self.text else []
        return {"role": "user", "content": [*images, *text]}

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [self.question, {"role": "assistant", "content": self.reply}]


@dataclass
class TerminalConversation:
    """settings: fields of requests that were set by hand."""

    system: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)

    def body(self, model: str, asked: Exchange) -> dict[str, Any]:
        """A request that goes on with this question."""
        return {"model": model, "messages": [*self.messages(), asked.question], **self.settings}

    def messages(self) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *(message for each in self.exchanges for message in each.messages)]

    def save(self, path: Path, model: str) -> None:
        """`messages` and the settings beside it are a body of /v1/chat/completions."""
        content = {"model": model, **self.settings, "messages": self.messages()}
        try:
            path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        except OSError as error:
            raise BushelError(f"{path} cannot be written: {error.strerror}.") from None

    def load(self, path: Path) -> None:
        """Goes on with what a file has; nothing changes if it cannot be read. Its settings are left
        alone: they were another day's.
        """
        try:
            messages = json.loads(path.read_text("utf-8"))["messages"]
            system, exchanges = _read(messages)
        except OSError as error:
            raise BushelError(f"{path} cannot be read: {error.strerror}.") from None
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise BushelError(f"{path} holds no conversation that was saved here.") from None
        self.system, self.exchanges = system, exchanges


def _read(messages: list[dict[str, Any]]) -> tuple[str, list[Exchange]]:
    system = ""
    if messages and messages[0]["role"] == "system":
        system, messages = str(messages[0]["content"]), messages[1:]
    exchanges = []
    for asked, said in zip(messages[::2], messages[1::2], strict=True):
        if (asked["role"], said["role"]) != ("user", "assistant"):
            raise ValueError("not in turns")
        exchanges.append(_exchange(asked["content"], said["content"]))
    return system, exchanges


def _exchange(content: Any, reply: Any) -> Exchange:
    if isinstance(content, str):
        return Exchange(content, (), str(reply))
    images = tuple(str(part["image_url"]["url"]) for part in content if "image_url" in part)
    text = "\n".join(str(part["text"]) for part in content if "text" in part)
    return Exchange(text, images, str(reply))
