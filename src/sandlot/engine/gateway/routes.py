"""Which sandbox and port a request means: parsing of hosts and headers, envd's closed routes, and the table of live sandboxes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import posixpath
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import unquote

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.ids import SANDBOX_ID, parse_sandbox_id
from sandlot.engine.core.model import ENVD_PORT, Sandbox, State
from sandlot.server.hosts import hostname

GENERATED_ID = re.compile(
    r"i[a-z0-9]{5,63}"
)  # what this engine gives out: enough to tell a sandbox host from any other
INTERNAL_ROUTES = frozenset(
    {"init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "relay", "logs", "halt", "idle", "stillness"}
)
ID_HEADER, PORT_HEADER = "e2b-sandbox-id", "e2b-sandbox-port"
API_RESOURCES = frozenset({"sandboxes", "snapshots", "teams", "templates", "v1", "v2", "v3"})  # none is a path of envd
ENVD_PATHS = frozenset({"files", "health", "envs", "metrics", "process.Process", "filesystem.Filesystem"})
LIVE_S, UNKNOWN_S = 5.0, 0.5  # how long a found and a missing row are believed without news of a change
MOST_ROWS = 10_000
READ_TRIES = 5
MOST_CANDIDATES = 2_000


@dataclass(frozen=True, slots=True)
class Target:
    port: int
    sandbox_id: str
    is_host: bool = field(default=False, compare=False)  # named by the Host: a cookie there belongs to it alone


def parse_target(host: str, headers: Mapping[str, str], domain: str | None) -> Target | None:
    """The sandbox and port a request means, or None when it is meant for the API. Raises `InvalidRequest`.

    Headers count only where the Host cannot name a sandbox (localhost, an IP address, `sandbox.*`): otherwise a page
    served by one sandbox could have a browser send requests to another.
    """
    name = hostname(host)
    sandbox_id, port = headers.get(ID_HEADER, ""), headers.get(PORT_HEADER, "")
    if (sandbox_id or port) and _routes_by_header(name):
        return _from_headers(sandbox_id, port)
    found = _from_host(name, hostname(domain) if domain else None)
    return replace(found, is_host=True) if found is not None else None


def _routes_by_header(name: str) -> bool:
    return name == "localhost" or name.startswith("sandbox.") or _is_address(name)


@lru_cache(1024)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _from_headers(sandbox_id: str, port: str) -> Target:
    if not sandbox_id:
        raise InvalidRequest("Missing header: E2b-Sandbox-Id. Send it together with E2b-Sandbox-Port.")
    if not port:
        raise InvalidRequest("Missing header: E2b-Sandbox-Port. Send it together with E2b-Sandbox-Id.")
    return Target(parse_port(port), short_id(sandbox_id.strip()))


def _from_host(name: str, domain: str | None) -> Target | None:
    label, dot, parent = name.partition(".")
    if not dot or _is_address(name):
        return None
    port, dash, rest = label.partition("-")
    ours = parent == "localhost" or (domain is not None and parent == domain)
    if ours and dash and port.isascii() and port.isdigit():
        return Target(parse_port(port), short_id(rest))
    if domain is None and dash and re.fullmatch(r"\d{1,5}", port) and GENERATED_ID.fullmatch(rest.partition("-")[0]):
        return Target(parse_port(port), short_id(rest))
    return None


def is_for_api(headers: Mapping[str, str], raw_path: str) -> bool:
    """Whether a request with a key is the API's although its headers name envd of a sandbox.

    Python SDKs 2.8 to 2.26 send the routing headers with their calls of the API, such as `/sandboxes/{id}/connect`.
    """
    return headers.get(PORT_HEADER, "").strip() == str(ENVD_PORT) and first_segment(raw_path) in API_RESOURCES


def first_segment(raw_path: str) -> str:
    return raw_path.partition("?")[0].removeprefix("/").partition("/")[0]


def parse_port(text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise InvalidRequest(f"Invalid sandbox port {text[:32]!r}: give a number from 1 to 65535.")
    return int(text)


def short_id(text: str) -> str:
    """The id itself: older clients append `-{clientID}`."""
    found = parse_sandbox_id(text)
    if not SANDBOX_ID.fullmatch(found):
        raise InvalidRequest(f"Invalid sandbox id {text[:80]!r}: it consists of lower-case letters and digits.")
    return found


def is_internal(port: int, raw_path: str) -> bool:
    """Whether the path is one of envd's routes that only the engine itself may call, however it is spelled."""
    if port != ENVD_PORT:
        return False
    path = raw_path.partition("?")[0].replace("\\", "/")
    for _ in range(4):  # a server behind us may decode once; being stricter costs nothing
        decoded = unquote(path).replace("\\", "/")
        if decoded == path:
            break
        path = decoded
    path = posixpath.normpath("/" + path.partition(";")[0].lstrip("/"))
    return path.split("/")[1].strip().lower() in INTERNAL_ROUTES


