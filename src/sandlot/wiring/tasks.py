"""Puts the parts of tasks together: their records, their queue, and what works on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.config.configuration import Configuration
from sandlot.platform.core.model import Caller
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.tasks import Task
from sandlot.platform.events.log import EventLog
from sandlot.platform.sessions.service import Sessions
from sandlot.platform.store import Database, SqlTasks, SqlTaskSteps, SqlTimeline
from sandlot.platform.store.events import Route
from sandlot.platform.tasks.service import TaskDefaults, Tasks
from sandlot.platform.tasks.state import TaskState
from sandlot.platform.tasks.timeline import Timeline


class TaskLoop(Protocol):
    async def run(self) -> None: ...


class TaskClosing(Protocol):
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskParts:
    """What tasks stand on."""

    configuration: Configuration
    database: Database
    route: Route
    events: EventLog
    sessions: Sessions
    agents: Mapping[str, AgentDescription]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTasks:
    service: Tasks
    timeline: Timeline
    loops: Sequence[TaskLoop]
    closing: Sequence[TaskClosing]


def build_tasks(parts: TaskParts) -> BuiltTasks:
    timeline = Timeline(SqlTimeline(parts.database), parts.clock)
    state = TaskState(
        store=SqlTasks(parts.database, parts.route), events=parts.events, timeline=timeline, clock=parts.clock
    )
    config = parts.configuration
    defaults = TaskDefaults(
        policy=config.tasks,
        agent=config.task_agent,
        providers=frozenset(config.providers),
        secrets=frozenset(config.secrets),
    )

    async def resolve(_: Caller, name: str) -> str:
        return "main"

    async def discard(_: Task) -> None:
        pass

    service = Tasks(
        state=state,
        steps=SqlTaskSteps(parts.database),
        agents=parts.agents,
        defaults=defaults,
        resolve=resolve,
        discard=discard,
    )
    return BuiltTasks(service=service, timeline=timeline, loops=(), closing=(timeline,))
