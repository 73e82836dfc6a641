"""A request for a sandbox: what a caller may ask for, and the rules between its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import NetworkPolicy, OnTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSandbox:
    """What a caller asks for. Values were validated at the door; rules that span several of them are checked here."""

    template: str  # id or name
    timeout_s: int = 300
    metadata: Mapping[str, str] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    secure: bool = True
    on_timeout: OnTimeout = OnTimeout.KILL
    auto_resume: bool = False
    pause_memory: bool = True
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    max_sandboxes: int = 100
    max_timeout_s: int = 24 * 3600


def check_request(new: NewSandbox, limits: SandboxLimits) -> None:
    """Raise `InvalidRequest` for what cannot be asked of this server."""
    if new.timeout_s <= 0:
        raise InvalidRequest(f"could not create a sandbox: timeout must be above 0 seconds, not {new.timeout_s}")
    check_timeout(new.timeout_s, limits)
    if not new.pause_memory and (new.on_timeout is not OnTimeout.PAUSE or new.auto_resume):
        raise InvalidRequest("autoPauseMemory=false needs autoPause, and cannot go with autoResume")
    if not new.secure and not new.network.allow_public_traffic:
        raise InvalidRequest("allowPublicTraffic=false needs a secured sandbox; create it with secure=true")


def check_timeout(timeout_s: int, limits: SandboxLimits) -> None:
    if timeout_s > limits.max_timeout_s:
        hours = limits.max_timeout_s / 3600
        raise InvalidRequest(
            f"timeout of {timeout_s} seconds is above the limit of this server, {hours:g} hours "
            f"({limits.max_timeout_s} seconds)"
        )


def request_digest(new: NewSandbox) -> str:
    request = {
        **asdict(replace(new, metadata={}, env_vars={})),
        "metadata": dict(new.metadata),
        "env": dict(new.env_vars),
    }
    request.pop("idempotency_key")
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
