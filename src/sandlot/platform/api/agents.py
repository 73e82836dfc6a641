"""The route that lists the coding agents this platform knows how to start."""

from __future__ import annotations

from fastapi import APIRouter

from sandlot.platform.api.deps import Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.responses import AgentInfo, AgentList

router = APIRouter(prefix="/platform", tags=["agents"], responses=PROBLEMS)


@router.get("/agents")
async def agents(deps: Given, caller: Reader) -> AgentList:
    """The agents of the template `agent`, and what they are called."""
    known = deps.agents.values()
    return AgentList(agents=[AgentInfo(id=agent.id, title=agent.title, program=agent.program) for agent in known])