def signature(path: str, operation: str, user: str, token: str, expiration: str | None) -> str:
    """E2B's signature of a file URL: what a client computes from the envd token instead of sending it."""
    parts = [path, operation, user, token, *([expiration] if expiration else [])]
    digest = hashlib.sha256(":".join(parts).encode(errors="surrogateescape")).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


def signed_by(candidates: Iterable[Sandbox], query: Mapping[str, str], operation: str) -> Sandbox | None:
    """The sandbox whose envd token made this file URL. All candidates are tried, so timing tells nothing."""
    given = query.get("signature", "").encode(errors="replace")
    found = None
    for sandbox in candidates:
        if sandbox.envd_token is None:
            continue
        made = signature(
            query.get("path", ""),
            operation,
            query.get("username", ""),
            sandbox.envd_token,
            query.get("signature_expiration"),
        )
        if hmac.compare_digest(made.encode(), given):
            found = sandbox
    return found


def held_by(candidates: Iterable[Sandbox], token: bytes) -> Sandbox | None:
    """The sandbox whose envd token this is. All candidates are tried, so timing tells nothing."""
    found = None
    for sandbox in candidates:
        if sandbox.envd_token and hmac.compare_digest(sandbox.envd_token.encode(), token):
            found = sandbox
    return found


class Routes:
    """Live sandboxes by id: a short cache over the store, corrected at once by every change of a row."""

    def __init__(
        self,
        find: Callable[[str], Awaitable[Sandbox | None]],
        running: Callable[[], Awaitable[Sequence[Sandbox]]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._running, self._now = find, running, now
        self._rows: dict[str, tuple[float, Sandbox | None]] = {}
        self._candidates: tuple[float, Sequence[Sandbox]] | None = None
        self._changes = 0

    async def sandbox(self, sandbox_id: str) -> Sandbox | None:
        row = self._rows.get(sandbox_id)
        if row is not None and row[0] > self._now():
            return row[1]
        for _ in range(READ_TRIES):
            before = self._changes
            sandbox = await self._find(sandbox_id)
            if before == self._changes:
                self._keep(sandbox_id, sandbox)
                break  # else what was read may already be wrong: nobody may enter a sandbox that is about to be paused
        return sandbox

    async def signer(self, query: Mapping[str, str], operation: str) -> Sandbox | None:
        """The running sandbox that a signed file URL belongs to."""
        return signed_by(await self._all_running(), query, operation)

    async def holder(self, token: bytes) -> Sandbox | None:
        """The running sandbox that has this envd token."""
        return held_by(await self._all_running(), token)

    async def _all_running(self) -> Sequence[Sandbox]:
        if self._candidates is None or self._candidates[0] <= self._now():
            before = self._changes
            rows = (await self._running())[:MOST_CANDIDATES]
            if before != self._changes:
                return rows
            self._candidates = (self._now() + LIVE_S, rows)
        return self._candidates[1]

    def changed(self, sandbox: Sandbox) -> None:
        """This row was just written: believe it from now on."""
        self._changes += 1
        self._candidates = None
        if sandbox.state is State.RUNNING:
            self._keep(sandbox.id, sandbox)
        else:
            self._rows.pop(sandbox.id, None)

    def _keep(self, sandbox_id: str, sandbox: Sandbox | None) -> None:
        if len(self._rows) >= MOST_ROWS:
            self._rows.clear()
        self._rows[sandbox_id] = (self._now() + (UNKNOWN_S if sandbox is None else LIVE_S), sandbox)
