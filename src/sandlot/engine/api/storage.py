"""The routes about disk: what templates take up, and making room. They are Sandlot's own."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from sandlot.engine.api.deps import Asking, Deps, Given
from sandlot.engine.api.errors import problems
from sandlot.engine.builds.cleanup import Cleanup
from sandlot.engine.core.errors import InvalidRequest

router = APIRouter(tags=["templates"])


class UsageOut(BaseModel):
    templateID: str
    name: str
    bytes: int
    ownBytes: int


class Pruned(BaseModel):
    layers: int
    bytes: int


def _housekeeping(deps: Deps) -> Cleanup:
    if deps.cleanup is None:
        raise InvalidRequest("this server does not build templates, so there is nothing to keep in order")
    return deps.cleanup


@router.get("/templates/usage", responses=problems())
async def usage(deps: Given, caller: Asking) -> list[UsageOut]:
    """What each template takes up on disk: in all, and what deleting it would free."""
    shares = await _housekeeping(deps).shares(caller.team.id)
    return [
        UsageOut(templateID=each.template.id, name=each.template.name, bytes=each.bytes, ownBytes=each.own_bytes)
        for each in shares
    ]


@router.post("/templates/prune", responses=problems())
async def prune(deps: Given, caller: Asking) -> Pruned:
    """Remove layers that no template, sandbox or recent build needs."""
    removed = await _housekeeping(deps).prune()
    return Pruned(layers=len(removed), bytes=sum(removed.values()))
