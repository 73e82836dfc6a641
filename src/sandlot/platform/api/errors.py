"""How the platform's failures look over HTTP: the one table from error class to status, in the same body as E2B's."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from sandlot.platform.errors import (
    Busy,
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    PlatformError,
    ProviderRefused,
    TooLarge,
    Unauthorized,
    Unavailable,
)

log = logging.getLogger(__name__)

STATUS: Mapping[type[PlatformError], int] = {
    PlatformError: 500,
    ConfigurationError: 500,
    InvalidRequest: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    Busy: 429,
    ProviderRefused: 502,
    Unavailable: 503,
}
UNEXPECTED = "the server could not do this because of a fault of its own; its log has the reason"
MOST_PROBLEMS = 3


class Error(BaseModel):
    """What every failure looks like."""

    code: int = Field(description="The HTTP status.")
    message: str = Field(description="What went wrong, and what to do about it.")


PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Error} for code in (400, 401, 403, 404, 409, 429, 502, 503)
}


def status_of(error: PlatformError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def failure(code: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    readable = message.encode("utf-8", "replace").decode()  # text from callers may hold what is no valid Unicode
    return JSONResponse({"code": code, "message": readable}, code, headers=dict(headers or {}))


def answer(error: PlatformError) -> JSONResponse:
    code = status_of(error)
    headers = {"WWW-Authenticate": "ApiKey"} if code == 401 else {}
    if isinstance(error, Busy | Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if code >= 500:
        log.warning("a request failed: %s", error)
    return failure(code, str(error), headers)


def install(app: FastAPI) -> None:
    app.add_exception_handler(PlatformError, _platform_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _platform_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlatformError)
    return answer(error)


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return failure(400, f"the request is not valid: {describe(error.errors())}")


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    text = {
        404: "there is no such route here; /platform/docs lists the ones there are",
        405: "this route does not take this method; /platform/docs lists those it does",
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
    source, *rest = [str(part)[:80] for part in loc] or ["request"]
    return ".".join(rest) if rest else source


def _reason(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return "the body is not valid JSON"
    text = str(problem["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:200]
