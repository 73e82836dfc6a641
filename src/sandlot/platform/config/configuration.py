"""The configuration file (`sandlot.toml`): providers, agent types, limits, policy, webhooks, models; checked whole before anything starts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sandlot.platform.config.backends import BackendTable, backends, check_agent
from sandlot.platform.config.browsers import BrowsersTable, browser_limits
from sandlot.platform.config.github import GitHubConfig, GitHubTable, TriggerTable, github_config, trigger_rules
from sandlot.platform.config.models import (
    ADDRESSES,
    WELL_KNOWN,
    WELL_KNOWN_VARIABLES,
    BudgetsTable,
    ModelsTable,
    PriceTable,
)
from sandlot.platform.config.providers import (
    DAY_S,
    KEYS,
    KINDS,
    ConfigTable,
    LocalTable,
    ProviderConfig,
    ProviderTable,
    SecretReference,
    Timeout,
    ValueReference,
    provider_config,
)
from sandlot.platform.core.backends import Backend, Capability
from sandlot.platform.core.browsers import BrowserLimits
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.events import check_pattern
from sandlot.platform.core.model import AgentSettings, RetentionPolicy, SessionLimits, TimeoutAction, Webhook
from sandlot.platform.core.models import ModelEndpoint, ModelPrice
from sandlot.platform.core.tasks import TaskPolicy
from sandlot.platform.core.triggers import DEFAULT_RULES, TriggerRule

NAME = "sandlot.toml"
Seconds = Annotated[int, Field(ge=0, le=366 * DAY_S)]
PositiveInt = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class AgentTable(ConfigTable):
    provider: str | None = None
    template: str | None = None
    timeout: Timeout | None = None
    envs: Mapping[str, str | ValueReference] = {}
    backend: str | None = None
    capabilities: tuple[Capability, ...] = ()


class LimitsTable(ConfigTable):
    running: PositiveInt = 20
    running_per_user: PositiveInt = 5
    sessions_per_user: PositiveInt = 50
    queue_length: PositiveInt = 1000
    queue_timeout: Annotated[int, Field(ge=1, le=DAY_S)] = 600


class PolicyTable(ConfigTable):
    idle_pause: Seconds = 600
    max_age: Seconds = 7 * DAY_S
    on_timeout: TimeoutAction = TimeoutAction.PAUSE
    keep_events: Annotated[int, Field(ge=60)] = 7 * DAY_S
    keep_ended: Annotated[int, Field(ge=60)] = DAY_S


def _tasks_at_once() -> int:
    return min(16, max(2, 2 * (os.cpu_count() or 1)))


class TasksTable(ConfigTable):
    """Limits of tasks. `running` is how many are worked on at once; by default twice the CPUs."""

    running: Annotated[int, Field(ge=1, le=1000, default_factory=_tasks_at_once)]
    running_per_user: Annotated[int, Field(ge=0)] = 0
    agent: str = "claude"
    depth: Annotated[int, Field(ge=0, le=10)] = 2
    children: Annotated[int, Field(ge=0, le=1000)] = 20
    keep_sandbox: Seconds = DAY_S
    protected: tuple[str, ...] = (".github/workflows",)
    max_push_mb: PositiveInt = 512
    max_artifact_mb: PositiveInt = 64


class WebhookTable(ConfigTable):
    name: Name
    url: Annotated[str, Field(pattern=r"^https?://")]
    secret_env: str | None = None
    secret_file: Path | None = None
    types: tuple[Annotated[str, AfterValidator(check_pattern)], ...] | None = None
    users: tuple[str, ...] | None = None
    private: bool = False


class ConsoleTable(ConfigTable):
    hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}$")], ...] = ()


class _File(ConfigTable):
    default: str | None = None
    providers: Mapping[Name, ProviderTable] = {}
    backends: Mapping[Name, BackendTable] = {}
    agents: Mapping[Name, AgentTable] = {}
    envs: Mapping[str, str | ValueReference] = {}
    limits: LimitsTable = LimitsTable()
    policy: PolicyTable = PolicyTable()
    tasks: Annotated[TasksTable, Field(default_factory=lambda: TasksTable.model_validate({}))]
    secrets: Mapping[Name, SecretReference] = {}
    webhooks: tuple[WebhookTable, ...] = ()
    console: ConsoleTable = ConsoleTable()
    github: GitHubTable | None = None
    models: Mapping[Name, ModelsTable] = {}
    prices: Mapping[str, PriceTable] = {}
    budgets: BudgetsTable = BudgetsTable()
    triggers: tuple[TriggerTable, ...] | None = None
    browsers: BrowsersTable = BrowsersTable()


class Configuration(BaseModel):
    """The configuration with every reference resolved. Its repr shows no secret."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    default: str
    providers: Mapping[str, ProviderConfig]
    backends: Mapping[str, Backend] = {}
    agents: Annotated[Mapping[str, AgentSettings], Field(repr=False)]
    envs: Annotated[Mapping[str, str], Field(repr=False)]
    limits: SessionLimits
    policy: RetentionPolicy
    tasks: TaskPolicy
    task_agent: str
    secrets: Annotated[Mapping[str, str], Field(repr=False)]
    secret_hosts: Mapping[str, tuple[str, ...]] = {}  # of those that leave with requests and are never inside
    webhooks: Sequence[Webhook]
    github: GitHubConfig | None = None
    triggers: Sequence[TriggerRule] = DEFAULT_RULES
    console_hosts: Sequence[str] = ()  # further names at which the console is served
    models: Annotated[Sequence[ModelEndpoint], Field(repr=False)] = ()
    prices: Mapping[str, ModelPrice] = {}
    budgets: BudgetsTable = BudgetsTable()
    browsers: BrowserLimits


