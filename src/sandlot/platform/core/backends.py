"""Backends: what kinds of sandboxes there are to choose from, and what each can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sandlot.platform.core.errors import InvalidRequest


class Capability(StrEnum):
    """Something that a sandbox can be asked for."""

    COMMANDS = "commands"
    FILES = "files"
    TERMINALS = "terminals"
    PORTS = "ports"
    PAUSE = "pause"
    SNAPSHOTS = "snapshots"  # and forks
    NETWORK_RULES = "network-rules"  # single hosts that may be reached
    BROWSER = "browser"
    DESKTOP = "desktop"


class BackendKind(StrEnum):
    SANDBOX = "sandbox"
    DESKTOP = "desktop"
    BROWSER = "browser"
    DOCKER = "docker"


_EVERYWHERE = frozenset(
    {Capability.COMMANDS, Capability.FILES, Capability.TERMINALS, Capability.PORTS, Capability.PAUSE}
)
_SANDBOX = _EVERYWHERE | {Capability.SNAPSHOTS, Capability.NETWORK_RULES}
OFFERS: Mapping[BackendKind, frozenset[Capability]] = {
    BackendKind.SANDBOX: _SANDBOX,
    BackendKind.DESKTOP: _SANDBOX | {Capability.DESKTOP, Capability.BROWSER},
    BackendKind.BROWSER: _SANDBOX | {Capability.BROWSER},
    BackendKind.DOCKER: _EVERYWHERE,
}
# The template of each kind, unless the configuration names another; None: the provider's own.
TEMPLATES: Mapping[BackendKind, str | None] = {
    BackendKind.SANDBOX: None,
    BackendKind.DESKTOP: "desktop",
    BackendKind.BROWSER: "browser",
    BackendKind.DOCKER: None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A kind of sandbox under a name: where it comes from, what it begins with, what it can do, and what stands in for it."""

    name: str
    kind: BackendKind
    provider: str
    template: str | None
    capabilities: frozenset[Capability]
    fallback: tuple[str, ...] = ()

    def lacks(self, wanted: Collection[Capability]) -> list[Capability]:
        return sorted(set(wanted) - self.capabilities)


def require_capabilities(backend: Backend, wanted: Collection[Capability], others: Collection[Backend]) -> None:
    """Raises `InvalidRequest` that says which backends have what this one lacks."""
    missing = backend.lacks(wanted)
    if missing:
        able = sorted(other.name for other in others if not other.lacks(wanted))
        instead = f"choose one that has all of it: {', '.join(able)}" if able else "no backend here has all of it"
        raise InvalidRequest(f"backend {backend.name!r} has no {' and no '.join(missing)}; {instead}")
