"""Git's smart HTTP for one bare repository, by `git http-backend`: streamed both ways, bounded in size, time and number."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import Receive, Scope, Send

from sandlot.platform.git.child import PIECE, Child
from sandlot.platform.git.commands import Git, cleaned

log = logging.getLogger(__name__)
_ROUTE = re.compile(r"/(info/refs|git-upload-pack|git-receive-pack)\Z")
_SERVICES = ("git-upload-pack", "git-receive-pack")
IDLE_S = 120.0  # without a byte in either direction
LONGEST_S = 3600.0
MAX_FETCH_REQUEST = 64 << 20
MAX_HEAD = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GitTarget:
    """A bare repository, and what this caller may do with it."""

    path: Path
    may_push: bool
    max_bytes: int
    user: str = ""
    remark: str = ""  # shown to whoever may not push
    env: Mapping[str, str] = field(default_factory=dict)


class _TooLarge(Exception):
    pass


class HttpBackend:
    """`at_once` bounds the processes of all repositories together."""

    def __init__(self, git: Git, at_once: int = 24) -> None:
        self._git, self._slots = git, asyncio.Semaphore(at_once)

    async def serve(self, target: GitTarget, scope: Scope, receive: Receive, send: Send) -> None:
        route = _ROUTE.search(scope["path"])
        method = scope["method"]
        query = scope.get("query_string", b"").decode("latin-1")
        service = query.removeprefix("service=") if route and route[1] == "info/refs" else (route[1] if route else "")
        if route is None or service not in _SERVICES:
            return await answer(send, 404, "only git's smart HTTP is served here")
        if method != ("GET" if route[1] == "info/refs" else "POST"):
            return await answer(send, 405, "git does not ask this way")
        if service == "git-receive-pack" and not target.may_push:
            return await answer(send, 403, target.remark or "this key may read, but not push")
        try:
            async with asyncio.timeout(IDLE_S):
                await self._slots.acquire()
        except TimeoutError:
            return await answer(send, 503, "too many git operations at once; try again", {b"retry-after": b"5"})
        try:
            await self._run(_Exchange(target, service, route[1], query), scope, receive, send)
        finally:
            self._slots.release()

    async def _run(self, exchange: _Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        env = {**self._git.environment(), **exchange.target.env, **exchange.cgi(scope)}
        child = await Child.start(["git", "http-backend"], env=env, has_input=True)
        try:
            async with asyncio.timeout(LONGEST_S):
                feeding = asyncio.ensure_future(exchange.feed(child, receive))
                try:
                    await exchange.reply(child, feeding, send)
                finally:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
        except TimeoutError:
            log.info("a git exchange was cut: it stood still for too long")
            if not exchange.has_begun:
                await answer(send, 504, "git took too long")
            else:
                _reset(scope)
        finally:
            await child.close()
            if child.stderr.strip():
                log.debug("git http-backend said: %s", cleaned(child.stderr)[-500:])


class _Exchange:
    """One request and its answer."""

    def __init__(self, target: GitTarget, service: str, route: str, query: str) -> None:
        self.target, self._service, self._route, self._query = target, service, route, query
        self.has_begun = False
        self._progress = asyncio.Event()

    def cgi(self, scope: Scope) -> dict[str, str]:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        found = {
            "GIT_PROJECT_ROOT": str(self.target.path.parent),
            "PATH_INFO": f"/{self.target.path.name}/{self._route}",
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_HTTP_MAX_REQUEST_BUFFER": str(MAX_FETCH_REQUEST),
            "REQUEST_METHOD": scope["method"],
            "QUERY_STRING": self._query,
            "CONTENT_TYPE": headers.get(b"content-type", ""),
            "REMOTE_USER": self.target.user or "git",
            "REMOTE_ADDR": "127.0.0.1",
        }
        if headers.get(b"content-encoding", "") in ("gzip", "x-gzip"):
            found["HTTP_CONTENT_ENCODING"] = "gzip"
        if re.fullmatch(r"version=[012]", headers.get(b"git-protocol", "")):
            found["GIT_PROTOCOL"] = found["HTTP_GIT_PROTOCOL"] = headers[b"git-protocol"]
        return found

    async def feed(self, child: Child, receive: Receive) -> None:
        """The body into git's input. Raises when it is too large, or the caller is gone."""
        most = self.target.max_bytes + (1 << 20) if self._service == "git-receive-pack" else MAX_FETCH_REQUEST
        seen = 0
        assert child.stdin is not None
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            piece = message.get("body", b"")
            seen += len(piece)
            if seen > most:
                raise _TooLarge
            more = message.get("more_body", False)
            with contextlib.suppress(OSError):  # git has read what it needs
                child.stdin.write(piece)
                await child.stdin.drain()
            self._progress.set()
        with contextlib.suppress(OSError):
            child.stdin.close()

    async def reply(self, child: Child, feeding: asyncio.Task[None], send: Send) -> None:
        head = asyncio.ensure_future(child.stdout.readuntil(b"\r\n\r\n"))
        try:
            await self._until(head, feeding)
            if feeding.done() and (problem := feeding.exception()) is not None:
                if isinstance(problem, _TooLarge):
                    limit = self.target.max_bytes >> 20
                    self.has_begun = True
                    await answer(send, 413, f"a push may have at most {limit} MiB; leave large files out of it")
                return
            status, headers = _head(await head)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            self.has_begun = True
            return await answer(send, 500, "git did not answer")
        finally:
            head.cancel()
        self.has_begun = True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while True:
            async with asyncio.timeout(IDLE_S):
                piece = await child.stdout.read(PIECE)
            if not piece:
                break
            async with asyncio.timeout(IDLE_S):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until(self, head: asyncio.Task[bytes], feeding: asyncio.Task[None]) -> None:
        """Until git answers or the caller's body fails; whoever stands still in between is cut."""
        while not head.done():
            self._progress.clear()
            progress = asyncio.ensure_future(self._progress.wait())
            waiting: set[asyncio.Future[object]] = {head, progress}  # type: ignore[arg-type]
            if not feeding.done():
                waiting.add(feeding)  # type: ignore[arg-type]
            done, _ = await asyncio.wait(waiting, timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
            progress.cancel()
            if not done:
                raise TimeoutError
            if feeding.done() and feeding.exception() is not None:
                return


def _head(text: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    status, headers = 200, []
    for line in text.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon:
            continue
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            headers.append((name.strip().lower(), value.strip()))
    return status, headers


async def answer(send: Send, status: int, message: str, headers: Mapping[bytes, bytes] | None = None) -> None:
    """Plain text: git shows it to people."""
    body = f"{message}\n".encode()
    found = {b"content-type": b"text/plain; charset=utf-8", b"content-length": str(len(body)).encode()}
    await send({"type": "http.response.start", "status": status, "headers": [*{**found, **(headers or {})}.items()]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _reset(scope: Scope) -> None:
    reset = scope.get("extensions", {}).get("sandlot.reset")
    if reset is not None:
        reset()
