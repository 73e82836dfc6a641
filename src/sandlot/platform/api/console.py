"""The console's own routes: logging in and out, one-time links, who is logged in, and the pages themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse

from sandlot.platform.api.credentials import secret_of
from sandlot.platform.api.deps import Asking, Deps, Given
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.requests import Body
from sandlot.platform.console.bundle import BundleFile, security_headers
from sandlot.platform.console.logins import LONGEST, NewSession
from sandlot.platform.console.origins import COOKIE, SECURE_COOKIE, cookie_of, is_secure, text
from sandlot.platform.core.errors import Forbidden, InvalidRequest, NotFound
from sandlot.platform.core.model import Scope
from sandlot.program import SANDLOT

PREFIX = "/console"
LOGIN = f"{PREFIX}/login"
API = f"{PREFIX}/api"
router = APIRouter(prefix=PREFIX, tags=["console"], responses=PROBLEMS)
pages = APIRouter(include_in_schema=False)
CONFIRM = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Log in to Sandlot</title>
<meta name="viewport" content="width=device-width"><form method="post" action="/console/login/confirm">
<h1>Log in to Sandlot?</h1><p>Another page sent you here with a login link.</p>
<input type="hidden" name="link" value="{token}"><button>Log in</button></form></html>
"""


class LoginBody(Body):
    key: Annotated[str, Field(min_length=1, max_length=512, description="A key of the platform.")]


class LoginLinkInfo(BaseModel):
    path: str = Field(description="Open it in a browser at this server's address; it works once.")
    expires_at: datetime


class Me(BaseModel):
    user_id: str | None = Field(description="None: an admin's key that belongs to no user.")
    is_admin: bool
    scopes: list[Scope]
    version: str


@router.post("/login", status_code=204)
async def log_in(body: LoginBody, request: Request, response: Response, deps: Given) -> None:
    """Log this browser in with a key. The answer sets a cookie that scripts cannot read; it ends with the key."""
    _check_caller(request, deps)
    _set_cookie(request, response, await deps.console.logins.with_key(body.key, _address(request)))


@router.get("/login", response_class=Response, include_in_schema=False)
async def open_link(
    request: Request,
    deps: Given,
    link: Annotated[str | None, Query(max_length=128, pattern=r"^[A-Za-z0-9_-]+$")] = None,
    purpose: Annotated[str | None, Header(alias="sec-purpose")] = None,
) -> Response:
    """Log this browser in by a one-time link. A link that another page opens has to be confirmed by hand."""
    if link is None:
        return page(request, deps)
    if not deps.console.hosts.has(request.scope["headers"]):
        raise Forbidden("the console is not served at this host name")
    if purpose is not None or text(request.scope["headers"], b"sec-fetch-site") not in ("", "none", "same-origin"):
        return _html(CONFIRM.format(token=link).encode(), deps)
    return await _enter(request, deps, link)


@router.post("/login/confirm", response_class=Response, include_in_schema=False)
async def confirm_link(request: Request, deps: Given) -> Response:
    _check_caller(request, deps)
    async with request.form(max_files=0, max_fields=2) as form:
        link = form.get("link")
    if not isinstance(link, str):
        raise InvalidRequest("the form has no link")
    return await _enter(request, deps, link)


@router.post("/links")
async def make_link(request: Request, deps: Given, caller: Asking) -> LoginLinkInfo:
    """A link that logs one browser in, once, as the caller. Needs a key; a browser's cookie does not do."""
    secret = secret_of(request.scope)
    if secret is None:
        raise Forbidden(f"login links are made with a key: `{SANDLOT} console` does it")
    token, ends_at = await deps.console.logins.link(secret)
    return LoginLinkInfo(path=f"{LOGIN}?link={token}", expires_at=ends_at)


