"""Looking at everything a provider has, through the client of the E2B SDK: sandboxes, usage, logs, templates, builds."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from e2b.api import handle_api_exception
from e2b.api.client.types import Response
from e2b.api.client_async import get_api_client
from e2b.connection_config import ConnectionConfig

from sandlot.platform.core.console import (
    PastSandbox,
    SeenBuild,
    SeenLife,
    SeenLog,
    SeenMark,
    SeenSandbox,
    SeenTemplate,
    UsagePoint,
)
from sandlot.platform.core.errors import InvalidRequest, NotFound, ProviderRefused, SandboxGone, Unavailable
from sandlot.platform.providers.e2b_errors import translated

MAX_PAGES = 100
MAX_TEXT = 64 << 10
MAX_FIELDS = 32
_GRANT = re.compile(r"[A-Za-z0-9_-]{1,256}")
EPOCH = datetime.fromtimestamp(0, UTC)
Record = Mapping[str, Any]
Params = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class SeenGrant:
    token: str
    parameter: str
    ends_at: datetime | None
    is_needed: bool


class E2BInspection:
    """Reads records itself: the SDK's own classes leave out what a server adds, such as the isolation."""

    def __init__(self, provider: str, params: Params) -> None:
        self._provider, self._params = provider, params

    async def sandboxes(self) -> Sequence[SeenSandbox]:
        return [_sandbox(record) for record in await self._pages("list sandboxes", "/v2/sandboxes")]

    async def sandbox(self, sandbox_id: str) -> SeenSandbox:
        found, _ = await self._get("look at a sandbox", f"/sandboxes/{_segment(sandbox_id)}")
        return _sandbox(_record(found))

    async def usage(self, sandbox_id: str, start_s: int | None, end_s: int | None) -> Sequence[UsagePoint]:
        query = {name: value for name, value in (("start", start_s), ("end", end_s)) if value is not None}
        found, _ = await self._get("read the usage", f"/sandboxes/{_segment(sandbox_id)}/metrics", query)
        return [_point(record) for record in _records(found)]

    async def logs(self, sandbox_id: str, *, before_ms: int | None, limit: int) -> Sequence[SeenLog]:
        query: dict[str, Any] = {"direction": "backward", "limit": limit}
        if before_ms is not None:
            query["cursor"] = before_ms
        found, _ = await self._get("read the log", f"/v2/sandboxes/{_segment(sandbox_id)}/logs", query)
        return [_log(record) for record in reversed(_records(_record(found).get("logs")))]

    async def templates(self) -> Sequence[SeenTemplate]:
        found, _ = await self._get("list templates", "/templates")
        sizes = await self._sizes()
        return [_template(record, sizes) for record in _records(found)]

    async def _sizes(self) -> Mapping[str, Record]:
        """What templates take up on the provider's disk. By a route that E2B does not have: our engine's."""
        try:
            found, _ = await self._get("read what templates take up", "/templates/usage")
        except (SandboxGone, ProviderRefused, InvalidRequest):
            return {}
        return {str(record.get("templateID")): record for record in _records(found)}

    async def template(self, template_id: str) -> SeenTemplate:
        try:
            found, _ = await self._get("look at a template", f"/templates/{_segment(template_id)}")
        except SandboxGone:
            raise NotFound(f"template {template_id[:80]!r} was not found") from None
        return _template(_record(found), await self._sizes())

    async def build_logs(self, template_id: str, build_id: str, *, since_ms: int, limit: int) -> Sequence[SeenLog]:
        path = f"/templates/{_segment(template_id)}/builds/{_segment(build_id)}/logs"
        try:
            found, _ = await self._get("read a build's log", path, {"cursor": since_ms, "limit": limit})
        except SandboxGone:
            raise NotFound(f"build {build_id[:80]!r} was not found") from None
        return [_log(record) for record in _records(_record(found).get("logs"))]

    async def life(self, sandbox_id: str) -> SeenLife | None:
        """By a route that E2B does not have: our engine's."""
        try:
            found, _ = await self._get("read the life of a sandbox", f"/sandboxes/{_segment(sandbox_id)}/history")
        except (SandboxGone, ProviderRefused, InvalidRequest):
            return None
        if not isinstance(found, Mapping) or "sandbox" not in found:
            return None
        marks = [
            SeenMark(
                at=_time(one.get("at")) or EPOCH, kind=_text(one.get("kind")) or "", detail=_text(one.get("detail"))
            )
            for one in _records(found.get("marks"))
        ]
        forks = [_past(one) for one in _records(found.get("forks"))]
        return SeenLife(sandbox=_past(_record(found["sandbox"])), marks=marks, forks=forks)

    async def ended(self, since: datetime | None, limit: int) -> Sequence[PastSandbox]:
        query = {"limit": limit} | ({"since": int(since.timestamp() * 1000)} if since is not None else {})
        try:
            found, _ = await self._get("list ended sandboxes", "/sandboxes/ended", query)
        except (SandboxGone, ProviderRefused, InvalidRequest):
            return ()
        return [_past(record) for record in _records(found)]

    async def grant(self, sandbox_id: str, port: int) -> SeenGrant | None:
        """None: this provider has no grants, or not this sandbox."""
        path = f"/sandboxes/{_segment(sandbox_id)}/ports/{port}/grants"
        try:
            found = _record((await self._ask("post", "let a browser into a port", path, json={}))[0])
        except (SandboxGone, ProviderRefused):
            return None
        token, parameter, ends_at = _text(found.get("grant")), _text(found.get("parameter")), found.get("expiresAt")
        if not token or not parameter or not _GRANT.fullmatch(token + parameter):
            return None
        return SeenGrant(token, parameter, _time(ends_at), is_needed=found.get("needed") is not False)

    async def _pages(self, doing: str, path: str) -> list[Record]:
        records: list[Record] = []
        token = ""
        for _ in range(MAX_PAGES):
            found, next_token = await self._get(doing, path, {"limit": 100} | ({"nextToken": token} if token else {}))
            records += _records(found)
            if not next_token:
                break
            token = next_token
        return records

    async def _get(self, doing: str, path: str, query: Record | None = None) -> tuple[Any, str | None]:
        return await self._ask("get", doing, path, params=dict(query or {}))

    async def _ask(self, method: str, doing: str, path: str, **how: Any) -> tuple[Any, str | None]:
        with translated(self._provider, doing):
            client = get_api_client(ConnectionConfig(**await self._params()))
            answer = await client.get_async_httpx_client().request(method, path, **how)
            if answer.status_code == 404:
                raise SandboxGone(f"could not {doing}: provider {self._provider!r} does not have it")
            if answer.status_code >= 300:
                raise handle_api_exception(_as_response(answer))
            try:
                return answer.json() if answer.content else None, answer.headers.get("x-next-token")
            except ValueError as error:
                raise Unavailable(f"could not {doing}: provider {self._provider!r} answers with no JSON") from error


