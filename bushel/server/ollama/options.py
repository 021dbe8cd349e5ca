"""`options` of a request: how tokens are chosen, and settings of the machine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from bushel.core import SamplingParams
from bushel.server.api.errors import InvalidField
from bushel.server.api.llama_sampling import LlamaSamplingFields, PredictedTokens
from bushel.server.api.request import UNLIMITED
from bushel.server.api.shared_fields import IGNORED
from bushel.server.api.unread_fields import note_unread

Ignored = Annotated[Any, IGNORED]


class OllamaOptions(LlamaSamplingFields):
    num_predict: PredictedTokens | None = Field(
        None,
        description="Tokens of the reply, at most, thoughts included; 0 or less: until the context "
        "ends (default: the server's, the model's, or -1).",
    )
    penalize_newline: Literal[True] | None = Field(
        None, description="Always true: new lines are penalised like any token. False is refused."
    )

    # The context is the model's, prompts are never shortened, and the rest is about the machine.
    num_ctx: Ignored = None
    num_keep: Ignored = None
    num_batch: Ignored = None
    num_gpu: Ignored = None
    main_gpu: Ignored = None
    num_thread: Ignored = None
    draft_num_predict: Ignored = None
    numa: Ignored = None
    low_vram: Ignored = None
    f16_kv: Ignored = None
    logits_all: Ignored = None
    vocab_only: Ignored = None
    use_mmap: Ignored = None
    use_mlock: Ignored = None
    embedding_only: Ignored = None

    def check(self) -> None:
        """InvalidField for what is misspelt or cannot be obeyed."""
        try:
            note_unread(self)
        except InvalidField as error:
            raise InvalidField(f"options.{error.where}", error.rule, code=error.code) from None
        self.require_known_samplers("options.")

    def sampling(self, logprobs: int | None) -> SamplingParams:
        limit = self.num_predict
        unlimited = limit is not None and limit <= 0
        return self.params(UNLIMITED if unlimited else limit, logprobs)
