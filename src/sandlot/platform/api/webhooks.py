"""The routes of GitHub's webhooks: one that GitHub calls, and those that show what came and repeat it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.errors import Busy, Forbidden, TooLarge
from sandlot.platform.core.model import Caller
from sandlot.platform.core.triggers import GitHubDelivery, InboxStatus
from sandlot.platform.triggers.inbox import MAX_BODY

GITHUB = "/webhooks/github"
READING_S = 30.0
LARGE = 256 << 10
router = APIRouter(prefix=GITHUB, tags=["webhooks"], responses=PROBLEMS)
_large = asyncio.Semaphore(4)  # bodies that are read before anybody knows who sends them
Id = Annotated[str, Path(max_length=64)]


class GitHubDeliveryInfo(BaseModel):
    id: str
    event: str
    action: str
    repository: str
    sender: str
    received_at: datetime
    status: InboxStatus
    attempts: int
    next_at: datetime | None
    outcome: str
    tasks: list[str]
    replays: int


class GitHubDeliveryList(BaseModel):
    deliveries: list[GitHubDeliveryInfo]


class GitHubAnswer(BaseModel):
    id: str
    status: InboxStatus
    duplicate: bool


def delivery_info(delivery: GitHubDelivery) -> GitHubDeliveryInfo:
    names = GitHubDeliveryInfo.model_fields
    return GitHubDeliveryInfo(**{name: getattr(delivery, name) for name in names})


@router.post("", status_code=202, response_model=GitHubAnswer)
async def receive(request: Request, deps: Given) -> JSONResponse:
    """What GitHub calls: signed with the webhook's secret, instead of a key. It is acted on later."""
    body = await _body(request)
    delivery, is_new = await deps.inbox.receive(request.headers, body)
    answer = GitHubAnswer(id=delivery.id, status=delivery.status, duplicate=not is_new)
    return JSONResponse(answer.model_dump(mode="json"), status_code=202)


@router.get("/deliveries")
async def list_deliveries(
    deps: Given,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    status: Annotated[InboxStatus | None, Query()] = None,
) -> GitHubDeliveryList:
    """What GitHub sent, newest first, and what became of it; for admins."""
    _admin(caller)
    return GitHubDeliveryList(deliveries=[delivery_info(each) for each in await deps.inbox.list(limit, status)])


@router.get("/deliveries/{id}")
async def show_delivery(id: Id, deps: Given, caller: Reader) -> GitHubDeliveryInfo:
    """One of them; for admins."""
    _admin(caller)
    return delivery_info(await deps.inbox.get(id))


@router.post("/deliveries/{id}/replay", status_code=202)
async def replay(id: Id, deps: Given, caller: Writer) -> GitHubDeliveryInfo:
    """Act on it once more; for admins."""
    _admin(caller)
    return delivery_info(await deps.inbox.replay(id))


def _admin(caller: Caller) -> None:
    if not caller.is_admin:
        raise Forbidden("webhooks of GitHub are about everybody's repositories; they are for admins")


async def _body(request: Request) -> bytes:
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > 2 * MAX_BODY:  # who sends a little too much is read, to hear the answer
        raise TooLarge("GitHub sends at most 25 MB")
    try:
        async with asyncio.timeout(READING_S):
            if told.isdecimal() and int(told) <= LARGE:
                return await _read(request)
            async with _large:
                return await _read(request)
    except TimeoutError:
        raise Busy("the body did not come in time") from None


async def _read(request: Request) -> bytes:
    found = bytearray()
    seen = 0
    async for piece in request.stream():
        seen += len(piece)
        if seen > 2 * MAX_BODY:
            break
        if seen <= MAX_BODY:
            found += piece
    if seen > MAX_BODY:
        raise TooLarge("GitHub sends at most 25 MB")
    return bytes(found)
