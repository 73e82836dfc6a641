"""How failures look over HTTP: the one table from error class to status, and E2B's error body."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from sandlot.engine.errors import (
    Conflict,
    EngineError,
    Forbidden,
    GuestUnresponsive,
    InvalidRequest,
    MachineFailed,
    NoCapacity,
    NotFound,
    StateUnusable,
    StepFailed,
    Unauthorized,
    Unavailable,
    WrongState,
)

log = logging.getLogger(__name__)

STATUS: Mapping[type[EngineError], int] = {
    EngineError: 500,
    InvalidRequest: 400,
    StepFailed: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    WrongState: 409,
    StateUnusable: 409,
    NoCapacity: 429,
    MachineFailed: 500,
    GuestUnresponsive: 500,
    Unavailable: 503,
}
UNEXPECTED = "the server could not do this because of a fault of its own; its log has the reason"
MOST_PROBLEMS = 3


class Error(BaseModel):
    """What every failure looks like."""

    code: int = Field(description="The HTTP status.")
    message: str = Field(description="What went wrong, and what to do about it.")


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The failures a route may answer with, for its OpenAPI description."""
    return {code: {"model": Error} for code in (*codes, 400, 401, 429, 500, 503)}


def status_of(error: EngineError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def failure(code: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    # Text from callers may hold what is no valid Unicode; it must not break the answer.
    readable = message.encode("utf-8", "replace").decode()
    return JSONResponse({"code": code, "message": readable}, code, headers=dict(headers or {}))


def install(app: FastAPI) -> None:
    app.add_exception_handler(EngineError, _engine_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _engine_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EngineError)
    if type(error) not in STATUS and status_of(error) == 500:  # not meant for callers
        log.error("a request failed: %s", error, exc_info=error)
        return failure(500, UNEXPECTED)
    code = status_of(error)
    if code >= 500:
        log.error("a request failed: %s", error)
    return failure(code, str(error), {"WWW-Authenticate": "ApiKey"} if code == 401 else None)


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return failure(400, f"the request is not valid: {describe(error.errors())}")


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    text = {
        404: "there is no such route here; /docs lists the ones there are",
        405: "this route does not take this method; /docs lists those it does",
    }.get(error.status_code, str(error.detail))
    return failure(error.status_code, text, error.headers)


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    return failure(500, UNEXPECTED)


def describe(found: Sequence[Mapping[str, Any]]) -> str:
    """The first few problems in words: where, and what."""
    texts = [f"{_place(problem['loc'])}: {_reason(problem)}" for problem in found[:MOST_PROBLEMS]]
    more = len(found) - MOST_PROBLEMS
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")


def _place(loc: Sequence[str | int]) -> str:
    parts = [str(part)[:80] for part in loc if part != "[key]"]
    source, *rest = parts or ["request"]
    return ".".join(rest) if rest and source == "body" else " ".join([source, ".".join(rest)]).strip()


def _reason(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return "the body is not valid JSON"
    text: str = problem["msg"]
    text = text.removeprefix("Value error, ")
    return text[:1].lower() + text[1:200]