@router.post("/logout", status_code=204)
async def log_out(request: Request, response: Response, deps: Given, caller: Asking) -> None:
    """End this browser's session."""
    cookie = cookie_of(request.scope["headers"])
    if cookie is not None:
        await deps.console.logins.end(cookie)
    response.delete_cookie(_name(request), path="/", secure=is_secure(request.scope), httponly=True, samesite="strict")


@router.get("/me")
async def me(deps: Given, caller: Asking) -> Me:
    """Who is logged in, and what they may do."""
    return Me(user_id=caller.user_id, is_admin=caller.is_admin, scopes=sorted(caller.scopes), version=deps.version)


@pages.get("/")
async def root() -> Response:
    """Only browsers get here; what others ask for at `/` is the engine's to answer."""
    return RedirectResponse(f"{PREFIX}/", 307, {"cache-control": "no-store"})


@pages.get(PREFIX)
@pages.get(f"{PREFIX}/{{path:path}}")
async def console_file(request: Request, deps: Given, path: str = "") -> Response:
    """A file of the bundle, or the page that shows everything."""
    return page(request, deps, path)


def page(request: Request, deps: Deps, path: str = "") -> Response:
    if not deps.console.hosts.has(request.scope["headers"]):
        raise NotFound("the console is not served at this host name; [console] hosts in sandlot.toml can add it")
    if path.startswith("api/"):
        raise NotFound("there is no such route here; /platform/docs lists the ones there are")
    accepted = {part.partition(";")[0].strip() for part in request.headers.get("accept-encoding", "").split(",")}
    found = deps.console.bundle.file(path, accepted)
    if found is None:
        if path.startswith("assets/"):
            raise NotFound("the console has no such file; reload the page")
        found = deps.console.bundle.page(accepted)
    return _file(found, deps)


def is_page(path: str, method: str) -> bool:
    """Whether this is a page or file of the console, which needs no key."""
    reserved = ("/api", "/me", "/links", "/logout")
    below = path.removeprefix(PREFIX)
    return (
        method in ("GET", "HEAD")
        and (path == "/" or path == PREFIX or path.startswith(f"{PREFIX}/"))
        and not any(below == name or below.startswith(f"{name}/") for name in reserved)
    )


def wants_page(scope_headers: list[tuple[bytes, bytes]]) -> bool:
    return "text/html" in text(scope_headers, b"accept")


def _file(found: BundleFile, deps: Deps) -> Response:
    headers = security_headers(deps.console.frames)
    headers["cache-control"] = "public, max-age=31536000, immutable" if found.is_hashed else "no-cache"
    headers["vary"] = "accept-encoding"
    if found.encoding is not None:
        headers["content-encoding"] = found.encoding
    return Response(found.content, media_type=found.media_type, headers=headers)


def _html(content: bytes, deps: Deps) -> Response:
    return Response(content, media_type="text/html", headers={**security_headers(), "cache-control": "no-store"})


async def _enter(request: Request, deps: Deps, link: str) -> Response:
    begun = await deps.console.logins.with_link(link, _address(request))
    response = RedirectResponse(f"{PREFIX}/", 303, {"cache-control": "no-store", "referrer-policy": "no-referrer"})
    _set_cookie(request, response, begun)
    return response


def _check_caller(request: Request, deps: Deps) -> None:
    """Nobody may log a browser in from another page: it would act for somebody else without knowing."""
    headers = request.scope["headers"]
    if not deps.console.hosts.has(headers):
        raise Forbidden("the console is not served at this host name")
    if text(headers, b"sec-fetch-site") not in ("", "none", "same-origin"):
        raise Forbidden("this request comes from another page than the console; it was not carried out")


def _set_cookie(request: Request, response: Response, begun: NewSession) -> None:
    response.set_cookie(
        _name(request),
        begun.cookie,
        max_age=int(LONGEST.total_seconds()),
        path="/",
        secure=is_secure(request.scope),
        httponly=True,
        samesite="strict",
    )
    response.headers["cache-control"] = "no-store"


def _name(request: Request) -> str:
    return SECURE_COOKIE if is_secure(request.scope) else COOKIE


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"
