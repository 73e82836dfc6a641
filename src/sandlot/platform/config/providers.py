"""The tables of providers in the configuration file: this server's engine, E2B Cloud, other servers, Docker daemons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandlot.platform.core.errors import ConfigurationError

DAY_S = 86400
Timeout = Annotated[int, Field(ge=1, le=30 * DAY_S)]


class ConfigTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ValueReference(ConfigTable):
    """A value in an environment variable of the server, or in a file."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one(self) -> ValueReference:
        if (self.env is None) == (self.file is None):
            raise ValueError("say where the value is: either env or file")
        return self


class SecretReference(ValueReference):
    """`hosts`: it leaves with requests to these and is never inside; none: agents get the value itself."""

    hosts: tuple[Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9._-]{1,120}$")], ...] = ()


class _Keyed(ConfigTable):
    key_env: str | None = None
    key_file: Path | None = None
    template: str | None = None
    timeout: Timeout = 3600

    @model_validator(mode="after")
    def _one_key(self) -> _Keyed:
        if self.key_env is not None and self.key_file is not None:
            raise ValueError("the key is either in key_env or in key_file, not in both")
        return self


class LocalTable(ConfigTable):
    """The engine of this server."""

    kind: Literal["local"]
    template: str | None = None
    timeout: Timeout = 3600


class CloudTable(_Keyed):
    """E2B Cloud."""

    kind: Literal["e2b"]
    domain: str = "e2b.app"


class UrlTable(_Keyed):
    """Any other server that speaks E2B's protocol."""

    kind: Literal["url"]
    api_url: Annotated[str, Field(pattern=r"^https?://")]
    sandbox_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    domain: str | None = None


class DockerTable(ConfigTable):
    """A Docker daemon. Templates are images."""

    kind: Literal["docker"]
    address: Annotated[str, Field(pattern=r"^(unix|tcp|http|https)://")] = "unix:///var/run/docker.sock"
    template: str | None = None
    images: tuple[str, ...] = ()
    pull: bool = True
    cpus: Annotated[float, Field(gt=0, le=1024)] = 2.0
    memory_mb: Annotated[int, Field(ge=64)] = 2048
    processes: Annotated[int, Field(ge=16)] = 1024
    sandboxes: Annotated[int, Field(ge=1)] = 20
    user: str | None = None
    runtime: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] | None = None
    timeout: Timeout = 3600


AnyProviderTable = LocalTable | CloudTable | UrlTable | DockerTable
ProviderTable = Annotated[AnyProviderTable, Field(discriminator="kind")]
KINDS = ("local", "e2b", "url", "docker")
KEYS = sorted({key for table in (LocalTable, CloudTable, UrlTable, DockerTable) for key in table.model_fields})


class ProviderConfig(BaseModel):
    """One provider with its key looked up."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    table: AnyProviderTable
    key: Annotated[str | None, Field(repr=False)] = None


def provider_config(
    name: str, table: AnyProviderTable, secret: Callable[[str, str | None, Path | None], str | None]
) -> ProviderConfig:
    """Raises `ConfigurationError` if a key is needed and is not there."""
    if isinstance(table, LocalTable | DockerTable):
        return ProviderConfig(table=table)
    key = secret(f"providers.{name}", table.key_env, table.key_file)
    if key is None:
        raise ConfigurationError(f"providers.{name}: the key is missing; say where it is with key_env or key_file")
    return ProviderConfig(table=table, key=key)
