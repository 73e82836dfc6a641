"""What the API answers with: E2B's records, made from the engine's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, Self

from fastapi import Response
from pydantic import BaseModel, Field

from sandlot.engine.core.model import Build, EgressProxy, HeaderRule, LogEntry, Sandbox, State, Team, Template, Usage

CLIENT_ID = "sandlot"  # older clients read it and append it to the sandbox's id; it means nothing
Level = Literal["debug", "info", "warn", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warn", "error")


def _stamp(at: datetime) -> datetime:
    return at.astimezone(UTC)


def listed_state(sandbox: Sandbox) -> Literal["running", "paused"]:
    return "paused" if sandbox.state in (State.PAUSING, State.PAUSED, State.RESUMING) else "running"


def isolation_of(sandbox: Sandbox) -> str | None:
    return sandbox.machine.isolation.value if sandbox.machine else None


class SandboxOut(BaseModel):
    """A sandbox, and what its owner needs to use it."""

    templateID: str
    sandboxID: str
    clientID: str
    envdVersion: str
    alias: str | None = None
    envdAccessToken: str | None = None
    trafficAccessToken: str | None = None
    domain: str | None = None
    runtime: str | None = Field(None, description="Sandlot's own: what runs it.")
    isolation: str | None = Field(None, description="Sandlot's own: what stands between it and the host's kernel.")

    @classmethod
    def of(cls, sandbox: Sandbox, domain: str | None) -> Self:
        return cls(
            templateID=sandbox.template_id,
            sandboxID=sandbox.id,
            clientID=CLIENT_ID,
            envdVersion=sandbox.envd_version,
            alias=sandbox.template_name,
            envdAccessToken=sandbox.envd_token,
            trafficAccessToken=sandbox.traffic_token,
            domain=domain,
            runtime=sandbox.runtime,
            isolation=isolation_of(sandbox),
        )


class Listed(BaseModel):
    templateID: str
    alias: str | None = None
    sandboxID: str
    clientID: str
    startedAt: datetime
    endAt: datetime
    cpuCount: int
    memoryMB: int
    diskSizeMB: int
    metadata: dict[str, str]
    state: Literal["running", "paused"]
    envdVersion: str
    runtime: str | None = Field(None, description="Sandlot's own: what runs it.")
    isolation: str | None = Field(None, description="Sandlot's own: what stands between it and the host's kernel.")

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        return cls(
            templateID=sandbox.template_id,
            alias=sandbox.template_name,
            sandboxID=sandbox.id,
            clientID=CLIENT_ID,
            startedAt=_stamp(sandbox.started_at),
            endAt=_stamp(sandbox.end_at),
            cpuCount=sandbox.resources.cpu_count,
            memoryMB=sandbox.resources.memory_mb,
            diskSizeMB=sandbox.resources.disk_mb,
            metadata=dict(sandbox.metadata),
            state=listed_state(sandbox),
            envdVersion=sandbox.envd_version,
            runtime=sandbox.runtime,
            isolation=isolation_of(sandbox),
        )


class PortGrantOut(BaseModel):
    parameter: str = Field(description="The name of the query parameter that the grant goes into.")
    grant: str
    expiresAt: datetime
    needed: bool = Field(description="False: the port is open to everybody, with and without a grant.")


class TransformOut(BaseModel):
    headers: dict[str, str]


class RuleOut(BaseModel):
    transform: TransformOut

    @classmethod
    def of(cls, rule: HeaderRule) -> Self:
        return cls(transform=TransformOut(headers=dict(rule.headers)))


class ProxyTlsOut(BaseModel):
    enabled: bool = True
    serverName: str | None = None


class ProxyOut(BaseModel):
    """Without its password and certificates."""

    address: str
    username: str | None = None
    tls: ProxyTlsOut | None = None

    @classmethod
    def of(cls, proxy: EgressProxy) -> Self:
        tls = ProxyTlsOut(serverName=proxy.server_name) if proxy.use_tls else None
        return cls(address=f"{proxy.host}:{proxy.port}", username=proxy.username, tls=tls)


class NetworkOut(BaseModel):
    allowPublicTraffic: bool
    allowOut: list[str] | None = None
    denyOut: list[str] | None = None
    maskRequestHost: str | None = None
    httpsPorts: list[int] | None = None
    dnsServers: list[str] | None = None
    rules: dict[str, list[RuleOut]] | None = None
    egressProxy: ProxyOut | None = None

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        policy = sandbox.network
        return cls(
            allowPublicTraffic=policy.allow_public_traffic,
            allowOut=list(policy.allow_out) or None,
            denyOut=list(policy.deny_out) or None,
            maskRequestHost=policy.mask_request_host,
            httpsPorts=list(policy.https_ports) or None,
            dnsServers=None if policy.dns_servers is None else list(policy.dns_servers),
            rules={rule.domain: [RuleOut.of(rule)] for rule in policy.rules} or None,
            egressProxy=ProxyOut.of(policy.egress_proxy) if policy.egress_proxy else None,
        )


class LifecycleOut(BaseModel):
    autoResume: bool
    onTimeout: Literal["kill", "pause"]


class Detail(Listed):
    envdAccessToken: str | None = None
    domain: str | None = None
    allowInternetAccess: bool | None = None
    network: NetworkOut
    lifecycle: LifecycleOut
    pauseMode: Literal["full", "filesystem"] | None = None

    @classmethod
    def detail(cls, sandbox: Sandbox, domain: str | None) -> Self:
        return cls(
            **dict(Listed.of(sandbox)),
            envdAccessToken=sandbox.envd_token,
            domain=domain,
            allowInternetAccess=sandbox.network.allow_internet,
            network=NetworkOut.of(sandbox),
            lifecycle=LifecycleOut(autoResume=sandbox.auto_resume, onTimeout=sandbox.on_timeout.value),
            pauseMode=sandbox.pause_mode.value if sandbox.pause_mode else None,
        )


class Metric(BaseModel):
    timestamp: datetime
    timestampUnix: int
    cpuCount: int
    cpuUsedPct: float
    memUsed: int
    memTotal: int
    memCache: int
    diskUsed: int
    diskTotal: int

    @classmethod
    def of(cls, usage: Usage) -> Self:
        return cls(
            timestamp=_stamp(usage.at),
            timestampUnix=int(usage.at.timestamp()),
            cpuCount=usage.cpu_count,
            cpuUsedPct=round(usage.cpu_used_pct, 2),  # clients print it as it comes
            memUsed=usage.mem_used,
            memTotal=usage.mem_total,
            memCache=usage.mem_cache,
            diskUsed=usage.disk_used,
            diskTotal=usage.disk_total,
        )


class Metrics(BaseModel):
    sandboxes: dict[str, Metric]


class LogLine(BaseModel):
    timestamp: datetime
    line: str = Field(description="A JSON object with `level`, `message` and the entry's fields.")

    @classmethod
    def of(cls, entry: LogEntry) -> Self:
        fields = {"logger": "envd", **entry.fields, "level": level_of(entry), "message": entry.message}
        return cls(timestamp=_stamp(entry.at), line=json.dumps(fields))


class LogEntryOut(BaseModel):
    timestamp: datetime
    message: str
    level: Level
    fields: dict[str, str]

    @classmethod
    def of(cls, entry: LogEntry) -> Self:
        fields = {str(name): str(value) for name, value in entry.fields.items()}
        return cls(timestamp=_stamp(entry.at), message=entry.message, level=level_of(entry), fields=fields)


def level_of(entry: LogEntry) -> Level:
    """Levels come from inside the sandbox, too: what is none of ours counts as info."""
    return next((level for level in LEVELS if level == entry.level.lower()), "info")


class Logs(BaseModel):
    logs: list[LogLine]
    logEntries: list[LogEntryOut]


class LogsV2(BaseModel):
    logs: list[LogEntryOut]


class SnapshotOut(BaseModel):
    snapshotID: str
    names: list[str]

    @classmethod
    def of(cls, snapshot: Template, team: Team) -> SnapshotOut:
        named = snapshot.name != snapshot.id
        return cls(snapshotID=f"{snapshot.id}:default", names=[f"{team.name}/{snapshot.name}:default"] if named else [])


class Problem(BaseModel):
    code: int
    message: str


class ForkOut(BaseModel):
    """One fork: it runs, or it could not be started."""

    sandbox: SandboxOut | None = None
    error: Problem | None = None


class TemplateOut(BaseModel):
    templateID: str
    buildID: str
    cpuCount: int
    memoryMB: int
    diskSizeMB: int
    public: bool
    aliases: list[str]
    names: list[str]
    createdAt: datetime
    updatedAt: datetime
    createdBy: None
    lastSpawnedAt: datetime | None
    spawnCount: int
    buildCount: int
    envdVersion: str
    buildStatus: Literal["ready", "waiting"]

    @classmethod
    def of(cls, template: Template) -> Self:
        return cls(
            templateID=template.id,
            buildID=template.build_id,
            cpuCount=template.resources.cpu_count,
            memoryMB=template.resources.memory_mb,
            diskSizeMB=template.resources.disk_mb,
            public=is_public(template),
            aliases=[template.name],
            names=[template.name],
            createdAt=_stamp(template.created_at),
            updatedAt=_stamp(template.updated_at),
            createdBy=None,
            lastSpawnedAt=_stamp(template.last_spawned_at) if template.last_spawned_at else None,
            spawnCount=template.spawn_count,
            buildCount=1,
            envdVersion=template.envd_version,
            buildStatus="ready" if template.layers or template.checkpoint else "waiting",
        )


def is_public(template: Template) -> bool:
    return template.public or template.team_id is None


class BuildOut(BaseModel):
    buildID: str
    status: Literal["waiting", "building", "ready", "error"]
    createdAt: datetime
    updatedAt: datetime
    finishedAt: datetime | None = None
    cpuCount: int
    memoryMB: int
    diskSizeMB: int
    envdVersion: str

    @classmethod
    def of(cls, build: Build) -> Self:
        return cls(
            buildID=build.id,
            status=build.status.value,
            createdAt=_stamp(build.created_at),
            updatedAt=_stamp(build.updated_at),
            finishedAt=_stamp(build.finished_at) if build.finished_at else None,
            cpuCount=build.resources.cpu_count,
            memoryMB=build.resources.memory_mb,
            diskSizeMB=build.resources.disk_mb,
            envdVersion=build.content.envd_version if build.content else "",
        )


class TemplateWithBuilds(BaseModel):
    templateID: str
    public: bool
    aliases: list[str]
    names: list[str]
    createdAt: datetime
    updatedAt: datetime
    lastSpawnedAt: datetime | None
    spawnCount: int
    builds: list[BuildOut]

    @classmethod
    def of(cls, template: Template, builds: Sequence[Build] = ()) -> Self:
        own = BuildOut(
            buildID=template.build_id,
            status="ready",
            createdAt=_stamp(template.updated_at),
            updatedAt=_stamp(template.updated_at),
            finishedAt=_stamp(template.updated_at),
            cpuCount=template.resources.cpu_count,
            memoryMB=template.resources.memory_mb,
            diskSizeMB=template.resources.disk_mb,
            envdVersion=template.envd_version,
        )
        return cls(
            templateID=template.id,
            public=is_public(template),
            aliases=[template.name],
            names=[template.name],
            createdAt=_stamp(template.created_at),
            updatedAt=_stamp(template.updated_at),
            lastSpawnedAt=_stamp(template.last_spawned_at) if template.last_spawned_at else None,
            spawnCount=template.spawn_count,
            builds=[BuildOut.of(build) for build in builds] or [own],
        )


class Alias(BaseModel):
    templateID: str
    public: bool


class TeamOut(BaseModel):
    teamID: str
    name: str
    apiKey: str = Field(description="The key this request was made with: others cannot be looked up.")
    isDefault: bool


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str


def shown(sandbox: Sandbox, domain: str | None, response: Response) -> SandboxOut:
    """A sandbox as an answer, which tells its isolation class in a header too."""
    isolation = isolation_of(sandbox)
    if isolation is not None:
        response.headers["X-Sandlot-Isolation"] = isolation
    return SandboxOut.of(sandbox, domain)
