"""The server's outermost application: decides between the API and a sandbox, checks what a sandbox demands, passes on."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from urllib.parse import parse_qsl

from sandlot.engine.core.errors import EngineError, InvalidRequest, NotFound
from sandlot.engine.core.model import ENVD_PORT, Sandbox, State
from sandlot.engine.gateway import replies
from sandlot.engine.gateway.asgi import App, RawHeaders, Receive, Scope, Send
from sandlot.engine.gateway.forwarding import Crossing
from sandlot.engine.gateway.headers import TRAFFIC_TOKEN, connection_tokens, header
from sandlot.engine.gateway.http import pass_http
from sandlot.engine.gateway.replies import Answer, reply
from sandlot.engine.gateway.routes import ID_HEADER, PORT_HEADER, Routes, Target, is_internal, parse_target
from sandlot.engine.gateway.upstreams import Dial, Draining, Relay, TooManyConnections, Ways
from sandlot.engine.gateway.websocket import pass_websocket

MOST_CONNECTIONS = 1000
OPERATIONS = {"GET": "read", "HEAD": "read", "POST": "write"}
RESTING = frozenset({State.CAPTURING, State.PAUSING, State.PAUSED, State.RESUMING})
WAKE_LIMIT_S = 120.0
WAKE_TRIES = 5


async def _never_wake(_: str) -> Sandbox | None:
    return None


def _always_awake(_: str) -> AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


def dial_machine(sandbox: Sandbox, port: int) -> tuple[str, int]:
    return (sandbox.machine.address if sandbox.machine else ""), port


class Gateway:
    """An ASGI application around the API's: a request that names a sandbox goes there, every other one to the API."""

    def __init__(
        self,
        api: App,
        routes: Routes,
        *,
        relay: Relay,
        wake: Callable[[str], Awaitable[Sandbox | None]] = _never_wake,
        awake: Callable[[str], AbstractAsyncContextManager[None]] = _always_awake,
        domain: str | None = None,
        dial: Dial = dial_machine,
        most_per_sandbox: int = MOST_CONNECTIONS,
        on_pass: Callable[[str], None] = lambda kind: None,
        on_refusal: Callable[[int], None] = lambda status: None,
    ) -> None:
        self._api, self._routes, self._domain = api, routes, domain
        self._wake, self._awake = wake, awake
        self._ways = Ways(dial, relay, most_per_sandbox)
        self._on_pass, self._on_refusal = on_pass, on_refusal

    def changed(self, sandbox: Sandbox) -> None:
        """For lifecycle's `on_change`: routing first, so that a client whose stream is cut finds the sandbox gone."""
        self._routes.changed(sandbox)
        if sandbox.state not in (State.RUNNING, State.CAPTURING, State.PAUSING):
            self._ways.close(sandbox.id)

    async def drain(self, sandbox_id: str, grace_s: float = 1.0) -> int:
        """Before a pause: let nothing new in, wait for what is open, cut the rest; return how many were cut."""
        return await self._ways.drain(sandbox_id, grace_s)

    def open_connections(self, sandbox_id: str | None = None) -> int:
        return self._ways.open_count(sandbox_id)

    async def close(self) -> None:
        await self._ways.close_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._api(scope, receive, send)
            return
        try:
            target = await self._target(scope)
            sandbox = await self._routes.sandbox(target.sandbox_id) if target else None
        except EngineError as error:
            status = 400 if isinstance(error, InvalidRequest) else 503
            await self._refuse(Answer(status, str(error)), scope, receive, send)
            return
        if target is None:
            await self._api(scope, receive, send)
            return
        if sandbox is None:
            await self._refuse(replies.not_found(target.sandbox_id), scope, receive, send)
            return
        refusal = _refusal(sandbox, target, scope)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return
        await self._enter(sandbox, target, scope, receive, send)

    async def _enter(self, sandbox: Sandbox, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Go in; wait first for a sandbox that is just being paused or saved, and wake one that may be woken."""
        for _ in range(WAKE_TRIES):
            if sandbox.state in RESTING:
                woken = await self._woken(sandbox.id)
                if isinstance(woken, Answer):
                    await self._refuse(woken, scope, receive, send)
                    return
                sandbox = woken
            if sandbox.state is not State.RUNNING or sandbox.machine is None:
                break
            try:
                await self._cross(sandbox, target, scope, receive, send)
                return
            except Draining:  # it was about to rest; nothing of the request has been used
                sandbox = await self._routes.sandbox(sandbox.id) or sandbox
                await asyncio.sleep(0.01)
        else:
            await self._refuse(replies.transitioning(sandbox.id), scope, receive, send)
            return
        await self._refuse(replies.not_found(sandbox.id), scope, receive, send)

    async def _woken(self, sandbox_id: str) -> Sandbox | Answer:
        try:
            woken = await asyncio.wait_for(self._wake(sandbox_id), WAKE_LIMIT_S)
        except NotFound:
            woken = None
        except TimeoutError:
            return replies.transitioning(sandbox_id)
        except EngineError as error:
            return Answer(503, str(error))
        return woken or replies.not_found(sandbox_id)

    async def _target(self, scope: Scope) -> Target | None:
        raw: RawHeaders = scope["headers"]
        host, routing = "", {}
        for name, value in raw:
            if name == b"host":
                if host:  # which one counts would be a matter of taste, and of attack
                    raise InvalidRequest("The request has two Host headers; send one")
                host = value.decode("latin-1")
            elif name.startswith(b"e2b-sandbox-"):
                routing[name.decode("latin-1")] = value.decode("latin-1")
        target = parse_target(host, routing, self._domain)
        if target is None and scope.get("raw_path") == b"/files" and scope["type"] == "http":
            return await self._signed_target(scope)
        return target

    async def _signed_target(self, scope: Scope) -> Target | None:
        """A file URL made for a server that is reached by headers has no id in it: its signature says whose it is."""
        operation = OPERATIONS.get(scope["method"])
        text = scope["query_string"].decode("latin-1")
        if operation is None or "signature=" not in text:
            return None
        query: dict[str, str] = {}
        for name, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
            query.setdefault(name, value)
        sandbox = await self._routes.signer(query, operation)
        if sandbox is None:
            raise InvalidRequest(
                "This signed file URL belongs to no running sandbox. Make a new one, or send the headers "
                f"{ID_HEADER} and {PORT_HEADER} with it."
            )
        return Target(ENVD_PORT, sandbox.id)

    async def _cross(self, sandbox: Sandbox, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._ways.passage(sandbox) as (way, passage), self._awake(sandbox.id):
                self._on_pass(scope["type"])
                scope["crossing"] = True  # for the server, which treats streams into sandboxes with less patience
                crossing = Crossing(scope, receive, send, sandbox, target.port, self._ways, way, passage)
                await (pass_http(crossing) if scope["type"] == "http" else pass_websocket(crossing))
        except TooManyConnections:
            await self._refuse(replies.too_many(sandbox.id, self._ways.most_per_sandbox), scope, receive, send)

    async def _refuse(self, answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        self._on_refusal(answer.status)
        if scope["type"] == "websocket":
            await receive()
        await reply(answer, scope, send)


def _refusal(sandbox: Sandbox, target: Target, scope: Scope) -> Answer | None:
    """Why this request may not enter this sandbox, if it may not."""
    if sandbox.state is not State.RUNNING and sandbox.state not in RESTING:
        return replies.not_found(sandbox.id)
    raw: RawHeaders = scope["headers"]
    path = scope["raw_path"].decode("latin-1")
    if not path.startswith("/"):
        return Answer(400, "The request's path must begin with a slash")
    if is_internal(target.port, path):
        return replies.internal_route(path)
    private = target.port != ENVD_PORT and not sandbox.network.allow_public_traffic
    return (_check_token(sandbox, header(raw, TRAFFIC_TOKEN)) if private else None) or _check_upgrade(raw)


def _check_token(sandbox: Sandbox, given: bytes | None) -> Answer | None:
    if not given:
        return replies.token_missing(sandbox.id)
    if not hmac.compare_digest(given, (sandbox.traffic_token or "").encode()) or not sandbox.traffic_token:
        return replies.token_wrong(sandbox.id)
    return None


def _check_upgrade(raw: RawHeaders) -> Answer | None:
    upgrade = header(raw, b"upgrade")
    if upgrade is None or upgrade.strip().lower() == b"websocket" or b"upgrade" not in connection_tokens(raw):
        return None
    return Answer(501, "Only WebSocket upgrades pass through here; ask without the Upgrade header")
