"""`POST /v1/responses/compact`: a conversation made shorter, to go on from.

What comes back are the user's own messages and one item that stands for the rest: the model's
summary, as a string that clients keep without reading it. Sent back as input, the item is told to
the model again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field

from bushel.core import Event, TextDelta, ThoughtDelta
from bushel.core.conversation import Conversation, Turn
from bushel.server.api.descriptions import KIND_OF_OBJECT
from bushel.server.api.errors import InvalidField
from bushel.server.api.opaque_thoughts import seal, unseal
from bushel.server.api.reply_fields import USAGE, Created, ReplyId
from bushel.server.errors import ApiError
from bushel.server.responses.items import Item, new_id, shown
from bushel.server.responses.schema import ResponseUsage
from bushel.server.responses.usage import ResponseTally
from bushel.server.service.multi_ticket import MultiTicket

KIND = "compaction"
KINDS = (KIND, "compaction_summary")  # the second is how Codex wrote it once
_ASK = (
    "Stop here and write a summary of this conversation, for somebody who goes on with it and has "
    "read none of it. Say what was asked for, what has been done and found out, what was decided "
    "and why, and what is still to do. Keep names, paths, numbers and commands exactly as they "
    "are. Write the summary and nothing else."
)
_TOLD = "Summary of the conversation so far:\n\n"


class CompactedResponse(BaseModel):
    id: ReplyId
    object: Annotated[Literal["response.compaction"], KIND_OF_OBJECT]
    created_at: Created
    output: list[dict[str, Any]] = Field(
        description="The user's messages, and an item of type compaction: what to send as input "
        "from here on."
    )
    usage: Annotated[ResponseUsage, USAGE]


def summary_request(conversation: Conversation) -> Conversation:
    """Without tools: nothing is to be done but to tell what was."""
    ask: Turn = {"role": "user", "content": _ASK}
    made: Conversation = {"messages": [*conversation["messages"], ask]}
    if "thinking" in conversation:
        made["thinking"] = conversation["thinking"]
    if "chat_template_kwargs" in conversation:
        made["chat_template_kwargs"] = conversation["chat_template_kwargs"]
    return made


def summary_of(where: str, item: Item) -> str:
    """What an item of this kind says to the model. InvalidField if another server made it."""
    summary = unseal(item.get("encrypted_content"))
    if summary is None:
        raise InvalidField(f"{where}.encrypted_content", "was not made by this server")
    return _TOLD + summary


def messages_of_user(items: Sequence[Item]) -> list[Item]:
    return [
        shown(item) for item in items if item["type"] == "message" and item.get("role") == "user"
    ]


class CompactionWriter:
    """A `api.response.WholeWriter`. kept: items that stay as they are."""

    def __init__(self, answer: MultiTicket, name: str, kept: Sequence[Item]):
        self._head = {"id": name, "object": "response.compaction", "created_at": answer.created}
        self._kept = kept
        self._tally = ResponseTally(answer)
        self._texts: list[str] = []
        self._thoughts: list[str] = []

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            self._tally.take(event)
            for delta in event.deltas:
                if isinstance(delta, TextDelta):
                    self._texts.append(delta.text)
                elif isinstance(delta, ThoughtDelta):
                    self._thoughts.append(delta.text)

    def whole(self) -> bytes:
        summary = "".join(self._texts).strip() or "".join(self._thoughts).strip()
        if not summary:
            raise ApiError(500, "The model wrote no summary. Ask again.", code="no_summary")
        item = {"type": KIND, "id": new_id(KIND), "encrypted_content": seal(summary)}
        output = [*self._kept, item]
        return msgspec.json.encode({**self._head, "output": output, "usage": self._tally.usage()})
