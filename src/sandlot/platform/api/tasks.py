"""The routes of tasks: create, list, change, follow, and what they brought."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import FileResponse

from sandlot.platform.api.cursors import cursor_of, parse_cursor, place_of
from sandlot.platform.api.deps import Deps, Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.streams import Stream
from sandlot.platform.api.task_bodies import (
    ArtifactList,
    AttemptList,
    CreateTask,
    DiffInfo,
    EditTask,
    StepList,
    TaskInfo,
    TaskMessage,
    TaskPage,
    TaskReview,
    TimelinePage,
)
from sandlot.platform.core.errors import InvalidRequest, NotFound
from sandlot.platform.core.model import Caller
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import EntryKind, Task, TaskStatus
from sandlot.platform.forges.issues import read_issue
from sandlot.platform.git.records import TaskDiff
from sandlot.platform.tasks.service import TaskRequest
from sandlot.platform.tasks.views import attempt_json, entry_json, step_json, task_json

router = APIRouter(prefix="/tasks", tags=["tasks"], responses=PROBLEMS)
RETRY_MS = 1000
SSE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
Words = Annotated[str | None, Query(max_length=500)]
AttemptNumber = Annotated[int | None, Query(ge=1, le=8, description="Which of its attempts; default: the chosen one.")]


@router.post("", status_code=201, response_model=TaskInfo)
async def create(
    body: CreateTask,
    deps: Given,
    caller: Writer,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Describe work on a repository, or name an issue. It is queued at once, unless `start` is false or another task blocks it."""
    plain: dict[str, Any] = {name: getattr(body, name) for name in _PLAIN} | await _asked(deps, caller, body)
    listed: dict[str, Any] = {name: tuple(getattr(body, name)) for name in _LISTED}
    request = TaskRequest(
        **plain,
        **listed,
        limits=body.limits.record(),
        network=body.network.record(),
        idempotency_key=idempotency_key,
    )
    return task_json(await deps.tasks.create(caller, request))


async def _asked(deps: Deps, caller: Caller, body: CreateTask) -> dict[str, str | None]:
    """What is to be done, and where: said, or read from an issue."""
    if body.repository is not None and body.prompt is not None:
        return {"repository": body.repository, "prompt": body.prompt, "title": body.title}
    if body.issue is None:
        raise InvalidRequest("a task needs a repository and a prompt, or an issue that has them")
    found = await read_issue(deps.repositories, caller, body.issue, body.repository)
    title = body.title or (found.title if body.prompt is None else None)
    return {"repository": found.repository, "prompt": body.prompt or found.prompt, "title": title}


_PLAIN = (
    "user_id", "base", "agent", "model", "template", "provider", "command", "parent",
    "attempts", "issue", "draft_on_failure", "start",
)  # fmt: skip
_LISTED = ("checks", "secrets", "labels", "blocked_by", "agents", "artifacts", "reviewers")


