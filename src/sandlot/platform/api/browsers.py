"""Browserbase's routes: sessions, contexts, extensions and projects, for its released clients with this server's address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from starlette.datastructures import UploadFile

from sandlot.platform.api.browser_addresses import BASE, Addresses
from sandlot.platform.api.browser_bodies import (
    STATUSES,
    BrowserAnswer,
    ContextAnswer,
    ContextUpload,
    CreateBrowser,
    CreateContext,
    DrivenBrowser,
    ExtensionAnswer,
    FilmAnswer,
    FilmAnswers,
    LiveAddresses,
    LivePage,
    ProjectAnswer,
    ProjectUsage,
    ReleaseBrowser,
    ReplayPage,
    Replays,
    UploadAnswer,
)
from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.browsers.live_view import FIRST
from sandlot.platform.browsers.log_book import entries
from sandlot.platform.core.browsers import Browser, BrowserStatus
from sandlot.platform.core.errors import Conflict, InvalidRequest, NotFound
from sandlot.platform.core.model import Caller
from sandlot.platform.identity.keys import acting_user, may_see

router = APIRouter(prefix=f"{BASE}/v1", tags=["browsers"], responses=PROBLEMS)
PIECE = 256 << 10
NOBODY = "admin"  # whose browsers are those made with a key that belongs to no user
VIEW_S = 3600
NOT_HERE = ("certificates", "secrets", "webhooks", "agents", "functions", "fetch", "search")
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)  # of every project: they are made with their users


def _user(caller: Caller, project: str | None = None) -> str:
    """A project is a user. Raises `Forbidden`."""
    if caller.is_admin and caller.user_id is None and project is None:
        return NOBODY
    return acting_user(caller, project)


async def _own(deps: Given, caller: Caller, id: str) -> Browser:
    """Admins see those of all users. Raises `NotFound`."""
    found = await deps.browsers.browsers.find(id)
    if found is None or not (may_see(caller, found.user_id) or found.user_id == _user(caller)):
        raise NotFound(f"session {id[:80]!r} was not found")
    return found


async def _running(deps: Given, caller: Caller, id: str) -> Browser:
    browser = await _own(deps, caller, id)
    if browser.status is not BrowserStatus.RUNNING:
        raise Conflict(f"session {id!r} does not run any more")
    return browser


def _driven(browser: Browser, deps: Given, request: Request) -> DrivenBrowser:
    if browser.status is not BrowserStatus.RUNNING:
        return DrivenBrowser(**BrowserAnswer.of(browser).model_dump())
    key, addresses = deps.browsers.signing.signing_key(browser.id), Addresses(request)
    return DrivenBrowser(
        **BrowserAnswer.of(browser).model_dump(),
        connectUrl=addresses.connect(key),
        seleniumRemoteUrl=addresses.selenium(key),
        signingKey=key,
    )


@router.post("/sessions", response_model_exclude_none=True)
async def create_session(body: CreateBrowser, request: Request, deps: Given, caller: Writer) -> DrivenBrowser:
    """Start a browser. It runs when this answers."""
    services = deps.browsers.browsers
    made = await services.create(body.request(_user(caller, body.projectId), services.limits))
    return _driven(made, deps, request)


@router.get("/sessions", response_model_exclude_none=True)
async def list_sessions(
    deps: Given,
    caller: Reader,
    status: Annotated[str | None, Query(description="PENDING, RUNNING, COMPLETED, TIMED_OUT or ERROR.")] = None,
    q: Annotated[str | None, Query(max_length=1024, description="`user_metadata['name']:'value'`.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[BrowserAnswer]:
    """A user's browsers, newest first; of all users for an admin key."""
    wanted = {ours for ours, theirs in STATUSES.items() if theirs == status} if status else None
    if wanted is not None and not wanted:
        raise InvalidRequest(f"status must be one of {', '.join(sorted(set(STATUSES.values())))}")
    user = None if caller.is_admin and caller.user_id is None else _user(caller)
    found = await deps.browsers.browsers.query(user, wanted, 1000 if q else limit)
    if q is not None:
        name, value = _metadata_query(q)
        found = [one for one in found if str(one.metadata.get(name)) == value]
    return [BrowserAnswer.of(one) for one in found[:limit]]


def _metadata_query(text: str) -> tuple[str, str]:
    head, _, value = text.partition(":")
    name = head.removeprefix("user_metadata[").removesuffix("]").strip("'\"")
    if not head.startswith("user_metadata[") or not value:
        raise InvalidRequest("q must be of the form user_metadata['name']:'value'")
    return name, value.strip("'\"")


