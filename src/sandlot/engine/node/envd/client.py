"""The host's side of envd's internal routes: wait for the daemon, give it its identity, ask it for logs and relays.

What comes back was written next to hostile code: sizes and times are bounded, and every field is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from sandlot import bounded_json
from sandlot.engine.core.errors import GuestUnresponsive
from sandlot.engine.core.model import ENVD_PORT, LogEntry

REPLY_LIMIT = 4 << 20
LOG_MESSAGE_LIMIT = 8 << 10
LEVELS = frozenset({"debug", "info", "warn", "error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes a started machine this sandbox."""

    sandbox_id: str
    template_id: str
    access_token: str | None
    default_user: str
    default_workdir: str
    env_vars: Mapping[str, str] = field(default_factory=dict)
    authorities: str | None = None  # certificates (PEM) that it trusts besides those of every sandbox


class EnvdClient:
    """Speaks to the envd of any machine of this host. No connection is kept: addresses change hands."""

    def __init__(self, ca_bundle: str | None = None) -> None:
        """`ca_bundle`: certificates (PEM) that every sandbox is to trust besides its own."""
        self._session: aiohttp.ClientSession | None = None
        self._ca_bundle = ca_bundle

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=5),
            auto_decompress=False,  # envd compresses nothing, and what grows when it is unpacked has no limit
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def init(
        self, address: str, identity: Identity, *, held_token: str | None = None, within_s: float = 30
    ) -> str:
        """Give the daemon its identity as soon as it listens; return its version. Raises `GuestUnresponsive`."""
        body = {
            "sandboxId": identity.sandbox_id,
            "templateId": identity.template_id,
            "accessToken": identity.access_token,
            "envVars": dict(identity.env_vars),
            "defaultUser": identity.default_user,
            "defaultWorkdir": identity.default_workdir,
            "timestamp": datetime.now(UTC).isoformat(),
            **self._trusting(identity.authorities),
        }
        deadline = asyncio.get_running_loop().time() + within_s
        pause_s = 0.004
        while True:
            try:
                async with self._request("POST", address, "/init", held_token, json=body) as reply:
                    if reply.status == 204:
                        return reply.headers.get("X-Envd-Version", "")[:40]
                    problem = f"it answered {reply.status}"
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                problem = str(error) or type(error).__name__
            if asyncio.get_running_loop().time() + pause_s > deadline:
                raise GuestUnresponsive(
                    f"the daemon of sandbox {identity.sandbox_id} did not take its identity within {within_s:g} s ({problem[:200]})"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, 0.012)

    async def trust(self, address: str, token: str | None, authorities: str) -> None:
        """Have a running guest trust these certificates, too. Raises `GuestUnresponsive`."""
        await self._post("/init", address, token, "did not take certificates", json=self._trusting(authorities))

    def _trusting(self, authorities: str | None) -> dict[str, str]:
        bundle = "".join(part for part in (self._ca_bundle, authorities) if part)
        return {"caBundle": bundle} if bundle else {}

    async def halt(self, address: str, token: str | None) -> None:
        """End every process of the guest but the daemon. Raises `GuestUnresponsive`."""
        await self._post("/halt", address, token, "did not end the guest's processes")

    async def _post(self, path: str, address: str, token: str | None, failed: str, **options: Any) -> None:
        try:
            async with self._request("POST", address, path, token, **options) as reply:
                problem = "" if reply.status == 204 else f"it answered {reply.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            problem = str(error) or type(error).__name__
        if problem:
            raise GuestUnresponsive(f"the daemon at {address} {failed}: {problem[:200]}")

    async def is_idle(self, address: str, token: str | None) -> bool:
        """Whether nothing but the daemon runs in the guest. A daemon that does not say so is taken to be busy."""
        try:
            reply = await self._json("GET", address, "/idle", token)
        except GuestUnresponsive:
            return False
        return reply.get("processes") == 0 and reply["processes"] is not False

    async def logs(self, address: str, token: str | None) -> Sequence[LogEntry]:
        """What the daemon logged; empty if it does not answer in time."""
        try:
            reply = await self._json("GET", address, "/logs", token)
        except GuestUnresponsive:
            return ()
        entries = reply.get("entries")
        return tuple(filter(None, map(_log_entry, entries))) if isinstance(entries, list) else ()

    async def relay(self, address: str, token: str | None, port: int) -> int | None:
        """The port of a relay to the guest's own loopback, or None if nothing listens there."""
        try:
            reply = await self._json("POST", address, "/relay", token, json={"port": port})
        except GuestUnresponsive:
            return None
        relay = reply.get("port")
        return relay if isinstance(relay, int) and 0 < relay < 65536 else None

    async def _json(self, method: str, address: str, path: str, token: str | None, **options: Any) -> dict[str, Any]:
        try:
            async with self._request(method, address, path, token, **options) as reply:
                body = bytearray()
                while reply.status == 200 and len(body) <= REPLY_LIMIT:
                    if not (more := await reply.content.read(REPLY_LIMIT)):
                        break
                    body += more
            value = bounded_json.loads(bytes(body) or b"{}", most_bytes=REPLY_LIMIT)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise GuestUnresponsive(f"the daemon at {address} gave no answer to {path}: {error}") from error
        return value if isinstance(value, dict) else {}

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, address: str, path: str, token: str | None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "open() first"
        headers = {"X-Access-Token": token} if token else {}
        url = f"http://{address}:{ENVD_PORT}{path}"
        async with self._session.request(method, url, headers=headers, allow_redirects=False, **options) as reply:
            yield reply


def _log_entry(raw: object) -> LogEntry | None:
    if not isinstance(raw, dict):
        return None
    try:
        at = datetime.fromisoformat(str(raw.get("timestamp"))[:40])
        at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    fields = raw.get("fields")
    return LogEntry(
        at=at,
        message=bounded_json.text(raw.get("message", ""), LOG_MESSAGE_LIMIT),
        level=level if (level := str(raw.get("level"))) in LEVELS else "info",
        fields={bounded_json.text(k, 100): bounded_json.text(v, 1000) for k, v in list(fields.items())[:20]}
        if isinstance(fields, dict)
        else {},
    )
