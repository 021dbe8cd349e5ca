"""What may be asked of files and batches, and how both look, as OpenAI's API has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bushel.server.api.descriptions import KIND_OF_OBJECT, about
from bushel.server.api.fields import Hint, whole
from bushel.server.api.reply_fields import FIRST_ID, LAST_ID
from bushel.server.batches.batches import Batches
from bushel.server.batches.records import BatchRecord, BatchStatus, FileRecord

_MOST_PAIRS, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512
LEAST_SECONDS, MOST_SECONDS = 3600, 2592000
Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]


def window_seconds(window: str) -> int:
    return int(window.removesuffix("h")) * 3600


Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=_LONGEST_KEY)],
        Annotated[str, Field(strict=True, max_length=_LONGEST_VALUE)],
    ],
    Field(max_length=_MOST_PAIRS),
]
Window = Annotated[str, Field(strict=True, pattern="^[1-9][0-9]{0,2}h$")]
KeptSeconds = Annotated[
    int, Field(strict=True, ge=LEAST_SECONDS, le=MOST_SECONDS), BeforeValidator(whole)
]


class ExpiresAfter(BaseModel):
    anchor: Literal["created_at"] = Field(description="From when the seconds count.")
    seconds: KeptSeconds = Field(description="How long a file is kept.")


class BatchRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    input_file_id: Hint = Field(description="A file of requests, one a line.")
    endpoint: Endpoint = Field(description="Where all of its requests go.")
    completion_window: Window = Field(
        description="Hours after which what is not answered is given up: 24h, or up to 999h."
    )
    metadata: Metadata | None = Field(None, description="Comes back with the batch.")
    output_expires_after: ExpiresAfter | None = Field(
        None, description="How long its files are kept (default: until they are deleted)."
    )


# -- replies -------------------------------------------------------------------------------------

_MORE = about("Whether there are further pages.")


class FileObject(BaseModel):
    id: str = Field(description="The file's id.")
    object: Annotated[Literal["file"], KIND_OF_OBJECT] = "file"
    bytes: int = Field(description="Its size.")
    created_at: int = Field(description="When it was sent, in seconds since 1970.")
    expires_at: int | None = Field(description="When it will be deleted; null: not by itself.")
    filename: str = Field(description="What its sender called it.")
    purpose: str = Field(description="batch, or batch_output for what came of one.")
    status: Annotated[Literal["processed"], about("It can be used.")] = "processed"
    status_details: Annotated[None, about("Always null.")] = None

    @classmethod
    def of(cls, record: FileRecord) -> FileObject:
        return cls(
            id=record.id,
            bytes=record.bytes,
            created_at=record.created_at,
            expires_at=record.expires_at,
            filename=record.filename,
            purpose=record.purpose,
        )


class FileList(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[FileObject] = Field(description="Files of the caller's key.")
    first_id: Annotated[str | None, FIRST_ID]
    last_id: Annotated[str | None, LAST_ID]
    has_more: Annotated[bool, _MORE]


class DeletedFile(BaseModel):
    id: str = Field(description="The file's id.")
    object: Annotated[Literal["file"], KIND_OF_OBJECT] = "file"
    deleted: Annotated[Literal[True], about("It is gone.")] = True


class BatchError(BaseModel):
    code: str = Field(description="A word for programs.")
    message: str = Field(description="What is wrong, in words.")
    param: str | None = Field(description="The key of the line that it is about.")
    line: int | None = Field(description="The line of the file, from 1.")


class BatchErrors(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[BatchError] = Field(description="The first of them.")


class RequestCounts(BaseModel):
    total: int = Field(description="Requests in the file.")
    completed: int = Field(description="Those that were answered well.")
    failed: int = Field(description="Those that ended with an error.")


def _at(status: str) -> Any:
    return Field(None, description=f"When it became {status}, in seconds since 1970.")


class BatchObject(BaseModel):
    id: str = Field(description="The batch's id.")
    object: Annotated[Literal["batch"], KIND_OF_OBJECT] = "batch"
    endpoint: str = Field(description="Where its requests go.")
    errors: BatchErrors | None = Field(description="Why it failed.")
    input_file_id: str = Field(description="The file of its requests.")
    completion_window: str = Field(description="How long it may take.")
    status: BatchStatus = Field(description="How far it is.")
    output_file_id: str | None = Field(description="The file of answers, once it has ended.")
    error_file_id: str | None = Field(description="The file of errors, once it has ended.")
    created_at: int = Field(description="When it was made, in seconds since 1970.")
    in_progress_at: int | None = _at("in_progress")
    expires_at: int = Field(description="When what is not answered will be given up.")
    finalizing_at: int | None = _at("finalizing")
    completed_at: int | None = _at("completed")
    failed_at: int | None = _at("failed")
    expired_at: int | None = _at("expired")
    cancelling_at: int | None = _at("cancelling")
    cancelled_at: int | None = _at("cancelled")
    request_counts: RequestCounts = Field(description="How many requests are done.")
    metadata: dict[str, str] | None = Field(description="What the request for it said.")

    @classmethod
    def of(cls, batches: Batches, record: BatchRecord) -> BatchObject:
        def file(file_id: str) -> str | None:
            return file_id if record.ended and batches.files.get(file_id) else None

        errors = [
            BatchError(code=one.code, message=one.message, param=one.param, line=one.line)
            for one in record.errors
        ]
        return cls(
            id=record.id,
            endpoint=record.endpoint,
            errors=BatchErrors(data=errors) if errors else None,
            input_file_id=record.input_file_id,
            completion_window=record.completion_window,
            status=record.status,
            output_file_id=file(record.output_file_id),
            error_file_id=file(record.error_file_id),
            created_at=record.created_at,
            expires_at=record.expires_at,
            request_counts=RequestCounts(
                total=record.total, completed=record.completed, failed=record.failed
            ),
            metadata=record.metadata,
            **{f"{status}_at": at for status, at in record.times.items()},  # type: ignore[arg-type]
        )


class BatchList(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[BatchObject] = Field(description="Batches of the caller's key, the newest first.")
    first_id: Annotated[str | None, FIRST_ID]
    last_id: Annotated[str | None, LAST_ID]
    has_more: Annotated[bool, _MORE]
