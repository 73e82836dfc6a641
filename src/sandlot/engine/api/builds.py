"""The routes that build templates: request, upload, start, status and logs."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from sandlot.engine.api.deps import Asking, Deps, Given
from sandlot.engine.api.errors import problems
from sandlot.engine.api.requests import Body, Name, Text
from sandlot.engine.api.responses import TemplateOut
from sandlot.engine.builds import Builder
from sandlot.engine.core.errors import Forbidden, InvalidRequest
from sandlot.engine.core.model import AmazonLogin, Build, BuildStatus, LogEntry, Recipe, RegistryLogin, Step, Template

router = APIRouter(tags=["builds"])

LOG_PAGE = 100
LINK_S = 3600
UPLOADS = "/uploads/"  # not limited in size by the API, but by the builder
NOT_HERE = "this server does not build templates; `GET /templates` lists the templates there are"
_LINK_KEY = secrets.token_bytes(32)  # links are valid as long as this server runs

Id = Annotated[str, Path(max_length=256)]
FilesHash = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="What the caller knows the files by.")]


def builder_of(deps: Deps) -> Builder:
    if deps.builder is None:
        raise InvalidRequest(NOT_HERE)
    return deps.builder


class BuildRequest(Body):
    name: Annotated[str, Field(max_length=256)] | None = None
    alias: Annotated[str, Field(max_length=256)] | None = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None
    cpuCount: int | None = None
    memoryMB: int | None = None
    minFreeDiskMb: Annotated[int, Field(ge=0, le=1 << 24)] | None = None


class Requested(BaseModel):
    templateID: str
    buildID: str
    public: bool
    names: list[str]
    tags: list[str]
    aliases: list[str]

    @classmethod
    def of(cls, template: Template, build: Build) -> Requested:
        return cls(
            templateID=template.id,
            buildID=build.id,
            public=template.public,
            names=[template.name],
            tags=list(build.tags),
            aliases=[template.name],
        )


class RequestedTemplate(TemplateOut):
    tags: list[str]


class StepIn(Body):
    type: Annotated[str, Field(max_length=40)]
    args: Annotated[list[Text], Field(max_length=1000)] | None = None
    force: bool | None = None
    filesHash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class BuildStart(Body):
    fromImage: Name | None = None
    fromTemplate: Name | None = None
    fromImageRegistry: dict[str, Any] | None = None
    force: bool | None = None
    steps: Annotated[list[StepIn], Field(max_length=1000)] | None = None
    startCmd: Text | None = None
    readyCmd: Text | None = None

    def recipe(self) -> Recipe:
        if self.fromImage and self.fromTemplate:
            raise InvalidRequest("a recipe begins with fromImage or with fromTemplate, not with both")
        return Recipe(
            from_image=self.fromImage or None,
            from_template=self.fromTemplate or None,
            login=_login(self.fromImageRegistry),
            force=bool(self.force),
            steps=tuple(
                Step(
                    type=step.type.upper(),
                    args=tuple(step.args or ()),
                    force=bool(step.force),
                    files_hash=step.filesHash,
                )
                for step in self.steps or ()
            ),
            start_cmd=self.startCmd or None,
            ready_cmd=self.readyCmd or None,
        )


def _login(registry: dict[str, Any] | None) -> RegistryLogin | AmazonLogin | None:
    """Credentials in E2B's forms. Those of Google are a user name and a password too; those of Amazon are traded for such."""
    if not registry:
        return None
    kind = registry.get("type")
    if kind == "registry":
        return RegistryLogin(username=str(registry.get("username", "")), password=str(registry.get("password", "")))
    if kind == "gcp":
        return RegistryLogin(username="_json_key", password=str(registry.get("serviceAccountJson", "")))
    if kind == "aws":
        return AmazonLogin(
            access_key_id=str(registry.get("awsAccessKeyId", "")),
            secret_access_key=str(registry.get("awsSecretAccessKey", "")),
            region=str(registry.get("awsRegion", "")),
        )
    raise InvalidRequest(f"fromImageRegistry has the unknown type {str(kind)[:40]!r}")


class Upload(BaseModel):
    present: bool
    url: str | None = None


class LogOut(BaseModel):
    timestamp: datetime
    message: str
    level: Literal["debug", "info", "warn", "error"]
    step: str | None = None

    @classmethod
    def of(cls, entry: LogEntry) -> LogOut:
        level: Any = entry.level
        return cls(timestamp=entry.at, message=entry.message, level=level, step=entry.fields.get("step"))


class Reason(BaseModel):
    message: str
    step: str | None = None
    logEntries: list[LogOut] = []


class Status(BaseModel):
    templateID: str
    buildID: str
    status: Literal["waiting", "building", "ready", "error"]
    logs: list[str]
    logEntries: list[LogOut]
    reason: Reason | None = None


