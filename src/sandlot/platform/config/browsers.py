"""What the configuration file says about browsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandlot.platform.core.browsers import BrowserLimits, ProxyRule
from sandlot.platform.core.errors import ConfigurationError

Secret = Callable[[str, str | None, Path | None], str | None]


class ProxyTable(BaseModel):
    """The operator's proxy, for callers who ask for one without naming it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: Annotated[str, Field(pattern=r"^(https?|socks5)://[^/\\s]+$")]
    username: str | None = None
    password_env: str | None = None
    password_file: Path | None = None

    @model_validator(mode="after")
    def _one(self) -> ProxyTable:
        if self.password_env is not None and self.password_file is not None:
            raise ValueError("the password is either in password_env or in password_file, not in both")
        return self


class BrowsersTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str | None = None
    template: str = "chromium"
    running: Annotated[int, Field(ge=1, le=10_000)] = 50
    running_per_user: Annotated[int, Field(ge=1, le=10_000)] = 25
    timeout: Annotated[int, Field(ge=60, le=21600)] = 3600
    record: bool = False
    keep_ended: Annotated[int, Field(ge=60)] = 7 * 86400
    proxy: ProxyTable | None = None


def browser_limits(
    place: str, table: BrowsersTable, default: str, providers: Mapping[str, Any], look_up: Secret
) -> BrowserLimits:
    """Raises `ConfigurationError`."""
    provider = table.provider or default
    if provider not in providers:
        raise ConfigurationError(
            f"{place}: browsers.provider = {provider!r}: there is no such provider (known: {', '.join(sorted(providers))})"
        )
    proxy = None
    if table.proxy is not None:
        password = look_up("browsers.proxy", table.proxy.password_env, table.proxy.password_file)
        proxy = ProxyRule(server=table.proxy.server, username=table.proxy.username, password=password)
    return BrowserLimits(
        provider=provider,
        template=table.template,
        running=table.running,
        running_per_user=table.running_per_user,
        timeout_s=table.timeout,
        is_recorded=table.record,
        keep_ended_s=table.keep_ended,
        proxy=proxy,
    )
