"""Where a session starts: the backend that its request or its type of agent names, and those that stand in for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sandlot.platform.core.backends import Backend, Capability, require_capabilities
from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.model import AgentSettings, Session, StartOption
from sandlot.platform.core.ports import Provider

Problem = Callable[[str], str | None]  # why a provider cannot be used now


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a request says about where it starts."""

    backend: str | None = None
    provider: str | None = None
    template: str | None = None
    capabilities: frozenset[Capability] = frozenset()


def place(
    wish: Wish,
    agent: AgentSettings,
    *,
    backends: Mapping[str, Backend],
    providers: Mapping[str, Provider],
    default: str,
    problem: Problem,
) -> tuple[StartOption, ...]:
    """Where it may start, the best first. Raises `InvalidRequest`.

    A request that names a template has no fallback: a template of one provider is nothing to another.
    """
    if wish.backend is not None and wish.provider is not None:
        raise InvalidRequest("name a backend or a provider, not both: a backend says which provider it is of")
    name = wish.backend or (agent.backend if wish.provider is None else None)
    wanted = wish.capabilities | (agent.capabilities if name is not None else frozenset())
    if name is None:
        provider = wish.provider or agent.provider or default
        if provider not in providers:
            known = ", ".join(sorted(providers))
            raise InvalidRequest(f"provider {provider!r} is not in the configuration (known: {known})")
        if wanted:
            require_capabilities(_of_provider(provider, wish, backends), wanted, backends.values())
        return (
            StartOption(provider=provider, template=wish.template or agent.template or providers[provider].template),
        )
    if name not in backends:
        raise InvalidRequest(f"backend {name!r} is not in the configuration (known: {', '.join(sorted(backends))})")
    require_capabilities(backends[name], wanted, backends.values())
    template = wish.template or agent.template
    chain = [backends[name]] if template else _chain(backends[name], backends, wanted)
    options = [
        StartOption(
            provider=one.provider,
            template=template or one.template or providers[one.provider].template,
            backend=one.name,
        )
        for one in chain
    ]
    first = next((option for option in options if problem(option.provider) is None), options[0])
    return (first, *(option for option in options if option is not first))


def _of_provider(provider: str, wish: Wish, backends: Mapping[str, Backend]) -> Backend:
    """What a request that names no backend gets: the one with this template, or the plainest of the provider."""
    own = [backend for backend in backends.values() if backend.provider == provider]
    named = [backend for backend in own if wish.template is not None and backend.template == wish.template]
    return (named or sorted(own, key=lambda backend: len(backend.capabilities)))[0]


def _chain(first: Backend, backends: Mapping[str, Backend], wanted: Collection[Capability]) -> list[Backend]:
    """It and what stands in for it, as far as they have what is wanted."""
    return [first, *(backends[name] for name in first.fallback if not backends[name].lacks(wanted))]


def moved_on(session: Session, problem: Problem) -> dict[str, Any] | None:
    """What changes if a session starts elsewhere; None if there is nowhere to go, or it has a sandbox already."""
    if session.provider_sandbox_id is not None:
        return None
    chosen = next((option for option in session.alternatives if problem(option.provider) is None), None)
    if chosen is None:
        return None
    here = StartOption(provider=session.provider, template=session.template_id, backend=session.backend)
    return {
        "provider": chosen.provider,
        "template_id": chosen.template,
        "backend": chosen.backend,
        "alternatives": (*(option for option in session.alternatives if option != chosen), here),
    }
