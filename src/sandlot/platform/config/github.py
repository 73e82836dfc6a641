"""The parts of the configuration file about GitHub: an App, the secret of webhooks, and rules that make tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.triggers import DEFAULT_RULES, TriggerRule, TriggerWhen, check_rule

DAY_S = 86400
Secret = Callable[[str, str | None, Path | None], str | None]  # what a variable or a file holds


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GitHubTable(_Table):
    """A GitHub App of this server, at github.com or at an Enterprise Server, and what GitHub signs webhooks with."""

    url: Annotated[str, Field(pattern=r"^https?://[^/?#@]+$")] = "https://github.com"
    app_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] | None = None
    private_key_env: str | None = None
    private_key_file: Path | None = None
    webhook_secret_env: str | None = None
    webhook_secret_file: Path | None = None


class TriggerTable(_Table):
    """When something happens at GitHub, make a task."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    when: TriggerWhen
    repositories: tuple[str, ...] = ()
    label: str = "sandlot"
    branches: tuple[str, ...] = ("*",)
    workflows: tuple[str, ...] = ("*",)
    permission: Literal["read", "triage", "write", "maintain", "admin"] = "write"
    bots: tuple[str, ...] = ()
    agent: str | None = None
    model: str | None = None
    template: str | None = None
    command: str | None = None
    prompt: Annotated[str, Field(max_length=20_000)] | None = None
    checks: tuple[str, ...] = ()
    seconds: Annotated[int, Field(ge=10, le=7 * DAY_S)] | None = None
    cost_usd: Annotated[float, Field(gt=0)] | None = None
    per_day: Annotated[int, Field(ge=1, le=10_000)] = 20
    per_pull: Annotated[int, Field(ge=1, le=100)] = 3
    start: bool = True
    reproduce: Annotated[tuple[str, ...], Field(max_length=20)] = ()
    unproven: bool = False
    skip_label: str = "sandlot-skip"
    schedule: Annotated[str, Field(max_length=200)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> TriggerTable:
        check_rule(TriggerRule(**self.model_dump()))
        return self


class GitHubConfig(BaseModel):
    """The GitHub App with its key looked up, and the secret of webhooks."""

    model_config = ConfigDict(frozen=True)

    url: str
    app_id: str | None
    private_key: Annotated[str | None, Field(repr=False)]
    webhook_secret: Annotated[str | None, Field(repr=False)]


def trigger_rules(place: str, tables: Sequence[TriggerTable] | None) -> Sequence[TriggerRule]:
    """Those of the file; without any, the ones that are built in."""
    if tables is None:
        return DEFAULT_RULES
    names = [table.name for table in tables]
    if len(names) != len(set(names)):
        raise ConfigurationError(f"{place}: triggers: two of them have the same name")
    return [TriggerRule(**table.model_dump()) for table in tables]


def github_config(place: str, table: GitHubTable | None, secret_of: Secret) -> GitHubConfig | None:
    if table is None:
        return None
    key = secret_of("github", table.private_key_env, table.private_key_file)
    secret = secret_of("github", table.webhook_secret_env, table.webhook_secret_file)
    if (key is None) != (table.app_id is None):
        words = "app_id is missing" if key else "the key is missing; use private_key_env or private_key_file"
        raise ConfigurationError(f"{place}: github: {words}")
    try:
        if key is not None:
            load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{place}: github: the private key is not the PEM file that GitHub gave") from None
    return GitHubConfig(url=table.url.rstrip("/"), app_id=table.app_id, private_key=key, webhook_secret=secret)