def _as_response(answer: Any) -> Response[Any]:
    return Response(status_code=answer.status_code, content=answer.content, headers=answer.headers, parsed=None)


def _segment(text: str) -> str:
    """One segment of a path, whatever is in it."""
    return quote(text, safe="")


def _record(found: Any) -> Record:
    return found if isinstance(found, Mapping) else {}


def _records(found: Any) -> list[Record]:
    return [record for record in found if isinstance(record, Mapping)] if isinstance(found, list) else []


def _text(value: Any) -> str | None:
    return value[:MAX_TEXT] if isinstance(value, str) else None


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _pairs(value: Any) -> dict[str, str]:
    pairs = list(_record(value).items())[:MAX_FIELDS]
    return {str(name)[:256]: str(content)[:MAX_TEXT] for name, content in pairs}


def _sandbox(record: Record) -> SeenSandbox:
    network = record.get("network")
    public = network.get("allowPublicTraffic") if isinstance(network, Mapping) else None
    return SeenSandbox(
        id=_text(record.get("sandboxID")) or "",
        template_id=_text(record.get("templateID")) or "",
        template=_text(record.get("alias")),
        is_paused=record.get("state") == "paused",
        started_at=_time(record.get("startedAt")) or EPOCH,
        ends_at=_time(record.get("endAt")) or EPOCH,
        cpu_count=_number(record.get("cpuCount")),
        memory_mb=_number(record.get("memoryMB")),
        disk_mb=_number(record.get("diskSizeMB")),
        metadata=_pairs(record.get("metadata")),
        isolation=_text(record.get("isolation")),
        runtime=_text(record.get("runtime")),
        public_traffic=public if isinstance(public, bool) else None,
    )


