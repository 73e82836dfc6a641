"""How the engine's failures look over HTTP: the one table from error class to status."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sandlot.engine.core.errors import (
    BadUpstream,
    Conflict,
    Draining,
    EngineError,
    Forbidden,
    ForwardFailed,
    GuestUnresponsive,
    InvalidRequest,
    MachineFailed,
    NoCapacity,
    NotFound,
    NotReadyYet,
    PortClosed,
    SandboxLeft,
    StateUnusable,
    StepFailed,
    TooManyConnections,
    Unauthorized,
    Unavailable,
    UpstreamRefused,
    WrongState,
)
from sandlot.server import failures
from sandlot.server.failures import UNEXPECTED, Error, failure

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
    ForwardFailed: 502,
    PortClosed: 502,
    BadUpstream: 502,
    UpstreamRefused: 502,
    SandboxLeft: 502,
    TooManyConnections: 429,
    Draining: 409,
    Unavailable: 503,
    NotReadyYet: 503,
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The failures a route may answer with, for its OpenAPI description."""
    return {code: {"model": Error} for code in (*codes, 400, 401, 429, 500, 503)}


def status_of(error: EngineError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def install(app: FastAPI) -> None:
    app.add_exception_handler(EngineError, _engine_error)
    failures.install(app, docs="/docs")


async def _engine_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EngineError)
    if type(error) not in STATUS and status_of(error) == 500:  # not meant for callers
        log.error("a request failed: %s", error, exc_info=error)
        return failure(500, UNEXPECTED)
    code = status_of(error)
    if isinstance(error, NotReadyYet):
        return failure(code, str(error), {"Retry-After": str(error.retry_after_s)})
    if code >= 500:
        log.error("a request failed: %s", error)
    return failure(code, str(error), {"WWW-Authenticate": "ApiKey"} if code == 401 else None)
