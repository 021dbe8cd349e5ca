"""One choice's events, with their text and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from bushel.chat.reply.reader import Reader
from bushel.core import Decoding, Delta, FinishReason, TextDelta
from bushel.text.detokenizer import Decode, OutputProcessor


class ChoiceText:
    """Feed it a choice's tokens as they come. reader: of its thoughts and calls, if any is."""

    def __init__(self, decode: Decode, decoding: Decoding, reader: Reader | None = None):
        self._output = OutputProcessor(decode, decoding)
        self._reader = reader

    @property
    def stop(self) -> str | None:
        """The stop string that ended it."""
        return self._output.stop

    def take(
        self, token_ids: Sequence[int], finish: FinishReason | None
    ) -> tuple[str, tuple[Delta, ...], FinishReason | None]:
        """The text of some tokens, all that it says, and why the reply ended, if it did."""
        output, ended = self._output, False
        for token in token_ids:
            ended = output.add(token) or ended
        if finish is not None and not ended:
            output.finish()
        text = output.take()
        if self._reader is None:
            return text, (), finish
        deltas = self._reader.feed(text) if text else []
        if finish is not None:
            deltas += self._reader.finish()
            finish = self._reader.reason(finish)
        said = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
        return "".join(said), tuple(deltas), finish
