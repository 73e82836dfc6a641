"""Errors over HTTP: the one table from error class to status. The body is the same as E2B's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sandlot.platform.core.errors import (
    Busy,
    ConfigurationError,
    Conflict,
    Forbidden,
    ForgeRefused,
    InvalidRequest,
    NotFound,
    PlatformError,
    ProviderRefused,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from sandlot.server import failures
from sandlot.server.failures import Error, failure

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
    ForgeRefused: 502,
    Unavailable: 503,
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Error} for code in (400, 401, 403, 404, 409, 429, 502, 503)
}


def status_of(error: PlatformError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


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
    failures.install(app, docs="/platform/docs")


async def _platform_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlatformError)
    return answer(error)
