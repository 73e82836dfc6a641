"""The routes that list what can be chosen: coding agents, and backends for their sandboxes."""

from __future__ import annotations

from fastapi import APIRouter

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.api.deps import Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.responses import AgentInfo, AgentList, BackendInfo, BackendList

router = APIRouter(prefix="/platform", tags=["agents"], responses=PROBLEMS)


@router.get("/agents")
async def agents(deps: Given, caller: Reader) -> AgentList:
    """The agents that work on tasks or in sandboxes, and what they need."""
    return AgentList(agents=[_info(agent) for agent in deps.agents.values()])


@router.get("/backends")
async def backends(deps: Given, caller: Reader) -> BackendList:
    """The kinds of sandboxes that can be asked for, and what each can do."""
    return BackendList(
        backends=[
            BackendInfo(
                name=backend.name,
                kind=backend.kind,
                provider=backend.provider,
                template=backend.template,
                capabilities=sorted(backend.capabilities),
                fallback=list(backend.fallback),
                problem=problem,
            )
            for backend, problem in deps.sessions.backends()
        ]
    )


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
