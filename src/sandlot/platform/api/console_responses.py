"""What the console's routes answer with."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, Field

from sandlot.platform.console.sandboxes import ShownSandbox
from sandlot.platform.core.console import SeenBuild, SeenLog, SeenTemplate, UsagePoint
from sandlot.platform.core.model import FileEntry, Scope, UserKey

OWN_METADATA = "sandlot-"
TASK = "sandlot-task"


class ConsoleSandbox(BaseModel):
    id: str = Field(description="At its provider.")
    provider: str
    name: str | None = Field(description="The name of its session.")
    template: str
    state: Literal["running", "paused"]
    isolation: str | None = Field(
        description="What stands between it and the host's kernel, where the provider says so."
    )
    runtime: str | None
    started_at: datetime
    ends_at: datetime
    cpu: int
    memory_mb: int
    disk_mb: int
    metadata: dict[str, str]
    public_traffic: bool | None = Field(description="Whether its ports are open to everybody; only in the detail.")
    session_id: str | None = Field(description="The platform's id of its session: `sbx_…`.")
    user_id: str | None
    task_id: str | None
    fork_of: str | None = Field(description="The session from whose sandbox it was made without the platform.")

    @classmethod
    def of(cls, shown: ShownSandbox) -> Self:
        seen, session = shown.seen, shown.session
        metadata = dict(session.metadata if session is not None else seen.metadata)
        return cls(
            id=seen.id,
            provider=shown.provider,
            name=session.session_id if session is not None else None,
            template=seen.template or seen.template_id,
            state="paused" if seen.is_paused else "running",
            isolation=seen.isolation,
            runtime=seen.runtime,
            started_at=seen.started_at,
            ends_at=seen.ends_at,
            cpu=seen.cpu_count,
            memory_mb=seen.memory_mb,
            disk_mb=seen.disk_mb,
            metadata={name: value for name, value in metadata.items() if not name.startswith(OWN_METADATA)},
            public_traffic=seen.public_traffic,
            session_id=session.id if session is not None else None,
            user_id=shown.owner.user_id if shown.owner is not None else None,
            task_id=metadata.get(TASK),
            fork_of=shown.fork_of.id if shown.fork_of is not None else None,
        )


class ConsoleSandboxList(BaseModel):
    sandboxes: list[ConsoleSandbox]


class ForkedSandbox(BaseModel):
    id: str


class ConsoleUsagePoint(BaseModel):
    at: datetime
    cpu_percent: float
    cpu_count: int
    memory_bytes: int
    memory_total: int
    disk_bytes: int
    disk_total: int

    @classmethod
    def of(cls, point: UsagePoint) -> Self:
        return cls(
            at=point.at,
            cpu_percent=point.cpu_percent,
            cpu_count=point.cpu_count,
            memory_bytes=point.memory_bytes,
            memory_total=point.memory_total,
            disk_bytes=point.disk_bytes,
            disk_total=point.disk_total,
        )


class ConsoleUsage(BaseModel):
    points: list[ConsoleUsagePoint]


class ConsoleLogLine(BaseModel):
    at: datetime
    level: str
    message: str
    fields: dict[str, str]

    @classmethod
    def of(cls, line: SeenLog) -> Self:
        return cls(at=line.at, level=line.level, message=line.message, fields=dict(line.fields))


class ConsoleLog(BaseModel):
    lines: list[ConsoleLogLine] = Field(description="Oldest first.")


class ConsoleBuild(BaseModel):
    id: str
    state: str
    created_at: datetime
    finished_at: datetime | None
    cpu: int
    memory_mb: int

    @classmethod
    def of(cls, build: SeenBuild) -> Self:
        return cls(
            id=build.id,
            state=build.state,
            created_at=build.created_at,
            finished_at=build.finished_at,
            cpu=build.cpu_count,
            memory_mb=build.memory_mb,
        )


class ConsoleTemplate(BaseModel):
    id: str
    names: list[str]
    state: str
    builds: int
    cpu: int
    memory_mb: int
    disk_mb: int
    disk_bytes: int | None = Field(description="What it takes on the provider's disk, where the provider says so.")
    own_disk_bytes: int | None = Field(description="What deleting it would free.")
    public: bool
    spawn_count: int
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime | None

    @classmethod
    def of(cls, template: SeenTemplate) -> Self:
        return cls(
            id=template.id,
            names=list(template.names),
            state=template.state,
            builds=template.build_count,
            cpu=template.cpu_count,
            memory_mb=template.memory_mb,
            disk_mb=template.disk_mb,
            disk_bytes=template.disk_bytes,
            own_disk_bytes=template.own_disk_bytes,
            public=template.is_public,
            spawn_count=template.spawn_count,
            created_at=template.created_at,
            updated_at=template.updated_at,
            last_used_at=template.last_used_at,
        )


class ConsoleTemplateList(BaseModel):
    templates: list[ConsoleTemplate]


class ConsoleTemplateDetail(BaseModel):
    template: ConsoleTemplate
    builds: list[ConsoleBuild] = Field(description="Newest first.")


class ConsoleKey(BaseModel):
    id: str
    name: str
    user_id: str | None
    scopes: list[Scope]
    hint: str = Field(description="Enough of the key to recognise it.")
    created_at: datetime
    last_used_at: datetime | None = Field(description="To the minute.")

    @classmethod
    def of(cls, key: UserKey) -> Self:
        return cls(
            id=key.id,
            name=key.name,
            user_id=key.user_id,
            scopes=sorted(key.scopes),
            hint=key.hint,
            created_at=key.created_at,
            last_used_at=key.last_used_at,
        )


class ConsoleKeyList(BaseModel):
    keys: list[ConsoleKey]


class NewConsoleKey(BaseModel):
    key: ConsoleKey
    secret: str = Field(description="The key itself. It is shown this once.")


class ConsoleEntry(BaseModel):
    name: str
    path: str
    type: str = Field(description="file, dir or symlink.")
    size: int
    mode: int
    modified_at: datetime | None

    @classmethod
    def of(cls, entry: FileEntry) -> Self:
        return cls(
            name=entry.name,
            path=entry.path,
            type=entry.type,
            size=entry.size,
            mode=entry.mode,
            modified_at=entry.modified_at,
        )


class ConsoleEntryList(BaseModel):
    entries: list[ConsoleEntry]


class ConsolePort(BaseModel):
    port: int
    url: str


class ConsolePortList(BaseModel):
    ports: list[ConsolePort]


class ConsolePortGrant(BaseModel):
    url: str
    one_time: bool = Field(
        description="False: the port is open to everybody, or its provider lets nobody in but by a header."
    )
    expires_at: datetime | None
