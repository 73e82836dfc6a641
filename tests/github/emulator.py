"""A GitHub that runs here: its REST API, git over HTTP with real repositories, rate limits, conditional requests, and faults."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.github.routes import Answer, Asked, Refusal, Routes
from tests.github.state import LEVELS, Fault, GitHubState, Token

from sandlot.platform.git.commands import Git
from sandlot.platform.git.http_backend import GitTarget, HttpBackend
from sandlot.server.http import build_server

_GIT = re.compile(r"/([^/]+)/([^/]+?)(?:\.git)?/(?:info/refs|git-upload-pack|git-receive-pack)")
_LOG = re.compile(r"/logs/([^/]+/[^/]+)/(\d+)")
FREE = ("/rate_limit",)


class Emulator(GitHubState):
    """The state is changed by tests directly, and by requests."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._routes = Routes(self)
        self._git = Git(place / "git-home")
        self._git.open()
        self._backend: HttpBackend | None = None

    def asked(self, method: str, path: str) -> int:
        """How often something like this was asked for."""
        return sum(1 for each in self.requests if each[0] == method and re.fullmatch(path, each[1]))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if _GIT.fullmatch(scope["path"]):
            return await self._git_request(scope, receive, send)
        body = bytearray()
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        path = unquote(scope["path"])
        answer = await self._faulty(scope, path, bytes(body))
        if answer is None:
            return scope["extensions"]["sandlot.reset"]()
        self.requests.append((scope["method"], path.removeprefix("/api/v3").removeprefix("/api"), answer.status))
        await self._send(scope, send, answer)

    async def _faulty(self, scope: Any, path: str, body: bytes) -> Answer | None:
        """None: the connection breaks."""
        fault = self._fault(scope["method"], path)
        if fault is None:
            return self._answer(scope, path, body)
        if fault.kind.endswith("-after"):  # the request has its effect, and the answer is lost
            self._answer(scope, path, body)
        match fault.kind.removesuffix("-after"):
            case "reset":
                return None
            case "timeout":
                await asyncio.sleep(fault.seconds)
                return None
            case "secondary":
                text = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
                return Answer(403, {"message": text}, {"retry-after": str(fault.seconds)})
            case "untold":
                return Answer(403, {"message": "You have exceeded a secondary rate limit."})
            case "primary":
                reset = int(datetime.now(UTC).timestamp()) + fault.seconds
                headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(reset), "x-ratelimit-limit": "5000"}
                return Answer(403, {"message": "API rate limit exceeded for user ID 1."}, headers)
            case "garbage":
                return Answer(200, b"{not json", {"content-type": "application/json; charset=utf-8"})
            case status:
                return Answer(int(status), {"message": f"fault {status}"})

    def _fault(self, method: str, path: str) -> Fault | None:
        path = path.removeprefix("/api/v3")
        for fault in self.faults:
            if fault.method in (method, "*") and re.fullmatch(fault.path, path) and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    def _answer(self, scope: Any, path: str, body: bytes) -> Answer:
        log = _LOG.fullmatch(path)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        if log:
            return self._log(log, headers, scope)
        prefix = next((prefix for prefix in ("/api/v3", "/api") if path.startswith(prefix + "/")), None)
        if prefix is None:
            return Answer(404, {"message": "Not Found"})
        try:
            token, bearer = self._who(headers.get("authorization", ""))
            if self.used >= self.limit:
                raise Refusal(403, "API rate limit exceeded for user ID 1.")
            query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            try:
                content = json.loads(body) if body else None
            except ValueError:
                raise Refusal(400, "Problems parsing JSON") from None
            asked = Asked(scope["method"], query, content, token, bearer, {})
            answer = self._routes.answer(scope["method"], path.removeprefix(prefix), asked)
            return self._paged(answer, path, query)
        except Refusal as refusal:
            return refusal.answer

    def _who(self, authorization: str) -> tuple[Token | None, str | None]:
        kind, _, value = authorization.partition(" ")
        if kind.lower() not in ("token", "bearer"):
            return None, None
        if value.count(".") == 2:
            return None, value
        token = self.tokens.get(value)
        if token is None or (token.until is not None and token.until < datetime.now(UTC)):
            raise Refusal(401, "Bad credentials")
        return token, None

    def _paged(self, answer: Answer, path: str, query: dict[str, str]) -> Answer:
        if not isinstance(answer.body, list):
            return answer
        size, page = min(int(query.get("per_page", "30")), 100), int(query.get("page", "1"))
        total, headers = len(answer.body), dict(answer.headers or {})
        if page * size < total:
            rest = "&".join(f"{name}={value}" for name, value in query.items() if name != "page")
            headers["link"] = f'<{self.url}{path}?{rest}&page={page + 1}>; rel="next"'
        return Answer(answer.status, answer.body[(page - 1) * size : page * size], headers)

    def _log(self, found: re.Match[str], headers: dict[str, str], scope: Any) -> Answer:
        """At another host, by a signed address; a token that is sent along would leak there."""
        if "authorization" in headers or scope["query_string"] != b"sig=signed":
            return Answer(403, {"message": "this host takes no credentials"})
        jobs = (job for run in self.repositories[found[1].lower()].runs.values() for job in run.jobs)
        log = next(job.log for job in jobs if job.id == int(found[2]))
        return Answer(200, (log or "").encode(), {"content-type": "text/plain; charset=utf-8"})

    async def _send(self, scope: Any, send: Any, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        headers = {"content-type": "application/json; charset=utf-8", "date": "", **(answer.headers or {})}
        if not isinstance(answer.body, bytes) and answer.body is not None:
            body = json.dumps(answer.body).encode()
        status, sent = answer.status, dict(scope["headers"])
        if scope["method"] == "GET" and status == 200:
            headers["etag"] = f'W/"{hashlib.sha256(body).hexdigest()}"'
            if sent.get(b"if-none-match", b"").decode() == headers["etag"]:
                status, body = 304, b""
        if status != 304:
            self.used += 1
        left = max(0, self.limit - self.used)
        rate = {"x-ratelimit-limit": self.limit, "x-ratelimit-remaining": left, "x-ratelimit-reset": self.reset_at}
        headers = {**{name: str(value) for name, value in rate.items()}, **headers, "content-length": str(len(body))}
        listed = [(name.encode(), value.encode()) for name, value in headers.items() if value]
        self.requests[-1] = (*self.requests[-1][:2], status)
        await send({"type": "http.response.start", "status": status, "headers": listed})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _git_request(self, scope: Any, receive: Any, send: Any) -> None:
        fault = self._fault(scope["method"], scope["path"])
        if fault is not None:
            if fault.kind == "reset":
                return scope["extensions"]["sandlot.reset"]()
            self.requests.append((scope["method"], scope["path"], int(fault.kind)))
            return await self._send(scope, send, Answer(int(fault.kind), {"message": "fault"}))
        found = _GIT.fullmatch(scope["path"])
        assert found is not None
        repository = self.repositories.get(f"{found[1]}/{found[2]}".lower())
        token = self._git_token(scope)
        level = self.level(token, repository) if repository is not None else "none"
        if token is not None and token.permissions is not None and token.permissions.get("contents") != "write":
            level = min(level, "read", key=LEVELS.index)
        self.requests.append((scope["method"], scope["path"], 200))
        if repository is None or level == "none":
            status = 401 if token is None else 404
            headers = {"www-authenticate": 'Basic realm="GitHub"'} if status == 401 else {}
            return await self._send(scope, send, Answer(status, {"message": "Repository not found."}, headers))
        may_push = LEVELS.index(level) >= LEVELS.index("write")
        remark = f"Permission to {repository.full_name}.git denied to {token.user.login if token else 'you'}."
        target = GitTarget(path=repository.path, may_push=may_push, max_bytes=1 << 30, remark=remark)
        self._backend = self._backend or HttpBackend(self._git)
        await self._backend.serve(target, scope, receive, send)

    def _git_token(self, scope: Any) -> Token | None:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        kind, _, value = given.partition(" ")
        if kind.lower() != "basic":
            return None
        token = self.tokens.get(base64.b64decode(value).decode().partition(":")[2])
        return token if token is None or token.until is None or token.until > datetime.now(UTC) else None


@contextmanager
def running(place: Path) -> Iterator[Emulator]:
    """Served by a thread of its own, so that a test may block."""
    place.mkdir(parents=True, exist_ok=True)
    emulator = Emulator(place)
    server = build_server(emulator, host="127.0.0.1", port=0)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="github", daemon=True)
    thread.start()
    for _ in range(1000):
        if server.started:
            break
        thread.join(0.02)
    assert server.started
    emulator.url = f"http://127.0.0.1:{server.port}"
    try:
        yield emulator
    finally:
        server.should_exit = True
        thread.join(30)
