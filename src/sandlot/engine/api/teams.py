"""The team routes: which teams the caller's key opens."""

from __future__ import annotations

from fastapi import APIRouter

from sandlot.engine.api.deps import Asking, Secret
from sandlot.engine.api.errors import problems
from sandlot.engine.api.responses import TeamOut

router = APIRouter(tags=["teams"])


@router.get("/teams", responses=problems())
async def list_teams(caller: Asking, secret: Secret) -> list[TeamOut]:
    """The caller's team: a key belongs to exactly one."""
    return [TeamOut(teamID=caller.team.id, name=caller.team.name, apiKey=secret or "", isDefault=True)]