def load(path: Path | None, environment: Mapping[str, str] | None = None, *, has_engine: bool) -> Configuration:
    """Read and check the file; without one, this server's own engine is the only provider. Raises `ConfigurationError`."""
    raw = _read(path) if path is not None else {}
    place = str(path) if path is not None else NAME
    try:
        file = _File.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(f"{place}: {'; '.join(_problem(found) for found in error.errors()[:5])}") from None
    look_up = _Lookup(place, os.environ if environment is None else environment)
    providers = dict(file.providers)
    if not providers:
        if not has_engine:
            raise ConfigurationError(
                f'{place}: there is no provider; add [providers.<name>] with kind = "url", "e2b" or "docker"'
            )
        providers = {"local": LocalTable(kind="local")}
    _check_names(place, file, providers, has_engine)
    default = file.default or next(iter(providers))
    known = backends(place, file.backends, providers, default)
    for name, agent in file.agents.items():
        check_agent(place, name, agent.backend, agent.capabilities, known)
    return Configuration(
        default=default,
        backends=known,
        providers={name: provider_config(name, table, look_up.secret) for name, table in providers.items()},
        agents={name: _agent(name, table, look_up) for name, table in file.agents.items()},
        envs=look_up.values("envs", file.envs),
        limits=_limits(file.limits),
        policy=_policy(file.policy),
        tasks=_task_policy(file.tasks),
        task_agent=file.tasks.agent,
        secrets=look_up.values("secrets", file.secrets),
        secret_hosts={name: each.hosts for name, each in file.secrets.items() if each.hosts},
        webhooks=[_webhook(table, look_up) for table in file.webhooks],
        github=github_config(place, file.github, look_up.secret),
        triggers=trigger_rules(place, file.triggers),
        console_hosts=file.console.hosts,
        models=_models(place, file.models, look_up),
        prices={name: table.price() for name, table in file.prices.items()},
        budgets=file.budgets,
        browsers=browser_limits(place, file.browsers, file.default or next(iter(providers)), providers, look_up.secret),
    )


def variables(path: Path) -> set[str]:
    """The environment variables that the file refers to, for whoever starts the server."""
    found: set[str] = set()

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, name)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
        elif isinstance(value, str) and key in (
            "env",
            "key_env",
            "secret_env",
            "private_key_env",
            "webhook_secret_env",
            "password_env",
        ):
            found.add(value)

    raw = _read(path)
    walk(raw)
    return found | (set() if raw.get("models") else WELL_KNOWN_VARIABLES)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error


def _check_names(place: str, file: _File, providers: Mapping[str, Any], has_engine: bool) -> None:
    named = [("default", file.default), *((f"agents.{n}.provider", a.provider) for n, a in file.agents.items())]
    for where, name in named:
        if name is not None and name not in providers:
            known = ", ".join(sorted(providers))
            raise ConfigurationError(f"{place}: {where} = {name!r}: there is no such provider (known: {known})")
    for name, agent in file.agents.items():
        if agent.backend is not None and agent.provider is not None:
            raise ConfigurationError(f"{place}: agents.{name}: name a backend or a provider, not both")
    for name, table in providers.items():
        if isinstance(table, LocalTable) and not has_engine:
            raise ConfigurationError(
                f'{place}: providers.{name}: kind "local" means the engine of the same server, and this one has none; '
                'use kind = "url" with its address'
            )
    names = [webhook.name for webhook in file.webhooks]
    if len(names) != len(set(names)):
        raise ConfigurationError(f"{place}: webhooks: two of them have the same name")