@router.get("", response_model=TaskPage)
async def list_tasks(
    deps: Given,
    caller: Reader,
    state: Annotated[str | None, Query(max_length=200, description="One or more, separated by commas.")] = None,
    repository: Words = None,
    label: Words = None,
    q: Annotated[str | None, Query(max_length=500, description="Words in the title or the prompt.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Words = None,
) -> dict[str, Any]:
    """Tasks, newest first, and the place in the event log from which to follow what happens to them."""
    cursor = await deps.events.last_id()  # before the rows: what happens meanwhile comes again as an event
    wanted = TaskQuery(
        statuses=_statuses(state),
        repository=repository,
        label=label,
        text=q,
        limit=limit,
        after=parse_cursor(after) if after else None,
    )
    found = await deps.tasks.list(caller, wanted)
    more = cursor_of(found[-1].created_at, found[-1].id) if len(found) == limit else None
    return {"tasks": [task_json(task) for task in found], "next": more, "cursor": cursor}


@router.get("/{id}", response_model=TaskInfo)
async def show(id: str, deps: Given, caller: Reader) -> dict[str, Any]:
    """One task."""
    return task_json(await deps.tasks.find(caller, id))


@router.patch("/{id}", response_model=TaskInfo)
async def edit(id: str, body: EditTask, deps: Given, caller: Writer) -> dict[str, Any]:
    """Change what it says, or put it into another state."""
    task = await deps.tasks.edit(caller, id, body.changes()) if body.changes() else await deps.tasks.find(caller, id)
    if body.state is not None and body.state is not task.status:
        task = await deps.tasks.set_status(caller, id, body.state)
    return task_json(task)


@router.delete("/{id}", status_code=204)
async def delete(id: str, deps: Given, caller: Writer) -> None:
    """Forget a task that has ended or has not begun, with its sandbox, its timeline and its artifacts."""
    await deps.tasks.delete(caller, id)


@router.post("/{id}/start", response_model=TaskInfo)
async def start(id: str, deps: Given, caller: Writer) -> dict[str, Any]:
    """Queue it."""
    return task_json(await deps.tasks.start(caller, id))


@router.post("/{id}/stop", response_model=TaskInfo)
async def stop(id: str, deps: Given, caller: Writer) -> dict[str, Any]:
    """End its agent, and cancel it."""
    return task_json(await deps.tasks.stop(caller, id))


@router.post("/{id}/retry", response_model=TaskInfo)
async def retry(id: str, deps: Given, caller: Writer) -> dict[str, Any]:
    """Take it up again where it stopped."""
    return task_json(await deps.tasks.retry(caller, id))


@router.post("/{id}/pause", response_model=TaskInfo)
async def pause(id: str, deps: Given, caller: Writer) -> dict[str, Any]:
    """Interrupt its agent until you start it again."""
    return task_json(await deps.tasks.pause(caller, id))


@router.post("/{id}/done", response_model=TaskInfo)
async def done(id: str, deps: Given, caller: Writer) -> dict[str, Any]:
    """Say that nothing is left to do."""
    return task_json(await deps.tasks.done(caller, id))


@router.post("/{id}/messages", response_model=TaskInfo)
async def message(id: str, body: TaskMessage, deps: Given, caller: Writer) -> dict[str, Any]:
    """Say something to its agent. A task that has ended is taken up again, in its own sandbox."""
    return task_json(await deps.tasks.message(caller, id, body.text, interrupt=body.mode == "interrupt"))


@router.post("/{id}/review", response_model=TaskInfo)
async def review(id: str, body: TaskReview, deps: Given, caller: Writer) -> dict[str, Any]:
    """Send comments on its changes back to its agent."""
    if not body.text and not body.comments:
        raise InvalidRequest("a review needs a text or comments")
    return task_json(await deps.tasks.message(caller, id, _review_text(body), kind="review"))


@router.get("/{id}/timeline", response_model=TimelinePage)
async def timeline(
    id: str,
    deps: Given,
    caller: Reader,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=2000)] = 500,
    kinds: Words = None,
) -> dict[str, Any]:
    """What happened in it, in its order."""
    task = await deps.tasks.find(caller, id)
    entries = await deps.timeline.page(task.id, after, limit, _kinds(kinds))
    return {"entries": [entry_json(entry) for entry in entries], "next": entries[-1].seq if entries else after}