def _past(record: Record) -> PastSandbox:
    started = _time(record.get("startedAt")) or EPOCH
    return PastSandbox(
        id=_text(record.get("sandboxID")) or "",
        template=_text(record.get("alias")) or _text(record.get("templateID")) or "",
        state=_text(record.get("state")) or "ended",
        created_at=_time(record.get("createdAt")) or started,
        started_at=started,
        ended_at=_time(record.get("endedAt")),
        end_reason=_text(record.get("endReason")),
        source=_text(record.get("source")),
        cpu_count=_number(record.get("cpuCount")),
        memory_mb=_number(record.get("memoryMB")),
        metadata=_pairs(record.get("metadata")),
    )


def _point(record: Record) -> UsagePoint:
    used = record.get("cpuUsedPct")
    return UsagePoint(
        at=_time(record.get("timestamp")) or EPOCH,
        cpu_percent=float(used) if isinstance(used, int | float) and math.isfinite(used) else 0.0,
        cpu_count=_number(record.get("cpuCount")),
        memory_bytes=_number(record.get("memUsed")),
        memory_total=_number(record.get("memTotal")),
        disk_bytes=_number(record.get("diskUsed")),
        disk_total=_number(record.get("diskTotal")),
    )


def _log(record: Record) -> SeenLog:
    return SeenLog(
        at=_time(record.get("timestamp")) or EPOCH,
        level=_text(record.get("level")) or "info",
        message=_text(record.get("message")) or "",
        fields=_pairs(record.get("fields")),
    )


def _template(record: Record, sizes: Mapping[str, Record]) -> SeenTemplate:
    size = sizes.get(str(record.get("templateID")))
    builds = [_build(build) for build in _records(record.get("builds"))]
    names = record.get("names") or record.get("aliases") or []
    newest = builds[0] if builds else None
    return SeenTemplate(
        id=_text(record.get("templateID")) or "",
        names=[str(name)[:256] for name in names if isinstance(name, str)][:MAX_FIELDS],
        state=_text(record.get("buildStatus")) or (newest.state if newest else "ready"),
        build_count=_number(record.get("buildCount")) or len(builds),
        cpu_count=_number(record.get("cpuCount")) or (newest.cpu_count if newest else 0),
        memory_mb=_number(record.get("memoryMB")) or (newest.memory_mb if newest else 0),
        disk_mb=_number(record.get("diskSizeMB")),
        is_public=bool(record.get("public")),
        spawn_count=_number(record.get("spawnCount")),
        created_at=_time(record.get("createdAt")) or EPOCH,
        updated_at=_time(record.get("updatedAt")) or EPOCH,
        last_used_at=_time(record.get("lastSpawnedAt")),
        disk_bytes=_number(size.get("bytes")) if size is not None else None,
        own_disk_bytes=_number(size.get("ownBytes")) if size is not None else None,
        builds=builds,
    )


def _build(record: Record) -> SeenBuild:
    return SeenBuild(
        id=_text(record.get("buildID")) or "",
        state=_text(record.get("status")) or "",
        created_at=_time(record.get("createdAt")) or EPOCH,
        finished_at=_time(record.get("finishedAt")),
        cpu_count=_number(record.get("cpuCount")),
        memory_mb=_number(record.get("memoryMB")),
    )
