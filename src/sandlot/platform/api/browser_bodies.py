"""What Browserbase's clients send and get: its names and forms, not ours."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sandlot.platform.core.browsers import (
    Browser,
    BrowserContext,
    BrowserExtension,
    BrowserLimits,
    BrowserOptions,
    BrowserRequest,
    BrowserStatus,
    ProxyRule,
    Viewport,
)
from sandlot.platform.core.errors import InvalidRequest

MAX_METADATA = 16 << 10
MAX_DOMAINS = 200
Id = Annotated[str, Field(min_length=1, max_length=128)]
Region = Literal["us-west-2", "us-east-1", "eu-central-1", "ap-southeast-1"]
STATUSES = {
    BrowserStatus.STARTING: "PENDING",
    BrowserStatus.RUNNING: "RUNNING",
    BrowserStatus.ENDING: "RUNNING",
    BrowserStatus.COMPLETED: "COMPLETED",
    BrowserStatus.TIMED_OUT: "TIMED_OUT",
    BrowserStatus.FAILED: "ERROR",
}


class ContextChoice(BaseModel):
    id: Id
    persist: bool = False


class ViewportSize(BaseModel):
    width: Annotated[int, Field(ge=100, le=4096)]
    height: Annotated[int, Field(ge=100, le=4096)]


class BrowserSettings(BaseModel):
    """What is unknown is ignored, as Browserbase does; what is known and not here is refused."""

    model_config = ConfigDict(extra="ignore")

    context: ContextChoice | None = None
    viewport: ViewportSize | None = None
    allowedDomains: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=MAX_DOMAINS)
    ] = []
    recordSession: bool | None = None
    logSession: bool = True
    solveCaptchas: bool = True
    ignoreCertificateErrors: bool = False
    extensionId: Id | None = None
    blockAds: bool = False
    verified: bool = False
    advancedStealth: bool = False
    os: str = "linux"


class ProxyChoice(BaseModel):
    type: Literal["browserbase", "external", "none"]
    server: Annotated[str, Field(max_length=512)] | None = None
    username: Annotated[str, Field(max_length=512)] | None = None
    password: Annotated[str, Field(max_length=512)] | None = None
    domainPattern: Annotated[str, Field(max_length=1024)] | None = None
    geolocation: dict[str, Any] | None = None


class CreateBrowser(BaseModel):
    model_config = ConfigDict(extra="ignore")

    projectId: Id | None = None
    extensionId: Id | None = None
    keepAlive: bool = False
    region: Region = "us-west-2"
    timeout: int | None = None
    userMetadata: dict[str, Any] = {}
    proxies: bool | Annotated[list[ProxyChoice], Field(max_length=20)] = False
    proxySettings: dict[str, Any] | None = None
    browserSettings: BrowserSettings = BrowserSettings()

    @field_validator("userMetadata")
    @classmethod
    def _small(cls, value: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(value)) > MAX_METADATA:
            raise ValueError(f"at most {MAX_METADATA >> 10} KiB of userMetadata are kept")
        return value

    def request(self, user_id: str, limits: BrowserLimits) -> BrowserRequest:
        """Raises `InvalidRequest` for what cannot be had here."""
        settings = self.browserSettings
        _refuse_missing(settings, self.proxySettings)
        viewport = settings.viewport
        is_recorded = limits.is_recorded if settings.recordSession is None else settings.recordSession
        return BrowserRequest(
            user_id=user_id,
            timeout_s=self.timeout,
            keep_alive=self.keepAlive,
            metadata=self.userMetadata,
            region=self.region,
            proxies=_rules(self.proxies, limits.proxy),
            context_id=settings.context.id if settings.context else None,
            persist=settings.context.persist if settings.context else False,
            options=BrowserOptions(
                viewport=Viewport(width=viewport.width, height=viewport.height) if viewport else None,
                allowed_domains=tuple(settings.allowedDomains),
                keeps_log=settings.logSession,
                is_recorded=is_recorded,
                ignores_certificates=settings.ignoreCertificateErrors,
                extension_id=settings.extensionId or self.extensionId,
            ),
        )


def _refuse_missing(settings: BrowserSettings, proxy_settings: dict[str, Any] | None) -> None:
    refused = {
        "verified": settings.verified,
        "advancedStealth": settings.advancedStealth,
        "blockAds": settings.blockAds,
        "proxySettings": bool(proxy_settings),
    }
    if named := [name for name, is_asked in refused.items() if is_asked]:
        raise InvalidRequest(f"{named[0]} is not to be had from this server; leave it out")
    if settings.os != "linux":
        raise InvalidRequest("browsers of this server run on Linux; leave os out, or say linux")


def _rules(asked: bool | list[ProxyChoice], own: ProxyRule | None) -> tuple[ProxyRule, ...]:
    choices = asked if isinstance(asked, list) else [ProxyChoice(type="browserbase")] if asked else []
    return tuple(_rule(choice, own) for choice in choices)


def _rule(choice: ProxyChoice, own: ProxyRule | None) -> ProxyRule:
    if choice.type == "none":
        return ProxyRule(server=None, pattern=choice.domainPattern)
    if choice.type == "external":
        if choice.server is None:
            raise InvalidRequest("an external proxy needs its server")
        return ProxyRule(
            server=choice.server, username=choice.username, password=choice.password, pattern=choice.domainPattern
        )
    if own is None:
        raise InvalidRequest(
            "this server has no proxies of its own: name one with type external, or have the operator set [browsers.proxy]"
        )
    if choice.geolocation is not None:
        raise InvalidRequest("this server's proxy has no choice of places; leave geolocation out")
    return ProxyRule(server=own.server, username=own.username, password=own.password, pattern=choice.domainPattern)


class BrowserAnswer(BaseModel):
    id: str
    createdAt: datetime
    expiresAt: datetime
    startedAt: datetime
    updatedAt: datetime
    keepAlive: bool
    projectId: str
    proxyBytes: int
    region: str
    status: str
    contextId: str | None = None
    endedAt: datetime | None = None
    userMetadata: dict[str, Any] | None = None
    problem: str | None = Field(None, description="Why it ended, if nobody asked for it. Sandlot's own.")

    @classmethod
    def of(cls, browser: Browser, **more: Any) -> BrowserAnswer:
        return cls(
            id=browser.id,
            createdAt=browser.created_at,
            expiresAt=browser.expires_at,
            startedAt=browser.started_at or browser.created_at,
            updatedAt=browser.updated_at,
            keepAlive=browser.keep_alive,
            projectId=browser.user_id,
            proxyBytes=browser.proxy_bytes,
            region=browser.region,
            status=STATUSES[browser.status],
            contextId=browser.context_id,
            endedAt=browser.ended_at,
            userMetadata=dict(browser.metadata) or None,
            problem=browser.problem,
            **more,
        )


class DrivenBrowser(BrowserAnswer):
    """With what is needed to drive it, while it runs."""

    connectUrl: str | None = None
    seleniumRemoteUrl: str | None = None
    signingKey: str | None = None


class ReleaseBrowser(BaseModel):
    status: Literal["REQUEST_RELEASE"]
    projectId: Id | None = None


class LivePage(BaseModel):
    id: str
    url: str
    title: str
    faviconUrl: str = ""
    debuggerUrl: str
    debuggerFullscreenUrl: str


class LiveAddresses(BaseModel):
    debuggerUrl: str
    debuggerFullscreenUrl: str
    wsUrl: str
    pages: list[LivePage]


class CreateContext(BaseModel):
    projectId: Id | None = None
    name: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class ContextAnswer(BaseModel):
    id: str
    createdAt: datetime
    updatedAt: datetime
    projectId: str
    name: str | None = None

    @classmethod
    def of(cls, context: BrowserContext) -> ContextAnswer:
        return cls(
            id=context.id,
            createdAt=context.created_at,
            updatedAt=context.updated_at,
            projectId=context.user_id,
            name=context.name,
        )


class ContextUpload(BaseModel):
    """Profiles are not uploaded here: a context is filled by a browser that persists it. The fields are for clients that expect them."""

    id: str
    uploadUrl: str = ""
    publicKey: str = ""
    cipherAlgorithm: str = "AES-256-CBC"
    initializationVectorSize: int = 16


class ExtensionAnswer(BaseModel):
    id: str
    fileName: str
    projectId: str
    createdAt: datetime
    updatedAt: datetime

    @classmethod
    def of(cls, extension: BrowserExtension) -> ExtensionAnswer:
        return cls(
            id=extension.id,
            fileName=extension.file_name,
            projectId=extension.user_id,
            createdAt=extension.created_at,
            updatedAt=extension.created_at,
        )


class ProjectAnswer(BaseModel):
    id: str
    name: str
    ownerId: str
    concurrency: int
    defaultTimeout: int
    createdAt: datetime
    updatedAt: datetime


class ProjectUsage(BaseModel):
    browserMinutes: int
    proxyBytes: int


class ReplayPage(BaseModel):
    pageId: str
    url: str = ""
    startTimeMs: int
    endTimeMs: int


class Replays(BaseModel):
    pageCount: int
    pages: list[ReplayPage]


class FilmAnswer(BaseModel):
    pageId: str
    status: str
    downloadUrl: str | None = None


class FilmAnswers(BaseModel):
    downloads: list[FilmAnswer]


class UploadAnswer(BaseModel):
    message: str
    path: str = Field(description="Where the page finds the file. Sandlot's own.")