@router.get("/sessions/{id}", response_model_exclude_none=True)
async def get_session(id: str, request: Request, deps: Given, caller: Writer) -> DrivenBrowser:
    """One browser, with the addresses that drive it."""
    return _driven(await _own(deps, caller, id), deps, request)


@router.post("/sessions/{id}", response_model_exclude_none=True)
async def release_session(id: str, body: ReleaseBrowser, deps: Given, caller: Writer) -> BrowserAnswer:
    """End a browser. It has ended when this answers."""
    return BrowserAnswer.of(await deps.browsers.browsers.release(await _own(deps, caller, id)))


@router.get("/sessions/{id}/debug")
async def debug_session(
    id: str,
    request: Request,
    deps: Given,
    caller: Writer,
    expiresIn: Annotated[int, Query(ge=1, le=86400, description="Seconds for which the addresses work.")] = VIEW_S,
) -> LiveAddresses:
    """Addresses at which people look at a browser and click in it."""
    browser = await _running(deps, caller, id)
    addresses, signing = Addresses(request), deps.browsers.signing
    shown = addresses.live(signing.view_token(id, FIRST, expiresIn))
    pages = []
    for page in await deps.browsers.live.pages(browser):
        own = addresses.live(signing.view_token(id, page["id"], expiresIn))
        pages.append(LivePage(**page, debuggerUrl=own, debuggerFullscreenUrl=f"{own}&fullscreen=1"))
    return LiveAddresses(
        debuggerUrl=shown,
        debuggerFullscreenUrl=f"{shown}&fullscreen=1",
        wsUrl=addresses.connect(signing.signing_key(id)),
        pages=pages,
    )


@router.get("/sessions/{id}/logs")
async def session_logs(id: str, deps: Given, caller: Reader) -> list[dict[str, Any]]:
    """What was said between the browser and its clients."""
    browser = await _own(deps, caller, id)
    path = deps.browsers.attachments.flush_log(browser.id)
    return [{**entry, "sessionId": id} for entry in entries(path)]


@router.get("/sessions/{id}/recording")
async def session_recording(id: str, deps: Given, caller: Reader) -> list[dict[str, Any]]:
    """Always empty: recordings are films, not copies of the page's elements. See `/recording/downloads`."""
    await _own(deps, caller, id)
    return []


@router.get("/sessions/{id}/replays")
async def session_replays(id: str, deps: Given, caller: Reader) -> Replays:
    """Which pages were recorded."""
    found = deps.browsers.films.recorded(await _own(deps, caller, id))
    pages = [ReplayPage(pageId=page.id, startTimeMs=page.started_ms, endTimeMs=page.ended_ms) for page in found]
    return Replays(pageCount=len(pages), pages=pages)


@router.get("/sessions/{id}/replays/{page}", response_class=PlainTextResponse)
async def session_replay(id: str, page: str, request: Request, deps: Given, caller: Reader) -> Response:
    """An HLS playlist. The film is made when it is first asked for, which takes a while."""
    browser, films = await _own(deps, caller, id), deps.browsers.films
    await films.made(browser, page)
    url = Addresses(request).film(deps.browsers.signing.view_token(id, page, VIEW_S), "ts")
    return PlainTextResponse(films.playlist(browser, page, url), media_type="application/vnd.apple.mpegurl")


@router.post("/sessions/{id}/recording/downloads")
async def request_films(id: str, request: Request, deps: Given, caller: Writer) -> FilmAnswers:
    """Have MP4 films made of all recorded pages."""
    browser = await _own(deps, caller, id)
    for page in deps.browsers.films.recorded(browser):
        deps.browsers.films.request(browser, page)
    return _films(browser, deps, request)


@router.get("/sessions/{id}/recording/downloads", response_model_exclude_none=True)
async def list_films(id: str, request: Request, deps: Given, caller: Reader) -> FilmAnswers:
    """Which films are there."""
    return _films(await _own(deps, caller, id), deps, request)


def _films(browser: Browser, deps: Given, request: Request) -> FilmAnswers:
    films, answers = deps.browsers.films, []
    for page in films.recorded(browser):
        status, url = films.status(browser, page.id), None
        if status == "COMPLETED":
            url = Addresses(request).film(deps.browsers.signing.view_token(browser.id, page.id, VIEW_S), "mp4")
        answers.append(FilmAnswer(pageId=page.id, status=status, downloadUrl=url))
    return FilmAnswers(downloads=answers)


