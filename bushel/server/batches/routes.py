"""`/v1/files` and `/v1/batches`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.responses import FileResponse

from bushel.server.api.descriptions import described
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import Schema, documented, object_schema
from bushel.server.api.unread_fields import note_unread
from bushel.server.batches.batches import Batches
from bushel.server.batches.files import no_file
from bushel.server.batches.records import BatchRecord, FileRecord
from bushel.server.batches.schema import (
    LEAST_SECONDS,
    MOST_SECONDS,
    BatchList,
    BatchObject,
    BatchRequest,
    DeletedFile,
    FileList,
    FileObject,
    window_seconds,
)
from bushel.server.callers import ApiKeys
from bushel.server.errors import ApiError
from bushel.server.http.body_memory import Bodies
from bushel.server.http.multipart import FormPart, form_parts
from bushel.server.http.request_body import JsonRoute, read_body
from bushel.server.options import Limits

if TYPE_CHECKING:
    from bushel.server.service.services import Services

_LONGEST_NAME = 256
_NO_FILE = {404: "No such file."}
_NO_BATCH = {404: "No such batch."}
FileId = Annotated[str, Path(min_length=1, max_length=256, description="A file's id.")]
BatchId = Annotated[str, Path(min_length=1, max_length=256, description="A batch's id.")]
FilesLimit = Annotated[int, Query(ge=1, le=10000, description="Files on a page.")]
BatchesLimit = Annotated[int, Query(ge=1, le=100, description="Batches on a page.")]
Order = Annotated[Literal["asc", "desc"], Query(description="The oldest first, or the newest.")]
After = Annotated[str | None, Query(description="The id of the one before the page.")]
Purpose = Annotated[str | None, Query(description="Only files of this purpose.")]
# FastAPI reads forms with a library of its own; ours are read as every other body is.
_EXPIRY: dict[str, Schema] = {
    "expires_after[anchor]": described("From when the seconds count.", {"const": "created_at"}),
    "expires_after[seconds]": described(
        "How long it is kept (default: until it is deleted).",
        {"type": "integer", "minimum": LEAST_SECONDS, "maximum": MOST_SECONDS},
    ),
}
_FORM = object_schema(
    {
        "file": described("Requests, one a line.", {"type": "string", "format": "binary"}),
        "purpose": described("What it is for.", {"const": "batch"}),
    },
    **_EXPIRY,
)
_UPLOAD = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
Kept = TypeVar("Kept", FileRecord, BatchRecord)


def batch_routes(services: Services, batches: Batches) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    keys = ApiKeys(services.options)
    _add_upload(routes, keys, batches)
    _add_file_routes(routes, keys, batches)
    _add_batch_routes(routes, keys, batches)
    return routes


# -- files ---------------------------------------------------------------------------------------


def _add_upload(routes: APIRouter, keys: ApiKeys, batches: Batches) -> None:
    more = {413: "The body is too large, or there is no room for it.", 415: "It is not a form."}

    @routes.post(
        "/v1/files",
        responses=documented(body=True, more=more),
        openapi_extra=_UPLOAD,
        summary="Keep a file of requests for a batch",
    )
    async def upload_file(request: Request) -> FileObject:
        files = batches.files
        owner = keys.caller(request.headers).owner
        limits: Limits = request.app.state.limits
        bodies: Bodies = request.app.state.bodies
        with bodies.reading() as body:
            data = await read_body(request, limits, body)
            parts = form_parts(request.headers.get("content-type", ""), data)
            file, seconds = _file_of(parts), _seconds_of(parts)
            size = len(file.content)
            files.require_room(owner, size)
            files.growing += size
            try:
                file_id = await asyncio.to_thread(files.store, file.content)
            finally:
                files.growing -= size
        name = (file.filename or "file")[:_LONGEST_NAME]
        return FileObject.of(files.add(file_id, owner, name, "batch", seconds))


def _file_of(parts: dict[str, FormPart]) -> FormPart:
    for name in ("purpose", "file"):
        if name not in parts:
            raise InvalidField(name, "is missing")
    if parts["purpose"].text != "batch":
        raise InvalidField("purpose", "must be batch: files are for nothing else here")
    return parts["file"]


def _seconds_of(parts: dict[str, FormPart]) -> int | None:
    """That a file is kept for."""
    anchor, seconds = parts.get("expires_after[anchor]"), parts.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor is None or anchor.text != "created_at":
        raise InvalidField("expires_after.anchor", "must be created_at")
    text = "" if seconds is None else seconds.text
    number = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not LEAST_SECONDS <= number <= MOST_SECONDS:
        rule = f"must be a whole number from {LEAST_SECONDS} to {MOST_SECONDS}"
        raise InvalidField("expires_after.seconds", rule)
    return number


def _add_file_routes(routes: APIRouter, keys: ApiKeys, batches: Batches) -> None:
    @routes.get("/v1/files", responses=documented(), summary="Files of the caller's key")
    async def list_files(
        request: Request,
        purpose: Purpose = None,
        limit: FilesLimit = 10000,
        order: Order = "desc",
        after: After = None,
    ) -> FileList:
        records = list(batches.files.of(keys.caller(request.headers).owner))
        if purpose is not None:
            records = [record for record in records if record.purpose == purpose]
        if order == "desc":
            records.reverse()
        page, more = _page(records, after, limit)
        return FileList(
            data=[FileObject.of(record) for record in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=more,
        )

    @routes.get(
        "/v1/files/{file_id}", responses=documented(more=_NO_FILE), summary="What a file is"
    )
    async def retrieve_file(file_id: FileId, request: Request) -> FileObject:
        return FileObject.of(batches.files.find(keys.caller(request.headers), file_id))

    @routes.get(
        "/v1/files/{file_id}/content",
        response_class=Response,
        responses={
            200: {"description": "Its lines.", "content": {"application/octet-stream": {}}},
            **documented(more=_NO_FILE),
        },
        summary="What a file says",
    )
    async def file_content(file_id: FileId, request: Request) -> Response:
        record = batches.files.find(keys.caller(request.headers), file_id)
        path = batches.files.content(record)
        if not path.exists():
            raise no_file(file_id)
        return FileResponse(path, media_type="application/octet-stream")

    @routes.delete(
        "/v1/files/{file_id}",
        responses=documented(more={**_NO_FILE, 409: "A batch reads it."}),
        summary="Delete a file",
    )
    async def delete_file(file_id: FileId, request: Request) -> DeletedFile:
        record = batches.files.find(keys.caller(request.headers), file_id)
        if batches.uses(file_id):
            raise ApiError(409, "A batch that has not ended reads this file.", code="file_in_use")
        batches.files.delete(record)
        return DeletedFile(id=file_id)


# -- batches -------------------------------------------------------------------------------------


def _add_batch_routes(routes: APIRouter, keys: ApiKeys, batches: Batches) -> None:
    @routes.post(
        "/v1/batches",
        responses=documented(
            body=True, more={**_NO_FILE, 429: "Too many batches have not ended yet."}
        ),
        summary="Answer a file of requests when nobody else waits",
    )
    async def create_batch(body: BatchRequest, request: Request) -> BatchObject:
        note_unread(body)
        caller = keys.caller(request.headers)
        file = batches.files.find(caller, body.input_file_id)
        if file.purpose != "batch":
            raise InvalidField("input_file_id", "must be a file with the purpose batch")
        kept = body.output_expires_after
        record = batches.create(
            caller.owner,
            endpoint=body.endpoint,
            input_file_id=file.id,
            window=body.completion_window,
            seconds=window_seconds(body.completion_window),
            metadata=body.metadata,
            output_seconds=None if kept is None else kept.seconds,
        )
        return BatchObject.of(batches, record)

    @routes.get("/v1/batches", responses=documented(), summary="Batches of the caller's key")
    async def list_batches(
        request: Request, limit: BatchesLimit = 20, after: After = None
    ) -> BatchList:
        page, more = _page(batches.of(keys.caller(request.headers).owner), after, limit)
        return BatchList(
            data=[BatchObject.of(batches, record) for record in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=more,
        )

    @routes.get(
        "/v1/batches/{batch_id}", responses=documented(more=_NO_BATCH), summary="How far a batch is"
    )
    async def retrieve_batch(batch_id: BatchId, request: Request) -> BatchObject:
        return BatchObject.of(batches, batches.find(keys.caller(request.headers), batch_id))

    @routes.post(
        "/v1/batches/{batch_id}/cancel",
        responses=documented(body=True, more={**_NO_BATCH, 409: "The batch has ended."}),
        summary="End a batch; what was answered stays",
    )
    async def cancel_batch(batch_id: BatchId, request: Request) -> BatchObject:
        record = batches.find(keys.caller(request.headers), batch_id)
        batches.cancel(record)
        return BatchObject.of(batches, record)


def _page(records: Sequence[Kept], after: str | None, limit: int) -> tuple[Sequence[Kept], bool]:
    """What is asked for of a list, and whether there is more."""
    if after is not None:
        ids = [record.id for record in records]
        if after not in ids:
            raise InvalidField("after", "is not the id of one of them")
        records = records[ids.index(after) + 1 :]
    return records[:limit], len(records) > limit
