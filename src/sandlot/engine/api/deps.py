"""What the API's routes are given: the engine's services, and who is asking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Path, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from sandlot.engine.builds import Builder
from sandlot.engine.builds.cleanup import Cleanup
from sandlot.engine.control.access import Access, Caller
from sandlot.engine.control.egress_history import EgressHistory
from sandlot.engine.control.plane import ControlPlane
from sandlot.engine.control.port_grants import PortGrants
from sandlot.engine.control.secrets import Secrets
from sandlot.engine.control.stock_templates import MissingTemplates, NoMissingTemplates
from sandlot.engine.control.usage_history import UsageHistory
from sandlot.engine.core.errors import NotFound
from sandlot.engine.core.ids import SANDBOX_ID, parse_sandbox_id
from sandlot.engine.core.ports import Clock, TemplateStore
from sandlot.program import SANDLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    control: ControlPlane
    access: Access
    secrets: Secrets
    templates: TemplateStore
    history: UsageHistory
    egress: EgressHistory
    clock: Clock
    version: str
    max_body_bytes: int = 16 << 20
    is_closed: bool = False  # metrics and the description of the API want a key, too
    domain: str | None = None  # what clients append to `{port}-{id}.`, with a port if it is not 443
    metrics: Callable[[], Awaitable[bytes]]  # Prometheus text
    builder: Builder | None = None  # None: this server builds nothing
    cleanup: Cleanup | None = None
    grants: PortGrants = field(default_factory=PortGrants)
    stock: MissingTemplates = NoMissingTemplates()  # noqa: RUF009
    operator: str | None = None  # the team that may have stock templates built


def given(request: Request) -> Deps:
    return cast(Deps, request.app.state.deps)


Given = Annotated[Deps, Depends(given)]

_api_key = APIKeyHeader(name="X-API-KEY", auto_error=False, description=f"A team's key: `{SANDLOT} key create`.")
_bearer = HTTPBearer(auto_error=False, description="The same key, for clients that send it this way.")


def secret_of(
    key: Annotated[str | None, Security(_api_key)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> str | None:
    return key or (bearer.credentials if bearer else None)


Secret = Annotated[str | None, Depends(secret_of)]


async def authenticate(deps: Given, secret: Secret) -> Caller:
    return await deps.access.authenticate(secret)


Asking = Annotated[Caller, Depends(authenticate)]


def sandbox_id(sandboxID: Annotated[str, Path(description="The sandbox's id.")]) -> str:
    """The id in a path, also in the older form `{id}-{clientID}`. What cannot be an id is not found."""
    found = parse_sandbox_id(sandboxID)
    if not SANDBOX_ID.fullmatch(found):
        raise NotFound(f"sandbox {sandboxID[:80]!r} was not found")
    return found


SandboxId = Annotated[str, Depends(sandbox_id)]