@router.post("/v3/templates", status_code=202, responses=problems(409))
async def request_build(body: BuildRequest, deps: Given, caller: Asking) -> Requested:
    """Ask for a build, which is started later; a template of that name is added if there is none."""
    return Requested.of(*await _request(body, deps, caller))


@router.post("/v2/templates", status_code=202, responses=problems(409), include_in_schema=False)
async def request_build_v2(body: BuildRequest, deps: Given, caller: Asking) -> RequestedTemplate:
    """The same for older SDKs, which want all there is to know of the template."""
    template, build = await _request(body, deps, caller)
    found = TemplateOut.of(template).model_dump() | {"buildID": build.id}
    return RequestedTemplate(**found, tags=list(build.tags))


async def _request(body: BuildRequest, deps: Deps, caller: Asking) -> tuple[Template, Build]:
    builder = builder_of(deps)
    name = body.name or body.alias
    if not name:
        raise InvalidRequest("name: a template needs one")
    return await builder.request(
        caller.team.id,
        name,
        tags=body.tags or (),
        cpu_count=body.cpuCount,
        memory_mb=body.memoryMB,
        free_disk_mb=body.minFreeDiskMb,
    )


@router.get(
    "/templates/{templateID}/files/{hash}", status_code=201, responses=problems(404), response_model_exclude_none=True
)
async def upload_link(templateID: Id, hash: FilesHash, request: Request, deps: Given, caller: Asking) -> Upload:
    """Whether the files of a COPY are here already, and where to send them."""
    builder = builder_of(deps)
    await builder.catalog.own(caller.team.id, templateID)
    url = str(request.base_url).rstrip("/") + _link(caller.team.id, hash, int(time.time()) + LINK_S)
    return Upload(present=builder.uploads.has(caller.team.id, hash), url=url)


def _link(team_id: str, files_hash: str, until: int) -> str:
    return f"{UPLOADS}{team_id}/{files_hash}?until={until}&signature={_signature(team_id, files_hash, until)}"


def _signature(team_id: str, files_hash: str, until: int) -> str:
    return hmac.new(_LINK_KEY, f"{team_id}/{files_hash}/{until}".encode(), hashlib.sha256).hexdigest()


@router.put(UPLOADS + "{team}/{hash}", status_code=200, responses=problems(403), include_in_schema=False)
async def upload(
    team: Annotated[str, Path(max_length=64)],
    hash: FilesHash,
    until: Annotated[int, Query(ge=0, le=1 << 40)],
    signature: Annotated[str, Query(max_length=128)],
    request: Request,
    deps: Given,
) -> None:
    """Take an archive. The link itself is the permission: clients send no key here."""
    if not hmac.compare_digest(signature, _signature(team, hash, until)) or until < time.time():
        raise Forbidden("this upload link is not valid or has expired; start the build again for a new one")

    async def chunks() -> AsyncIterator[bytes]:
        async for chunk in request.stream():
            yield chunk

    await builder_of(deps).uploads.receive(team, hash, chunks())


@router.post("/v2/templates/{templateID}/builds/{buildID}", status_code=202, responses=problems(404, 409))
async def start_build(templateID: Id, buildID: Id, body: BuildStart, deps: Given, caller: Asking) -> None:
    """Begin a build; it goes on by itself, and its status shows how."""
    await builder_of(deps).start(caller.team.id, templateID, buildID, body.recipe())


@router.get(
    "/templates/{templateID}/builds/{buildID}/status", responses=problems(404), response_model_exclude_none=True
)
async def status(
    templateID: Id,
    buildID: Id,
    deps: Given,
    caller: Asking,
    logsOffset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    limit: Annotated[int, Query(ge=0, le=LOG_PAGE)] = LOG_PAGE,
    level: str | None = None,
) -> Status:
    """How a build goes, with a page of its log."""
    builder = builder_of(deps)
    build = await builder.get(caller.team.id, templateID, buildID)
    entries = await builder.logs(build, offset=logsOffset, limit=limit)
    return Status(
        templateID=build.template_id,
        buildID=build.id,
        status=build.status.value,
        logs=[f"{entry.message}\n" for entry in entries],
        logEntries=[LogOut.of(entry) for entry in entries],
        reason=_reason(build, entries),
    )


def _reason(build: Build, entries: Sequence[LogEntry]) -> Reason | None:
    if build.status is not BuildStatus.ERROR:
        return None
    return Reason(message=build.problem or "the build failed", step=build.problem_step)


class BuildLogs(BaseModel):
    logs: list[LogOut]


@router.get("/templates/{templateID}/builds/{buildID}/logs", responses=problems(404), response_model_exclude_none=True)
async def logs(
    templateID: Id,
    buildID: Id,
    deps: Given,
    caller: Asking,
    cursor: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = LOG_PAGE,
) -> BuildLogs:
    """A page of a build's log."""
    builder = builder_of(deps)
    build = await builder.get(caller.team.id, templateID, buildID)
    return BuildLogs(logs=[LogOut.of(entry) for entry in await builder.logs(build, offset=cursor, limit=limit)])
