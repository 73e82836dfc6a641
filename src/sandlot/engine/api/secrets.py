"""The secret routes: values go in and never come out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from sandlot.engine.api.deps import Asking, Given
from sandlot.engine.api.errors import problems
from sandlot.engine.api.requests import NewSecret, SecretUpdate
from sandlot.engine.core.model import Secret

router = APIRouter(tags=["secrets"])
PAGE = 100
Reference = Annotated[str, Path(alias="secretID", description="The secret's id or name.", max_length=512)]


class SecretOut(BaseModel):
    """All that is told of a secret."""

    secretID: str
    name: str
    currentVersion: int
    metadata: dict[str, str]
    createdAt: datetime
    updatedAt: datetime
    lastUsedAt: datetime | None = Field(None, description="Sandlot's own: when a request last left with it.")

    @classmethod
    def of(cls, secret: Secret) -> Self:
        return cls(
            secretID=secret.id,
            name=secret.name,
            currentVersion=secret.version,
            metadata=dict(secret.metadata),
            createdAt=secret.created_at.astimezone(UTC),
            updatedAt=secret.updated_at.astimezone(UTC),
            lastUsedAt=secret.last_used_at.astimezone(UTC) if secret.last_used_at else None,
        )


@router.post("/secrets", status_code=201, responses=problems(409), response_model_exclude_none=True)
async def create(body: NewSecret, deps: Given, caller: Asking) -> SecretOut:
    """Keep a value under a name. Network rules put it into requests that leave sandboxes."""
    made = await deps.secrets.create(caller.team.id, body.name, body.value, body.metadata or {})
    return SecretOut.of(made)


@router.get("/secrets", responses=problems(), response_model_exclude_none=True)
async def list_page(
    deps: Given,
    caller: Asking,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    nextToken: Annotated[str | None, Query(max_length=1024, description="`x-next-token` of the page before.")] = None,
) -> list[SecretOut]:
    """The team's secrets, oldest first, without their values."""
    found, token = await deps.secrets.page(caller.team.id, limit=limit, token=nextToken or None)
    if token is not None:
        response.headers["X-Next-Token"] = token
    return [SecretOut.of(secret) for secret in found]


@router.get("/secrets/{secretID:path}", responses=problems(404), response_model_exclude_none=True)
async def get(ref: Reference, deps: Given, caller: Asking) -> SecretOut:
    """What is known of a secret; its value is not told."""
    return SecretOut.of(await deps.secrets.get(caller.team.id, ref))


@router.post("/secrets/{secretID:path}", responses=problems(404, 409), response_model_exclude_none=True)
async def update(ref: Reference, body: SecretUpdate, deps: Given, caller: Asking) -> SecretOut:
    """Give a secret a new value. Sandboxes that run use it from now on."""
    return SecretOut.of(await deps.secrets.update(caller.team.id, ref, body.value, body.metadata))


@router.delete("/secrets/{secretID:path}", status_code=204, responses=problems(404))
async def delete(ref: Reference, deps: Given, caller: Asking) -> None:
    """Delete a secret with all its versions. Requests that need it are refused from now on."""
    await deps.secrets.delete(caller.team.id, ref)
