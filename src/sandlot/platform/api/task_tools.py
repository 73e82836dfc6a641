"""The MCP tools about tasks: agents hand out work on repositories, watch it, and talk to those who do it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field
from starlette.types import ASGIApp

from sandlot.platform.api.deps import TASK, Deps
from sandlot.platform.api.tool_callers import asking
from sandlot.platform.core.errors import InvalidRequest, NotFound
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import TASK_RESTING, Entry, EntryKind, Task, TaskLimits, TaskNetwork, TaskStatus
from sandlot.platform.tasks.service import TaskRequest
from sandlot.platform.tasks.views import task_json

INSTRUCTIONS = """`task_create` hands out work on a repository: another agent does it in a sandbox of its own, and a pull request comes out.
`task_show` with `wait` says when it is over. `parent` puts a task below another one, whose budget it shares."""
TOLD = frozenset({EntryKind.MESSAGE, EntryKind.QUESTION, EntryKind.ERROR, EntryKind.RESULT, EntryKind.STATE})
MAX_ENTRIES, MAX_LISTED, MAX_TEXT, MAX_OUTPUT, MAX_WAIT_S = 50, 100, 2000, 4000, 600.0
SHOWN = (
    "id", "title", "state", "reason", "repository", "base", "branch", "agent", "parent", "blocked_by", "labels", "pull_request",
    "changes", "cost_usd", "last_action", "created_at", "ended_at",
)  # fmt: skip
Id = Annotated[str, Field(description="The task.", min_length=1, max_length=40)]
Text = Annotated[str, Field(min_length=1, max_length=100_000)]
Short = Annotated[str, Field(min_length=1, max_length=200)]
State = Literal["todo", "queued", "working", "needs_you", "review", "done", "failed", "cancelled"]


def build(deps: Deps) -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
    """For agents of tasks: these tools and no others. Returns the application, and what has to be open while it serves."""
    server: MCPServer[Any] = MCPServer(
        "sandlot-tasks", instructions=INSTRUCTIONS, version=deps.version, log_level="WARNING"
    )
    add_tasks(server, deps)
    app = server.streamable_http_app(
        streamable_http_path="/mcp",
        stateless_http=True,
        json_response=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return app, server.session_manager.run()


def add_tasks(server: MCPServer[Any], deps: Deps) -> None:
    _add_create(server, deps)
    _add_looking(server, deps)
    _add_changing(server, deps)


def _add_create(server: MCPServer[Any], deps: Deps) -> None:
    @server.tool()
    async def task_create(
        context: Context[Any, Any],
        repository: Short,
        prompt: Annotated[Text, Field(description="What is to be done, with all that the agent needs to know.")],
        title: Short | None = None,
        agent: Annotated[Short | None, Field(description="Who does it. Left out: the usual one.")] = None,
        command: Annotated[
            Text | None, Field(description="For the agent `command`: a program in place of a model.")
        ] = None,
        base: Annotated[Short | None, Field(description="The branch to begin at.")] = None,
        checks: Annotated[
            tuple[Text, ...], Field(max_length=20, description="It is done when these commands end with 0.")
        ] = (),
        labels: Annotated[tuple[Short, ...], Field(max_length=20)] = (),
        blocked_by: Annotated[
            tuple[Id, ...], Field(max_length=50, description="It begins when these tasks are done.")
        ] = (),
        parent: Annotated[Id | None, Field(description="The task that it is a part of.")] = None,
        cost_usd: Annotated[float | None, Field(gt=0, description="The most it may spend.")] = None,
        seconds: Annotated[int, Field(ge=1, le=82_800, description="The most time it may take.")] = 3600,
        internet: bool = True,
        start: Annotated[bool, Field(description="False: it is only noted.")] = True,
    ) -> dict[str, Any]:
        """Hand out work on a repository. It is done by an agent in a sandbox of its own, and ends in a pull request."""
        with asking(context, Scope.WRITE) as (caller, user_id):
            await deps.repositories.get(caller, repository)
            own = await _own(context, deps, caller)
            if own is not None and repository != own.spec.repository:
                raise InvalidRequest(f"your tasks are about repository {own.spec.repository!r}, as your own is")
            request = TaskRequest(
                repository=repository,
                prompt=prompt,
                user_id=user_id,
                title=title,
                agent=agent,
                command=command,
                base=base,
                checks=checks,
                labels=labels,
                blocked_by=blocked_by,
                parent=_parent(context, parent),
                limits=TaskLimits(seconds=seconds, cost_usd=cost_usd),
                network=_network(own, internet),
                start=start,
            )
            return _shown(await deps.tasks.create(caller, request))


def _add_looking(server: MCPServer[Any], deps: Deps) -> None:
    @server.tool()
    async def task_list(
        context: Context[Any, Any],
        state: State | None = None,
        repository: Short | None = None,
        parent: Annotated[Id | None, Field(description="Those that are parts of this task.")] = None,
        text: Annotated[Short | None, Field(description="Words in the title or the prompt.")] = None,
        limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 20,
    ) -> dict[str, Any]:
        """Your tasks, the newest first."""
        with asking(context, Scope.READ) as (caller, _):
            own = await _own(context, deps, caller)
            wanted = TaskQuery(
                statuses=frozenset({TaskStatus(state)}) if state else None,
                repository=repository,
                parent=parent if own is None else own.id,
                text=text,
                limit=limit,
            )
            return {"tasks": [_shown(task) for task in await deps.tasks.list(caller, wanted)]}

    @server.tool()
    async def task_show(
        context: Context[Any, Any],
        id: Id,
        wait: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for its end.")] = 0,
        entries: Annotated[
            int, Field(ge=0, le=MAX_ENTRIES, description="How many of the last things said there.")
        ] = 10,
    ) -> dict[str, Any]:
        """One task: its state, what its checks printed, and what its agent said last."""
        with asking(context, Scope.READ) as (caller, _):
            await _check_below(context, deps, caller, id)
            task = await _rested(deps, caller, id, wait)
            checks = [{**check, "output": _end(check["output"], MAX_OUTPUT)} for check in task_json(task)["checks"]]
            return {
                **_shown(task),
                "prompt": _end(task.spec.prompt, MAX_OUTPUT),
                "checks": checks,
                "said": await _said(deps, id, entries),
            }


def _add_changing(server: MCPServer[Any], deps: Deps) -> None:
    @server.tool()
    async def task_message(
        context: Context[Any, Any],
        id: Id,
        text: Text,
        interrupt: Annotated[bool, Field(description="At once; otherwise after the agent's turn.")] = False,
    ) -> dict[str, Any]:
        """Say something to a task's agent: an answer, a correction, what is missing. A task that rests goes on."""
        with asking(context, Scope.WRITE) as (caller, _):
            await _check_below(context, deps, caller, id)
            return _shown(await deps.tasks.message(caller, id, text, interrupt=interrupt))

    @server.tool()
    async def task_stop(context: Context[Any, Any], id: Id) -> dict[str, Any]:
        """End a task's agent, and cancel the task."""
        with asking(context, Scope.WRITE) as (caller, _):
            await _check_below(context, deps, caller, id)
            return _shown(await deps.tasks.stop(caller, id))


