"""The routes about files: small ones in JSON, large ones streamed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.requests import DownloadFile, ReadFile, WriteFile
from sandlot.platform.api.responses import FileContent, FileWritten
from sandlot.platform.api.streams import Stream
from sandlot.platform.core.errors import InvalidRequest
from sandlot.server.failures import describe

router = APIRouter(prefix="/sandboxes", tags=["files"], responses=PROBLEMS)
PIECE = 256 * 1024
_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["sandbox_id", "path", "file"],
                    "properties": {
                        "sandbox_id": {"type": "string"},
                        "path": {"type": "string"},
                        "file": {"type": "string", "format": "binary"},
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in ("sandbox_id", "path")
    ],
}


@router.post("/write-file")
async def write_file(body: WriteFile, deps: Given, caller: Writer) -> FileWritten:
    """Write a file whole, with the directories above it."""
    content = _decoded(body.content) if body.encoding == "base64" else body.content.encode("utf-8", "surrogatepass")
    size = await deps.files.write(body.target(caller), body.path, content)
    return FileWritten(path=body.path, size=size)


@router.post("/read-file")
async def read_file(body: ReadFile, deps: Given, caller: Reader) -> FileContent:
    """Read a file whole."""
    content = await deps.files.read(body.target(caller), body.path)
    if body.encoding == "base64":
        return FileContent(content=base64.b64encode(content).decode(), encoding="base64")
    try:
        return FileContent(content=content.decode())
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"{body.path!r} is not UTF-8 text; read it with encoding base64, or with /sandboxes/download-file"
        ) from None


@router.post("/upload-file", openapi_extra=_UPLOAD)
async def upload_file(request: Request, deps: Given, caller: Writer) -> FileWritten:
    """Send a file as a form (`sandbox_id`, `path`, `file`), or as the body itself with the rest in the query."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        async with request.form(max_files=1, max_fields=8) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise InvalidRequest("the form has no file in its field 'file'")
            named = _target({name: value for name, value in form.items() if isinstance(value, str)})
            size = await deps.files.write(named.target(caller), named.path, _pieces(file))
    else:
        named = _target(dict(request.query_params))
        size = await deps.files.write(named.target(caller), named.path, _body(request))
    return FileWritten(path=named.path, size=size)


@router.post("/download-file", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}})
async def download_file(body: DownloadFile, deps: Given, caller: Reader) -> Response:
    """A file's bytes, streamed."""
    pieces = deps.files.stream(body.target(caller), body.path)
    await anext(pieces)  # raises while a plain failure can still be answered
    name = quote(PurePosixPath(body.path).name or "file", safe="")
    return Stream(pieces, "application/octet-stream", {"content-disposition": f"attachment; filename*=UTF-8''{name}"})


def _target(values: dict[str, str]) -> DownloadFile:
    try:
        return DownloadFile.model_validate(values)
    except ValidationError as error:
        raise InvalidRequest(f"the request is not valid: {describe(error.errors())}") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("content is not valid base64") from None


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(PIECE):
        yield piece


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for piece in request.stream():
        if piece:
            yield piece