@router.get("/sessions/{id}/downloads", response_class=FileResponse)
async def session_downloads(id: str, deps: Given, caller: Reader) -> FileResponse:
    """What pages downloaded, as a zip file."""
    path = await deps.browsers.files.downloads(await _own(deps, caller, id))
    return FileResponse(path, media_type="application/zip", filename="downloads.zip")


@router.post("/sessions/{id}/uploads")
async def upload(id: str, request: Request, deps: Given, caller: Writer) -> UploadAnswer:
    """Put a file (multipart, `file`) where the browser can take it from."""
    browser = await _running(deps, caller, id)
    async with request.form(max_files=1, max_fields=4) as form:
        file = _file(form.get("file"))
        path = await deps.browsers.files.upload(browser, file.filename or "", _pieces(file))
    return UploadAnswer(message="File uploaded successfully", path=path)


@router.post("/contexts")
async def create_context(body: CreateContext, deps: Given, caller: Writer) -> ContextUpload:
    """A new, empty profile. Browsers that are created with it and `persist` fill it."""
    made = await deps.browsers.contexts.create(_user(caller, body.projectId), body.name)
    return ContextUpload(id=made.id)


@router.get("/contexts/{id}", response_model_exclude_none=True)
async def get_context(id: str, deps: Given, caller: Reader) -> ContextAnswer:
    return ContextAnswer.of(await deps.browsers.contexts.get(_user(caller), id))


@router.put("/contexts/{id}")
async def update_context(id: str, deps: Given, caller: Writer) -> ContextUpload:
    """For clients that upload profiles: this server takes none."""
    contexts = deps.browsers.contexts
    await contexts.touch(await contexts.get(_user(caller), id))
    return ContextUpload(id=id)


@router.delete("/contexts/{id}", status_code=204)
async def delete_context(id: str, deps: Given, caller: Writer) -> None:
    contexts = deps.browsers.contexts
    await contexts.delete(await contexts.get(_user(caller), id))


@router.post("/extensions")
async def create_extension(request: Request, deps: Given, caller: Writer) -> ExtensionAnswer:
    """Keep an extension (multipart, `file`: a zip), for browsers to be created with."""
    async with request.form(max_files=1, max_fields=4) as form:
        file = _file(form.get("file"))
        made = await deps.browsers.extensions.create(_user(caller), file.filename or "extension.zip", _pieces(file))
    return ExtensionAnswer.of(made)


@router.get("/extensions/{id}")
async def get_extension(id: str, deps: Given, caller: Reader) -> ExtensionAnswer:
    return ExtensionAnswer.of(await deps.browsers.extensions.get(_user(caller), id))


@router.delete("/extensions/{id}", status_code=204)
async def delete_extension(id: str, deps: Given, caller: Writer) -> None:
    extensions = deps.browsers.extensions
    await extensions.delete(await extensions.get(_user(caller), id))


@router.get("/projects")
async def list_projects(deps: Given, caller: Reader) -> list[ProjectAnswer]:
    """One: the user whose key it is."""
    return [_project(_user(caller), deps)]


@router.get("/projects/{id}")
async def get_project(id: str, deps: Given, caller: Reader) -> ProjectAnswer:
    return _project(_user(caller, id), deps)


@router.get("/projects/{id}/usage")
async def project_usage(id: str, deps: Given, caller: Reader) -> ProjectUsage:
    """How long the user's browsers ran, of those that are still known."""
    minutes = await deps.browsers.browsers.minutes(_user(caller, id))
    return ProjectUsage(browserMinutes=round(minutes), proxyBytes=0)


def _project(user_id: str, deps: Given) -> ProjectAnswer:
    limits = deps.browsers.browsers.limits
    return ProjectAnswer(
        id=user_id,
        name=user_id,
        ownerId=user_id,
        concurrency=min(limits.running, limits.running_per_user),
        defaultTimeout=limits.timeout_s,
        createdAt=_BEGINNING,
        updatedAt=_BEGINNING,
    )


@router.api_route("/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
async def not_here(rest: str, caller: Reader) -> Response:
    """What Browserbase has and this server has not."""
    name = rest.partition("/")[0]
    if name not in NOT_HERE:
        raise NotFound(f"there is no {rest[:80]!r} here; the API's reference is at /platform/docs")
    words = f"{name} of Browserbase are not part of this server"
    return JSONResponse({"code": 501, "message": words}, status_code=501)


def _file(found: object) -> UploadFile:
    if not isinstance(found, UploadFile):
        raise InvalidRequest("the form must have a file in the field `file`")
    return found


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(PIECE):
        yield piece
