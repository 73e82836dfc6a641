"""How failures look over HTTP, whichever half answers: one body for all of them, E2B's, and words for what was not valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

UNEXPECTED = "the server could not do this because of a fault of its own; its log has the reason"
MOST_PROBLEMS = 3


class Error(BaseModel):
    """What every failure looks like."""

    code: int = Field(description="The HTTP status.")
    message: str = Field(description="What went wrong, and what to do about it.")


def failure(code: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    # Text from callers may hold what is no valid Unicode; it must not break the answer.
    readable = message.encode("utf-8", "replace").decode()
    return JSONResponse({"code": code, "message": readable}, code, headers=dict(headers or {}))


def install(app: FastAPI, docs: str) -> None:
    """Give every failure that is not a half's own this look; `docs` is the page that lists the routes."""

    async def no_route(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        text = {
            404: f"there is no such route here; {docs} lists the ones there are",
            405: f"this route does not take this method; {docs} lists those it does",
        }.get(error.status_code, str(error.detail))
        return failure(error.status_code, text, error.headers)

    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(Exception, _unexpected)


async def _not_valid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return failure(400, f"the request is not valid: {describe(error.errors())}")


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
    text = str(problem["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:200]