@router.get("/{id}/events", response_class=Response, responses=SSE)
async def follow(
    id: str,
    deps: Given,
    caller: Reader,
    after: Annotated[int | None, Query(ge=0)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Its timeline as it grows, and the task itself at every change of its state."""
    task = await deps.tasks.find(caller, id)
    place = place_of(last_event_id)
    return Stream(_follow(deps, caller, task, place if place is not None else after or 0), "text/event-stream")


@router.get("/{id}/steps", response_model=StepList)
async def steps(id: str, deps: Given, caller: Reader) -> dict[str, Any]:
    """The steps of its last run."""
    return {"steps": [step_json(step) for step in await deps.tasks.steps(caller, id)]}


@router.get("/{id}/attempts", response_model=AttemptList)
async def attempts(id: str, deps: Given, caller: Reader) -> dict[str, Any]:
    """What each of its attempts came to."""
    task = await deps.tasks.find(caller, id)
    return {"attempts": [attempt_json(attempt) for attempt in task.attempts]}


@router.get("/{id}/diff", response_model=DiffInfo)
async def diff(id: str, deps: Given, caller: Reader, attempt: AttemptNumber = None) -> dict[str, Any]:
    """What it changed so far, or what one of its attempts did."""
    task = await deps.tasks.find(caller, id)
    try:
        found = await deps.git.diff(task.id, await _shown_attempt(deps, task, attempt))
    except NotFound:  # it was not worked on yet, or long ago
        found = TaskDiff(base=task.base_sha or "", head=task.base_sha or "")
    return asdict(found)


@router.get("/{id}/patch", response_class=Response, responses={200: {"content": {"text/x-diff": {}}}})
async def patch(id: str, deps: Given, caller: Reader, attempt: AttemptNumber = None) -> Response:
    """The same as a patch for `git apply`."""
    task = await deps.tasks.find(caller, id)
    try:
        content = await deps.git.patch(task.id, await _shown_attempt(deps, task, attempt))
    except NotFound:
        content = b""
    return Response(content, media_type="text/x-diff; charset=utf-8")


@router.get("/{id}/artifacts", response_model=ArtifactList)
async def artifacts(id: str, deps: Given, caller: Reader) -> dict[str, Any]:
    """The files that were kept of it."""
    found = await deps.artifacts.list(await deps.tasks.find(caller, id))
    return {"artifacts": [asdict(one) for one in found]}


@router.get("/{id}/artifacts/{path:path}", response_class=FileResponse)
async def artifact(id: str, path: str, deps: Given, caller: Reader) -> FileResponse:
    """One of these files. It came out of a sandbox: browsers are told to store it, not to show it."""
    found = deps.artifacts.path(await deps.tasks.find(caller, id), path)
    headers = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}
    return FileResponse(found, media_type="application/octet-stream", filename=found.name, headers=headers)


async def _shown_attempt(deps: Deps, task: Task, asked: int | None) -> int | None:
    """Whose work is shown: what the agent has done is newer than what was pushed."""
    number = asked or (task.chosen.number if task.chosen is not None else None)
    if number is None or (asked is None and await deps.git.head(task.id, number) is None):
        return None
    return number


@router.get("/{id}/log", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def log(id: str, deps: Given, caller: Reader) -> Response:
    """What its agent wrote, as it wrote it."""
    task = await deps.tasks.find(caller, id)
    return Stream(_log(deps, task), "text/plain; charset=utf-8")


async def _log(deps: Deps, task: Task) -> AsyncGenerator[bytes]:
    place = 0
    while page := await deps.timeline.page(task.id, place, 500):
        place = page[-1].seq
        last: str | None = None
        for entry in page:
            if entry.raw is not None and entry.raw != last:  # one line may have become several entries
                last = entry.raw
                yield f"{entry.raw}\n".encode("utf-8", "replace")


async def _follow(deps: Deps, caller: Caller, task: Task, place: int) -> AsyncGenerator[bytes]:
    """Every event named `state` carries the whole task; if it has an id, it stands in the timeline, too."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    yield _event("state", None, task_json(task))
    seen = task.revision
    async for page in deps.timeline.read(task.id, place, deps.keep_alive_s):
        try:
            now = await deps.tasks.find(caller, task.id)
        except NotFound:
            return
        for entry in page:
            is_state = entry.kind is EntryKind.STATE
            shown = {**task_json(now), "entry": entry_json(entry)} if is_state else entry_json(entry)
            yield _event(entry.kind.value, entry.seq, shown)
        if now.revision != seen:
            seen = now.revision
            yield _event("state", None, task_json(now))
        elif not page:
            yield b": still here\n\n"


def _event(name: str, id: int | None, data: Any) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    numbered = f"id: {id}\n" if id is not None else ""
    return f"{numbered}event: {name}\ndata: {text}\n\n".encode()


def _statuses(text: str | None) -> frozenset[TaskStatus] | None:
    if not text:
        return None
    try:
        return frozenset(TaskStatus(name) for name in text.split(",") if name)
    except ValueError:
        raise InvalidRequest(f"state: one of {', '.join(TaskStatus)}") from None


def _kinds(text: str | None) -> frozenset[EntryKind] | None:
    if not text:
        return None
    try:
        return frozenset(EntryKind(name) for name in text.split(",") if name)
    except ValueError:
        raise InvalidRequest(f"kinds: of {', '.join(EntryKind)}") from None


def _review_text(body: TaskReview) -> str:
    lines = ["A person has reviewed your changes. Work on every comment."]
    lines += ["", body.text] if body.text else []
    for comment in body.comments:
        where = f"{comment.path}:{comment.line}" if comment.line is not None else comment.path
        lines += ["", f"{where}", comment.text]
    return "\n".join(lines)
