"""What requests are promised: how long they may become, and that their memory will be there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bushel.core import ModelError, Request, RequestError
from bushel.core.footprint import Memory

# Rows for which there has to be memory, of a request's choices: one that decodes, and the state of
# the prompt that the others will begin with. They decode as memory allows.
_AT_LEAST = 2


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


class Admission:
    """Owned by one engine. Without `memory`, the model's context is the only limit."""

    def __init__(self, memory: Memory | None, context: int | None, least_chunk: int):
        self.memory = memory  # with nothing promised
        self.claimed: int | None = None  # bytes that MLX keeps to, where anybody shares it
        self._told: tuple[int, Memory] | None = None  # what it will keep to, and rows may have
        self._context = context
        self._least_chunk = least_chunk
        if memory is not None and memory.longest_row(1, least_chunk, 1) == 0:
            raise ModelError(
                f"The model needs {_gb(memory.footprint.peak(1, 1, least_chunk))} to serve "
                f"anything, {_gb(memory.footprint.weights)} of it for its weights; "
                f"{_gb(memory.limit)} may be used."
            )

    def tell(self, limit: int, usable: int) -> None:
        """MLX is to keep to another limit, of which rows may have so much: `settle`."""
        if self.memory is not None:
            self._told = limit, replace(self.memory, limit=usable)

    @property
    def settling(self) -> bool:
        return self._told is not None

    def settle(self, present: Iterable[tuple[int, int]], promised: int) -> None:
        """Keep to what was told, as far as possible. present: choices and length of each request
        that is here, and could be served alone until now. promised: bytes that rows hold or will.
        """
        if self._told is None or self.memory is None:
            return
        limit, told = self._told
        each = (
            told.footprint.peak(min(choices, _AT_LEAST), length, self._least_chunk)
            for choices, length in present
        )
        alone = min(self.memory.limit, max(each, default=0))
        self.memory = replace(told, limit=max(told.limit, alone))
        if max(alone, promised) <= told.limit or limit >= (self.claimed or limit):
            self.claimed = limit

    def longest(self, request: Request) -> int | None:
        """What prompt and reply may come to: the context, or less if memory ends before it.

        A reply that was asked to be longer is cut there, as it is at the context (B50); a
        prompt that is longer is refused.
        """
        memory, context = self._told[1] if self._told else self.memory, self._context
        if memory is None:
            return context
        rows, prompt = min(len(request.choices), _AT_LEAST), len(request.prompt.ids)
        asked = prompt + max(choice.max_tokens for choice in request.choices)
        most = asked if context is None else min(asked, context)
        if memory.with_rows(rows, most).fits(self._least_chunk):
            return context
        longest = memory.longest_row(rows, self._least_chunk, most)
        if longest > prompt:
            return longest
        raise RequestError(
            f"A prompt of {prompt} tokens in {rows} rows needs "
            f"{_gb(memory.footprint.peak(rows, prompt + 1, self._least_chunk))} of memory; "
            f"{_gb(memory.limit)} may be used, {_gb(memory.footprint.weights)} of it by the "
            f"model, and {longest} tokens would fit.",
            code="insufficient_memory",
            param="messages",
        )

    def promised(self, lengths: Iterable[int], tokens: int | None = None) -> Memory | None:
        """Memory as it will be when each row has the length that it was promised.

        tokens: in pages, of all of them together, where any are.
        """
        if self.memory is None:
            return None
        lengths = [*lengths]
        memory = self.memory.with_rows(len(lengths), max(lengths, default=0))
        return memory if tokens is None else replace(memory, tokens=tokens)

    def peak(self, memory: Memory) -> int:
        """Bytes that exist at once when promises are kept."""
        return memory.peak(self._least_chunk)

    def spare(self, memory: Memory) -> tuple[int, int]:
        """Bytes and buffers that no row was promised.

        What is kept of rows is copied while they change and while others run: both at once.
        """
        sizes, rows, longest = memory.footprint, memory.rows, memory.longest
        used = memory.peak(self._least_chunk) + sizes.copy(rows, longest)
        return memory.limit - used, memory.buffer_limit - sizes.buffers(rows)

    def paged_tokens(self, memory: Memory) -> int:
        """How many there may be in pages, of rows and of what is kept."""
        return memory.paged_tokens(self._least_chunk)

    def status(self, memory: Memory | None) -> dict[str, int]:
        if memory is None:
            return {}
        sizes = memory.footprint
        return {
            "limit_bytes": memory.limit,
            "weights_bytes": sizes.weights,
            "promised_bytes": self.peak(memory),
            "promised_buffers": sizes.buffers(memory.rows),
            **({} if self.claimed is None else {"claimed_bytes": self.claimed}),
        }
