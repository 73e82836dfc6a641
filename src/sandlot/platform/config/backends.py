"""The tables of backends in the configuration file, and the backends that are there without any."""

from __future__ import annotations

from collections.abc import Mapping

from sandlot.platform.config.providers import AnyProviderTable, ConfigTable, DockerTable
from sandlot.platform.core.backends import OFFERS, TEMPLATES, Backend, BackendKind, Capability
from sandlot.platform.core.errors import ConfigurationError


class BackendTable(ConfigTable):
    """`capabilities` can only be fewer than its kind has."""

    kind: BackendKind | None = None
    provider: str | None = None
    template: str | None = None
    capabilities: tuple[Capability, ...] | None = None
    fallback: tuple[str, ...] = ()


def backends(
    place: str, tables: Mapping[str, BackendTable], providers: Mapping[str, AnyProviderTable], default: str
) -> dict[str, Backend]:
    """Those of the file, and one for each kind that the providers can give. Raises `ConfigurationError`."""
    found = {
        name: _backend(f"{place}: backends.{name}", name, table, providers, default) for name, table in tables.items()
    }
    for kind in BackendKind:
        if kind.value not in found and (provider := _usual_provider(kind, providers, default)) is not None:
            found[kind.value] = _made(kind.value, kind, provider, BackendTable())
    for name, backend in found.items():
        for other in backend.fallback:
            if other not in found or other == name:
                known = ", ".join(sorted(set(found) - {name}))
                raise ConfigurationError(
                    f"{place}: backends.{name}.fallback: {other!r} is no other backend (known: {known})"
                )
    return found


def _backend(
    where: str, name: str, table: BackendTable, providers: Mapping[str, AnyProviderTable], default: str
) -> Backend:
    kind = table.kind or (BackendKind(name) if name in set(BackendKind) else None)
    if kind is None:
        raise ConfigurationError(f"{where}: say its kind: {', '.join(BackendKind)}")
    provider = table.provider or _usual_provider(kind, providers, default)
    if provider is None:
        raise ConfigurationError(f'{where}: there is no provider for it; add one with kind = "docker", or name another')
    if provider not in providers:
        known = ", ".join(sorted(providers))
        raise ConfigurationError(f"{where}.provider = {provider!r}: there is no such provider (known: {known})")
    is_docker = isinstance(providers[provider], DockerTable)
    if is_docker != (kind is BackendKind.DOCKER):
        right = "docker" if is_docker else "sandbox, desktop or browser"
        raise ConfigurationError(f"{where}: provider {provider!r} gives backends of kind {right}, not {kind.value}")
    beyond = sorted(set(table.capabilities or ()) - OFFERS[kind])
    if beyond:
        raise ConfigurationError(
            f"{where}.capabilities: backends of kind {kind.value} have no {', '.join(beyond)}; "
            f"they have {', '.join(sorted(OFFERS[kind]))}"
        )
    return _made(name, kind, provider, table)


def _made(name: str, kind: BackendKind, provider: str, table: BackendTable) -> Backend:
    return Backend(
        name=name,
        kind=kind,
        provider=provider,
        template=table.template or TEMPLATES[kind],
        capabilities=OFFERS[kind] if table.capabilities is None else frozenset(table.capabilities),
        fallback=table.fallback,
    )


def _usual_provider(kind: BackendKind, providers: Mapping[str, AnyProviderTable], default: str) -> str | None:
    """The default one if it is of the right sort, else the first that is."""
    able = [name for name, table in providers.items() if isinstance(table, DockerTable) is (kind is BackendKind.DOCKER)]
    return default if default in able else next(iter(able), None)


def check_agent(
    place: str, name: str, backend: str | None, wanted: tuple[Capability, ...], known: Mapping[str, Backend]
) -> None:
    """Raises `ConfigurationError` unless the agent's backend is there, and has what the agent needs."""
    if backend is None:
        if wanted:
            raise ConfigurationError(f"{place}: agents.{name}.capabilities: name the backend that is to have them")
        return
    if backend not in known:
        raise ConfigurationError(
            f"{place}: agents.{name}.backend = {backend!r}: there is no such backend (known: {', '.join(sorted(known))})"
        )
    missing = known[backend].lacks(wanted)
    if missing:
        raise ConfigurationError(
            f"{place}: agents.{name}: backend {backend!r} has no {', '.join(missing)}; "
            f"it has {', '.join(sorted(known[backend].capabilities))}"
        )
