"""The route that lists the coding agents this platform knows how to start."""

from __future__ import annotations

from fastapi import APIRouter

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.api.deps import Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.responses import AgentInfo, AgentList

router = APIRouter(prefix="/platform", tags=["agents"], responses=PROBLEMS)


@router.get("/agents")
async def agents(deps: Given, caller: Reader) -> AgentList:
    """The agents that work on tasks or in sandboxes, and what they need."""
    return AgentList(agents=[_info(agent) for agent in deps.agents.values()])


def _info(agent: AgentDescription) -> AgentInfo:
    task = agent.task
    return AgentInfo(
        id=agent.id,
        title=agent.title,
        program=agent.program,
        template=task.template if task is not None else None,
        env=list(task.env) if task is not None else [],
        resumes=task is not None and task.resume is not None,
    )