def _parent(context: Context[Any, Any], given: str | None) -> str | None:
    """What the agent of a task hands out is a part of that task, whatever it says."""
    own = _own_id(context)
    if own is not None and given not in (None, own):
        raise InvalidRequest(f"your tasks are parts of task {own!r}; leave parent out")
    return own or given


def _own_id(context: Context[Any, Any]) -> str | None:
    request: Any = context.request_context.request
    own: str | None = request.scope.get(TASK)
    return own


async def _own(context: Context[Any, Any], deps: Deps, caller: Caller) -> Task | None:
    """The task whose agent is asking, if one is."""
    own = _own_id(context)
    return await deps.tasks.find(caller, own) if own is not None else None


async def _check_below(context: Context[Any, Any], deps: Deps, caller: Caller, id: str) -> None:
    """An agent of a task reaches those that it handed out, and no others of its user. Raises `NotFound`."""
    own = _own_id(context)
    if own is not None and (await deps.tasks.find(caller, id)).spec.parent != own:
        raise NotFound(f"task {id!r} was not found among those that you handed out")


def _network(own: Task | None, internet: bool) -> TaskNetwork:
    """What an agent hands out reaches no more than it does itself."""
    return own.spec.network if own is not None and internet else TaskNetwork(internet=internet)


async def _rested(deps: Deps, caller: Caller, id: str, wait_s: float) -> Task:
    task = await deps.tasks.find(caller, id)
    if wait_s and task.status not in TASK_RESTING:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                async for _ in deps.timeline.read(id, 1 << 53, 5.0):  # behind every entry: woken by changes only
                    task = await deps.tasks.find(caller, id)
                    if task.status in TASK_RESTING:
                        break
    return task


async def _said(deps: Deps, id: str, count: int) -> list[dict[str, Any]]:
    last: deque[Entry] = deque(maxlen=count)
    place = 0
    while count and (page := await deps.timeline.page(id, place, 500, TOLD)):
        place = page[-1].seq
        last.extend(page)
    return [
        {"kind": entry.kind.value, "text": _end(entry.text or str(entry.data.get("state", "")), MAX_TEXT)}
        for entry in last
    ]


def _shown(task: Task) -> dict[str, Any]:
    record = task_json(task, brief=True)
    return {name: record[name] for name in SHOWN}


def _end(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"… {text[-limit:]}"
