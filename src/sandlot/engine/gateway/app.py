"""The gateway: finds the sandbox that a request means, wakes it, checks its tokens, and forwards to its node."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import parse_qsl

from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.port_grants import PortGrants
from sandlot.engine.control.sandbox_states import WAKEABLE
from sandlot.engine.core.errors import Draining, EngineError, ForwardFailed, InvalidRequest, NotFound
from sandlot.engine.core.http_headers import ACCESS_TOKEN, TRAFFIC_TOKEN, RawHeaders, connection_tokens, header
from sandlot.engine.core.model import ENVD_PORT, ProxyTarget, Sandbox, State
from sandlot.engine.core.ports.node import Message, Receive, Scope, Send
from sandlot.engine.gateway import replies
from sandlot.engine.gateway.browser_entry import BrowserEntry, send_redirect, without_cookie
from sandlot.engine.gateway.replies import Reply, send_reply
from sandlot.engine.gateway.routes import (
    ENVD_PATHS,
    ID_HEADER,
    PORT_HEADER,
    Routes,
    Target,
    first_segment,
    is_for_api,
    is_internal,
    parse_target,
)

App = Callable[[Scope, Receive, Send], Awaitable[None]]
OPERATIONS = {"GET": "read", "HEAD": "read", "POST": "write"}
WAKE_LIMIT_S = 120.0
WAKE_TRIES = 5
RETRY_S = 0.01
UNKNOWN = "unknown"  # in the place of an id: no sandbox has it


class Wakes(Protocol):
    async def wake(self, sandbox_id: str) -> Sandbox | None:
        """The sandbox, resumed if it lets itself be resumed by a request; else None."""


class Observer(Protocol):
    """Who counts what passes."""

    def forwarded(self, kind: str) -> None: ...

    def refused(self, status: int) -> None: ...


class Gateway:
    """An ASGI application around the API's: a request that names a sandbox goes there, every other one to the API."""

    def __init__(
        self,
        api: App,
        *,
        routes: Routes,
        nodes: Nodes,
        wakes: Wakes,
        observer: Observer,
        grants: PortGrants,
        domain: str | None = None,
    ) -> None:
        self._api, self._routes, self._nodes = api, routes, nodes
        self._wakes, self._observer, self._domain = wakes, observer, domain
        self._browsers = BrowserEntry(grants)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._api(scope, receive, send)
            return
        try:
            target = await self._target(scope)
            sandbox = await self._routes.sandbox(target.sandbox_id) if target else None
        except EngineError as error:
            status = 400 if isinstance(error, InvalidRequest) else 503
            await self._refuse(Reply(status, str(error)), scope, receive, send)
            return
        if target is None:
            await self._api(scope, receive, send)
            return
        if sandbox is None:
            await self._refuse(replies.not_found(target.sandbox_id), scope, receive, send)
            return
        if (elsewhere := self._browsers.redirect(sandbox, target, scope)) is not None:
            await send_redirect(elsewhere, send)
            return
        refusal = self._refusal(sandbox, target, scope)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return
        await self._enter(sandbox, target, without_cookie(scope) if target.is_host else scope, receive, send)

    async def _enter(self, sandbox: Sandbox, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward; wait first for a sandbox that is just being paused or saved, and wake one that may be woken."""
        for _ in range(WAKE_TRIES):
            if sandbox.state in WAKEABLE:
                woken = await self._woken(sandbox.id)
                if isinstance(woken, Reply):
                    await self._refuse(woken, scope, receive, send)
                    return
                sandbox = woken
            if sandbox.state is not State.RUNNING:
                break
            try:
                await self._forward(sandbox, target.port, scope, receive, send)
                return
            except Draining:  # it is about to be paused; nothing of the request has been used
                sandbox = await self._routes.sandbox(sandbox.id) or sandbox
                await asyncio.sleep(RETRY_S)
        else:
            await self._refuse(replies.transitioning(sandbox.id), scope, receive, send)
            return
        await self._refuse(replies.not_found(sandbox.id), scope, receive, send)

    async def _woken(self, sandbox_id: str) -> Sandbox | Reply:
        try:
            woken = await asyncio.wait_for(self._wakes.wake(sandbox_id), WAKE_LIMIT_S)
        except NotFound:
            woken = None
        except TimeoutError:
            return replies.transitioning(sandbox_id)
        except EngineError as error:
            return Reply(503, str(error))
        return woken or replies.not_found(sandbox_id)

    async def _forward(self, sandbox: Sandbox, port: int, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = _Incoming(receive)
        into = ProxyTarget(
            sandbox_id=sandbox.id,
            port=port,
            use_tls=port in sandbox.network.https_ports,
            host_mask=sandbox.network.mask_request_host,
        )
        self._observer.forwarded(scope["type"])
        try:
            await self._nodes.of(sandbox).proxy.forward(into, scope, incoming, send)
        except Draining:
            raise
        except ForwardFailed as failure:
            reply = replies.forward_failed(sandbox.id, port, failure)
            await self._refuse(reply, scope, incoming if not incoming.is_used else _nothing, send)

    async def _target(self, scope: Scope) -> Target | None:
        raw: RawHeaders = scope["headers"]
        host, routing, has_key = "", {}, False
        for name, value in raw:
            if name == b"host":
                if host:  # which one counts would be a matter of taste, and of attack
                    raise InvalidRequest("The request has two Host headers; send one")
                host = value.decode("latin-1")
            elif name.startswith(b"e2b-sandbox-"):
                routing[name.decode("latin-1")] = value.decode("latin-1")
            elif name == b"x-api-key":
                has_key = True
        if has_key and routing and is_for_api(routing, _path(scope)):
            routing = {}  # and the Host alone decides
        target = parse_target(host, routing, self._domain)
        if target is None and scope["type"] == "http" and first_segment(_path(scope)) in ENVD_PATHS:
            return await self._envd_target(scope)
        return target

    async def _envd_target(self, scope: Scope) -> Target | None:
        """A request for envd at a server that is reached by headers, and no id in it: what lets it in says whose it is.

        A signed file URL has its signature. Python SDKs 2.8 to 2.26 after `connect`, and JavaScript SDKs up to 2.12 for
        files, send envd's token alone.
        """
        if token := header(scope["headers"], ACCESS_TOKEN):
            holder = await self._routes.holder(token)
            return Target(ENVD_PORT, holder.id if holder else UNKNOWN)
        operation = OPERATIONS.get(scope["method"])
        text = scope["query_string"].decode("latin-1")
        if operation is None or "signature=" not in text or _path(scope) != "/files":
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

    def _refusal(self, sandbox: Sandbox, target: Target, scope: Scope) -> Reply | None:
        """Why this request may not enter this sandbox, if it may not."""
        if sandbox.state is not State.RUNNING and sandbox.state not in WAKEABLE:
            return replies.not_found(sandbox.id)
        raw: RawHeaders = scope["headers"]
        path = _path(scope)
        if not path.startswith("/"):
            return Reply(400, "The request's path must begin with a slash")
        if is_internal(target.port, path):
            return replies.internal_route(path)
        private = target.port != ENVD_PORT and not sandbox.network.allow_public_traffic
        if private and not self._browsers.admits(sandbox, target, scope):
            refusal = _check_token(sandbox, header(raw, TRAFFIC_TOKEN))
            if refusal is not None:
                return refusal
        return _check_upgrade(raw)

    async def _refuse(self, reply: Reply, scope: Scope, receive: Receive, send: Send) -> None:
        self._observer.refused(reply.status)
        if scope["type"] == "websocket":
            await receive()  # its opening message, which has to be taken before it can be answered
        await send_reply(reply, scope, send)


class _Incoming:
    """The request's messages, and whether any was taken."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_used = False

    async def __call__(self) -> Message:
        self.is_used = True
        return await self._receive()


async def _nothing() -> Message:
    return {}


def _path(scope: Scope) -> str:
    return str(scope["raw_path"].decode("latin-1"))


def _check_token(sandbox: Sandbox, given: bytes | None) -> Reply | None:
    if not given:
        return replies.token_missing(sandbox.id)
    if not hmac.compare_digest(given, (sandbox.traffic_token or "").encode()) or not sandbox.traffic_token:
        return replies.token_wrong(sandbox.id)
    return None


def _check_upgrade(raw: RawHeaders) -> Reply | None:
    upgrade = header(raw, b"upgrade")
    if upgrade is None or upgrade.strip().lower() == b"websocket" or b"upgrade" not in connection_tokens(raw):
        return None
    return Reply(501, "Only WebSocket upgrades pass through here; ask without the Upgrade header")
