"""Puts the parts of tasks together: their records, their queue, and what works on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.config.configuration import Configuration
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.tasks import Attempt, Task
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.repositories import Repositories
from sandlot.platform.git.service import GitService
from sandlot.platform.models.gateway import ModelGateway
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.service import Sessions
from sandlot.platform.sessions.snapshots import SessionSnapshots
from sandlot.platform.sessions.state import SessionState
from sandlot.platform.store import Database, SqlTasks, SqlTaskSteps, SqlTimeline
from sandlot.platform.store.events import Route
from sandlot.platform.tasks import board
from sandlot.platform.tasks.artifacts import Artifacts
from sandlot.platform.tasks.attempt_record import AttemptParts
from sandlot.platform.tasks.board import TaskBoard
from sandlot.platform.tasks.boxes import BoxDefaults, TaskBoxes
from sandlot.platform.tasks.checks import CheckRunner
from sandlot.platform.tasks.forking import TaskForks
from sandlot.platform.tasks.keeping import TaskKeeper
from sandlot.platform.tasks.models import ROUTE, TaskModels
from sandlot.platform.tasks.publishing import Publishing
from sandlot.platform.tasks.queue import TaskQueue
from sandlot.platform.tasks.reporting import TaskReports
from sandlot.platform.tasks.runner import RunnerSettings, TaskRunner
from sandlot.platform.tasks.service import NOBODY, TaskDefaults, Tasks
from sandlot.platform.tasks.state import TaskState
from sandlot.platform.tasks.steps import BeforeStep, no_step
from sandlot.platform.tasks.timeline import Timeline
from sandlot.platform.tunnel.routes import RouteApp
from sandlot.platform.tunnel.service import Tunnels

MIB = 1 << 20


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
    session_state: SessionState
    snapshots: SessionSnapshots
    providers: ProviderRegistry
    board: TaskBoard
    tunnels: Tunnels
    git: GitService
    repositories: Repositories
    gateway: ModelGateway
    agents: Mapping[str, AgentDescription]
    clock: Clock
    data_dir: Path
    console: str = "/console"  # where people reach the console
    hook: BeforeStep = no_step


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTasks:
    service: Tasks
    timeline: Timeline
    artifacts: Artifacts
    keeper: TaskKeeper
    loops: Sequence[TaskLoop]
    closing: Sequence[TaskClosing]


def build_tasks(parts: TaskParts) -> BuiltTasks:
    timeline = Timeline(SqlTimeline(parts.database), parts.clock)
    state = TaskState(
        store=SqlTasks(parts.database, parts.route), events=parts.events, timeline=timeline, clock=parts.clock
    )
    config, steps = parts.configuration, SqlTaskSteps(parts.database)
    models = TaskModels(parts.gateway, config.agents)
    boxes = _boxes(parts, models)
    artifacts = Artifacts(
        root=parts.data_dir / "artifacts", state=state, boxes=boxes, max_bytes=config.tasks.max_artifact_mb * MIB
    )

    forks = TaskForks(state=state, snapshots=parts.snapshots)

    async def resolve(caller: Caller, name: str) -> str:
        return (await parts.repositories.get(caller, name)).default_branch

    async def discard(task: Task) -> None:
        for attempt in task.attempts:
            await boxes.delete(task, attempt.number)
        await forks.drop(task)
        await parts.git.discard(task.id)
        await artifacts.discard(task)

    async def find(task: Task) -> Repository:
        """As the one who asked may see it."""
        scopes = frozenset({Scope.ADMIN}) if task.user_id == NOBODY else frozenset({Scope.READ, Scope.WRITE})
        return await parts.repositories.get(Caller(user_id=task.user_id, scopes=scopes), task.spec.repository)

    service = Tasks(
        state=state,
        steps=steps,
        agents=parts.agents,
        defaults=TaskDefaults(
            policy=config.tasks,
            agent=config.task_agent,
            providers=frozenset(config.providers),
            secrets=frozenset(config.secrets),
        ),
        resolve=resolve,
        discard=discard,
    )
    runner = TaskRunner(
        parts=AttemptParts(
            state=state,
            boxes=boxes,
            git=parts.git,
            agents=parts.agents,
            checks=CheckRunner(shell=parts.agents["command"], timeline=timeline, clock=parts.clock),
            models=models,
            reports=TaskReports(
                git=parts.git,
                forge=parts.repositories.forge,
                link=lambda task: f"{parts.console}/tasks/{task.id}",
            ),
            board=parts.board,
        ),
        steps=steps,
        find=find,
        publishing=Publishing(
            state=state,
            git=parts.git,
            forge=parts.repositories.forge,
            agents=parts.agents,
            link=lambda task: f"{parts.console}/tasks/{task.id}",
        ),
        artifacts=artifacts,
        forks=forks,
        settings=RunnerSettings(policy=config.tasks, hook=parts.hook),
    )
    queue = TaskQueue(
        state=state,
        tasks=service,
        policy=config.tasks,
        work=runner.work,
        rest=runner.rest,
        is_alone=not parts.database.is_shared,
    )
    keeper = TaskKeeper(state=state, tasks=service, boxes=boxes, find=find, forge=parts.repositories.forge)
    boxes.make_room = keeper.make_room
    return BuiltTasks(
        service=service,
        timeline=timeline,
        artifacts=artifacts,
        keeper=keeper,
        loops=(queue, keeper),
        closing=(queue, timeline),
    )


def _boxes(parts: TaskParts, models: TaskModels) -> TaskBoxes:
    async def routes(task: Task, _: Attempt) -> Mapping[str, RouteApp]:
        return {
            "git": parts.git.handler(task.id),
            ROUTE: models.route(task),
            board.ROUTE: parts.board.route(task),
        }

    return TaskBoxes(
        sessions=parts.sessions,
        state=parts.session_state,
        tunnels=parts.tunnels,
        agents=parts.agents,
        defaults=BoxDefaults(
            settings=parts.configuration.agents,
            secrets=parts.configuration.secrets,
            secret_hosts=parts.configuration.secret_hosts,
        ),
        routes=routes,
        isolation=parts.providers.isolation,
    )
