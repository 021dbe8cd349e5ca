"""What operators ask of the hub's cache, and what they are told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bushel.server.api.descriptions import KIND_OF_OBJECT, about
from bushel.server.hub.pulls import Pull, PullState

_ID = about("The model's id on the hub: owner/name.")
_SIZE = about("Bytes on disk, of all that is kept of it.")


class HubModelCard(BaseModel):
    """A checkpoint in the hub's cache."""

    id: Annotated[str, _ID]
    object: Annotated[Literal["hub.model"], KIND_OF_OBJECT] = "hub.model"
    size_bytes: Annotated[int, _SIZE]
    used_at: int = Field(description="When it was last read, in seconds since 1970.")
    model_type: str = Field(description="Its architecture, as its config names it.")
    max_model_len: int | None = Field(
        description="Tokens of its context; null if its config does not say."
    )
    sees: bool = Field(description="Whether it takes pictures.")
    served_as: list[str] = Field(
        description="Names that this server serves it under; none: it does not."
    )
    loaded: bool = Field(description="Whether it is in memory, or on its way.")


class PartialModelCard(BaseModel):
    """What a download left that did not come to its end."""

    id: Annotated[str, _ID]
    object: Annotated[Literal["hub.partial_model"], KIND_OF_OBJECT] = "hub.partial_model"
    size_bytes: Annotated[int, _SIZE]
    used_at: int = Field(description="When something last came of it, in seconds since 1970.")


class HubModelList(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[HubModelCard] = Field(description="Models that can be served, the largest first.")
    partial: list[PartialModelCard] = Field(description="Models of which some is missing.")
    free_bytes: int = Field(description="Left on the disk that downloads go to.")
    serves_downloads: bool = Field(
        description="Whether a model can be asked for once it is here: --downloaded."
    )


class PullRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str = Field(
        min_length=3, max_length=256, description="The model's id on the hub: owner/name."
    )


class PullCard(BaseModel):
    """A download. Sizes and counts are of all that the model has, with what was here before."""

    model: Annotated[str, _ID]
    object: Annotated[Literal["hub.pull"], KIND_OF_OBJECT] = "hub.pull"
    state: PullState = Field(
        description="waiting or running; done, failed or cancelled once it has ended."
    )
    bytes_done: int = Field(description="That are here.")
    bytes_total: int = Field(description="That it has; 0 until the hub has told.")
    files_done: int = Field(description="That are here.")
    files_total: int = Field(description="That it has; 0 until the hub has told.")
    code: str | None = Field(
        description="Why it failed: not_found, gated, refused, disk_full, unreachable, offline, "
        "cut_off, not_a_checkpoint, invalid_id or failed."
    )
    reason: str | None = Field(description="Why it failed, in a sentence.")
    began_at: int = Field(description="When it was asked for, in seconds since 1970.")
    ended_at: int | None = Field(description="When it ended, in seconds since 1970.")

    @classmethod
    def of(cls, pull: Pull) -> PullCard:
        return cls(
            model=pull.model,
            state=pull.state,
            bytes_done=pull.progress.bytes_done,
            bytes_total=pull.progress.bytes_total,
            files_done=pull.progress.files_done,
            files_total=pull.progress.files_total,
            code=pull.code,
            reason=pull.reason,
            began_at=int(pull.began),
            ended_at=None if pull.ended is None else int(pull.ended),
        )


class PullList(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[PullCard] = Field(
        description="Downloads that wait, run, or ended since the server began."
    )


class RemovedModel(BaseModel):
    id: Annotated[str, _ID]
    object: Annotated[Literal["hub.model"], KIND_OF_OBJECT] = "hub.model"
    deleted: Annotated[Literal[True], about("Always true; what cannot be is an error.")] = True
    freed_bytes: int = Field(description="That are free again.")


class MemoryNeed(BaseModel):
    rows: int = Field(description="Replies that run together.")
    tokens: int = Field(description="Of each, prompt and reply.")
    bytes: int = Field(description="Of the weights and these rows, when nothing runs.")


class LayerStates(BaseModel):
    """Layers whose state is of one class."""

    state: str = Field(description="The class that the library keeps it in.")
    module: str = Field(description="That defines it.")
    layers: list[int] = Field(description="Which layers these are, counted from 0.")
    kind: str = Field(description="What it is to Bushel.")
    batches: bool = Field(description="Whether a form of it holds several rows.")
    batch_reason: str = Field(description="Why it does not; empty: it does.")
    kept: str = Field(description="by token or as snapshots; empty: prompts are not reused.")
    kept_reason: str = Field(description="Why it is not kept; empty: it is.")
    library_batch: list[str] = Field(
        description="Of a class that is not known: what it offers of the libraries' batches."
    )
    needs: str = Field(description="What would let its rows share a batch; empty: nothing.")


class InspectionReport(BaseModel):
    """What a checkpoint is and will need, told without reading its weights. Sizes are bytes."""

    id: str = Field(description="The name that was asked for.")
    object: Annotated[Literal["inspection"], KIND_OF_OBJECT] = "inspection"
    model_type: str = Field(description="Its architecture, as its config names it.")
    task: str = Field(description="generate, or what an encoder is for.")
    sees: bool = Field(description="Whether it takes pictures.")
    no_pictures: str = Field(
        description="Why it takes none, though it was made for them; else empty."
    )
    parameters: int = Field(description="How many numbers its weights are.")
    quantization: str = Field(description="As the checkpoint tells it; empty if it has none.")
    dtype: str = Field(description="Of most of its weights, in memory.")
    disk: int = Field(description="Of its weights, on disk.")
    weights: int = Field(description="Of its weights, in memory.")
    context: int | None = Field(description="Tokens; null if its config does not say.")
    vocabulary: int = Field(description="How many tokens it knows.")
    layers: dict[str, int] = Field(description="How many layers of each kind it has.")
    states: list[LayerStates] = Field(description="What they keep, by class.")
    row_token: int = Field(description="What a row keeps of every token.")
    row_fixed: int = Field(description="What a row keeps beside that, at most.")
    window: int | None = Field(description="Tokens that its sliding windows keep; null: none.")
    batching: str = Field(description="How its rows share a batch, or why they do not.")
    prefixes: str = Field(description="Whether what prompts share is computed once.")
    tools: str = Field(description="The format of its tool calls; empty: none.")
    thinking: str = Field(description="The format of its thoughts; empty: none.")
    template: dict[str, Any] = Field(description="What its chat template can take.")
    sampling: dict[str, Any] = Field(description="Defaults of its own for sampling.")
    memory: list[MemoryNeed] = Field(description="What it needs, by rows and lengths.")