class _Lookup:
    """Resolves references. Errors name the reference, never the value."""

    def __init__(self, place: str, environment: Mapping[str, str]) -> None:
        self._place, self._environment = place, environment

    def secret(self, where: str, env: str | None, file: Path | None) -> str | None:
        if env is not None:
            value = self._environment.get(env, "")
            if not value:
                raise ConfigurationError(f"{self._place}: {where}: the environment variable {env} is not set")
            return value
        if file is not None:
            try:
                value = file.expanduser().read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text"
                raise ConfigurationError(f"{self._place}: {where}: the file {file} cannot be read: {reason}") from error
            if not value:
                raise ConfigurationError(f"{self._place}: {where}: the file {file} is empty")
            return value
        return None

    def given(self, *names: str) -> str | None:
        """The first of these variables that is set."""
        return next((value for name in names if (value := self._environment.get(name))), None)

    def values(self, where: str, given: Mapping[str, str | ValueReference]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in given.items():
            if isinstance(value, ValueReference):
                found[name] = self.secret(f"{where}.{name}", value.env, value.file) or ""
            else:
                found[name] = value
        return found


def _models(place: str, tables: Mapping[str, ModelsTable], look_up: _Lookup) -> Sequence[ModelEndpoint]:
    """Without any in the file: those whose keys are in the server's environment."""
    if not tables:
        known = [(name, api, url, look_up.given(*names)) for name, api, url, names in WELL_KNOWN]
        return [ModelEndpoint(name=name, api=api, url=url, key=key) for name, api, url, key in known if key]
    for name, table in tables.items():
        for other in table.fallbacks:
            if other not in tables or tables[other].api is not table.api or other == name:
                raise ConfigurationError(
                    f"{place}: models.{name}.fallbacks: {other!r} is no other endpoint with api = {table.api.value!r}"
                )
    return [
        ModelEndpoint(
            name=name,
            api=table.api,
            url=table.url or ADDRESSES[table.api],
            key=look_up.secret(f"models.{name}", table.key_env, table.key_file),
            models=table.models,
            aliases=table.aliases,
            fallbacks=table.fallbacks,
        )
        for name, table in tables.items()
    ]


def _agent(name: str, table: AgentTable, look_up: _Lookup) -> AgentSettings:
    return AgentSettings(
        provider=table.provider,
        template=table.template,
        timeout_s=table.timeout,
        envs=look_up.values(f"agents.{name}.envs", table.envs),
        backend=table.backend,
        capabilities=frozenset(table.capabilities),
    )


def _limits(table: LimitsTable) -> SessionLimits:
    return SessionLimits(
        running=table.running,
        running_per_user=table.running_per_user,
        sessions_per_user=table.sessions_per_user,
        queue_length=table.queue_length,
        queue_timeout_s=table.queue_timeout,
    )


def _policy(table: PolicyTable) -> RetentionPolicy:
    return RetentionPolicy(
        idle_pause_s=table.idle_pause,
        max_age_s=table.max_age,
        on_timeout=table.on_timeout,
        keep_events_s=table.keep_events,
        keep_ended_s=table.keep_ended,
    )


def _task_policy(table: TasksTable) -> TaskPolicy:
    return TaskPolicy(
        running=table.running,
        running_per_user=table.running_per_user,
        depth=table.depth,
        children=table.children,
        keep_sandbox_s=table.keep_sandbox,
        protected=table.protected,
        max_push_mb=table.max_push_mb,
        max_artifact_mb=table.max_artifact_mb,
    )


def _webhook(table: WebhookTable, look_up: _Lookup) -> Webhook:
    secret = look_up.secret(f"webhooks.{table.name}", table.secret_env, table.secret_file)
    if secret is None:
        raise ConfigurationError(f"webhooks.{table.name}: the secret is missing; use secret_env or secret_file")
    return Webhook(
        name=table.name,
        url=table.url,
        secret=secret,
        types=frozenset(table.types) if table.types is not None else None,
        users=frozenset(table.users) if table.users is not None else None,
        private=table.private,
    )


_KNOWN = {
    "providers": KEYS,
    "backends": sorted(BackendTable.model_fields),
    "agents": sorted(AgentTable.model_fields),
    "limits": sorted(LimitsTable.model_fields),
    "policy": sorted(PolicyTable.model_fields),
    "tasks": sorted(TasksTable.model_fields),
    "webhooks": sorted(WebhookTable.model_fields),
    "console": sorted(ConsoleTable.model_fields),
    "github": sorted(GitHubTable.model_fields),
    "models": sorted(ModelsTable.model_fields),
    "prices": sorted(PriceTable.model_fields),
    "budgets": sorted(BudgetsTable.model_fields),
    "triggers": sorted(TriggerTable.model_fields),
    "browsers": sorted(BrowsersTable.model_fields),
}


def _problem(found: Mapping[str, Any]) -> str:
    """One problem in words. The value itself is not repeated: it may be a secret in the wrong place."""
    kinds = (*KINDS, "ValueReference", "str")  # pydantic's own steps on the way, not keys of the file
    steps = [str(step) for step in found["loc"]]
    place = ".".join(step for i, step in enumerate(steps) if not (i >= 2 and step in kinds)) or "the file"
    if found["type"] == "extra_forbidden":
        known = _KNOWN.get(steps[0], sorted(_File.model_fields)) if len(steps) > 1 else sorted(_File.model_fields)
        near = get_close_matches(steps[-1], known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"{place}: unknown key; {hint}"
    if found["type"] in ("union_tag_not_found", "union_tag_invalid"):
        return f"{place}: kind must be one of {', '.join(KINDS)}"
    text = str(found["msg"]).removeprefix("Value error, ")
    return f"{place}: {text[:1].lower()}{text[1:200]}"
