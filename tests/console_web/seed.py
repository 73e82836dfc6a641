"""Tasks in every state, written as rows: for screenshots, and for tests of how many the console can show."""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.tasks import (
    STEPS,
    TASK,
    Attempt,
    AttemptStatus,
    ChangeCount,
    CheckResult,
    Entry,
    EntryKind,
    PullRequestLink,
    StepStatus,
    Task,
    TaskEventType,
    TaskLimits,
    TaskSpec,
    TaskStatus,
    TaskStep,
    TokenUsage,
)
from sandlot.platform.store import Database
from sandlot.platform.store.tasks import SqlTasks, SqlTaskSteps, SqlTimeline
from sandlot.platform.tasks.views import task_json
from sandlot.wiring.clock import now

T, K = TaskStatus, EntryKind
USER = "ada"
DIFF = """@@ -12,7 +12,12 @@ def create_app() -> FastAPI:
     app = FastAPI(title="orders")
     app.include_router(orders.router)
-    app.include_router(users.router)
+    app.include_router(users.router, prefix="/users")
+
+    @app.get("/health")
+    async def health() -> dict[str, str]:
+        return {"status": "ok", "version": __version__}
+
     return app
"""


def _task(id: str, title: str, status: TaskStatus, minutes: float, **given: object) -> Task:
    """A task that came into its state some minutes ago. `given`: fields of the task, of its spec or of its attempt."""
    at = now() - timedelta(minutes=minutes)
    of_task = {
        name: given.pop(name) for name in ("reason", "last_action", "pull_request", "isolation") if name in given
    }
    of_try = {name: given.pop(name) for name in ("changes", "checks_ran", "usage", "seconds") if name in given}
    spec = TaskSpec(
        repository=str(given.pop("repository", "orders")),
        prompt=str(given.pop("prompt", f"{title}. Add a test, and keep the public interface as it is.")),
        title=title,
        agent=str(given.pop("agent", "claude")),
        base="main",
        **given,  # type: ignore[arg-type]
    )
    attempts: tuple[Attempt, ...] = ()
    if status not in (T.TODO, T.QUEUED):
        attempts = (
            Attempt(
                number=1,
                agent=spec.agent,
                status=AttemptStatus.WORKING if status is T.WORKING else AttemptStatus.READY,
                changes=of_try.get("changes", ChangeCount()),  # type: ignore[arg-type]
                checks=of_try.get("checks_ran", ()),  # type: ignore[arg-type]
                usage=of_try.get("usage", TokenUsage()),  # type: ignore[arg-type]
                seconds=float(of_try.get("seconds", 0)),  # type: ignore[arg-type]
                chosen=True,
            ),
        )
    ended = status in (T.NEEDS_YOU, T.REVIEW, T.DONE, T.FAILED, T.CANCELLED)
    return Task(
        id=id,
        user_id=USER,
        status=status,
        spec=spec,
        created_at=at - timedelta(minutes=20),
        attempts=attempts,
        queued_at=None if status is T.TODO else at if status is T.QUEUED else at - timedelta(minutes=9),
        started_at=None if status in (T.TODO, T.QUEUED) else at if status is T.WORKING else at - timedelta(minutes=8),
        ended_at=at if ended else None,
        **of_task,  # type: ignore[arg-type]
    )


def board() -> list[Task]:
    """A board as a small team would have it."""
    tests = CheckResult(command="pytest -q", exit_code=0, output="212 passed in 8.41s\n", seconds=8.4)
    types = CheckResult(command="mypy src", exit_code=0, output="Success: no issues found in 48 files\n", seconds=3.1)
    red = replace(
        tests,
        exit_code=1,
        output="FAILED tests/test_pagination.py::test_last_page - assert 19 == 20\n1 failed, 211 passed in 8.77s\n",
    )
    both, small = ("pytest -q", "mypy src"), TaskLimits(cost_usd=2.0)
    return [
        _task("tb2bcdfg", "Say in the README how to run it behind a proxy", T.TODO, 190, labels=("docs",)),
        _task(
            "tc3bcdfg", "Move to the new payment API", T.TODO, 64, repository="billing", blocked_by=("wk2bcdfg",),
            reason="waits for task wk2bcdfg", labels=("api",), checks=both, limits=small,
        ),
        _task("td4bcdfg", "Drop support for Python 3.10", T.TODO, 1500, repository="billing", agent="codex"),
        _task("qa2bcdfg", "Log slow queries with their plan", T.QUEUED, 3, checks=("pytest -q",)),
        _task("qb3bcdfg", "Translate the error pages", T.QUEUED, 1, repository="storefront", agent="gemini"),
        _task(
            "wk2bcdfg", "Add a /health route that answers with the version", T.WORKING, 4.2, checks=both, limits=small,
            last_action="pytest -q tests/test_health.py", isolation="gvisor",
            changes=ChangeCount(files=3, added=41, removed=2),
            usage=TokenUsage(input=184_200, output=9_300, cached=160_000, cost_usd=0.42), seconds=250,
        ),
        _task(
            "wl3bcdfg", "Cache product images at the edge", T.WORKING, 11.5, repository="storefront", agent="codex",
            last_action="edits src/images/cache.ts", isolation="gvisor", labels=("performance",),
            changes=ChangeCount(files=6, added=132, removed=48), limits=TaskLimits(cost_usd=1.5),
            usage=TokenUsage(input=402_000, output=21_000, cached=300_000, cost_usd=1.31), seconds=690,
        ),
        _task(
            "na2bcdfg", "Rename “customer” to “account” in the schema", T.NEEDS_YOU, 7, isolation="gvisor",
            reason="Should old clients keep working with the field “customer”?", checks=("pytest -q",),
            changes=ChangeCount(files=14, added=210, removed=187), checks_ran=(tests,),
            usage=TokenUsage(input=610_000, output=33_000, cached=480_000, cost_usd=1.12), seconds=540,
        ),
        _task(
            "nb3bcdfg", "Fix the last page of paginated lists", T.NEEDS_YOU, 26, checks=both, isolation="gvisor",
            reason="its checks do not pass after 3 tries: pytest -q", checks_ran=(red, types),
            changes=ChangeCount(files=2, added=18, removed=6), limits=small,
            usage=TokenUsage(input=300_000, output=12_000, cached=200_000, cost_usd=0.77), seconds=420,
        ),
        _task(
            "fa2bcdfg", "Update the base image", T.FAILED, 95, repository="billing", agent="codex",
            reason="the sandbox did not start: template “billing-dev” was not found",
        ),
        _task(
            "ra2bcdfg", "Retry webhooks with backoff", T.REVIEW, 16, checks=both, checks_ran=(tests, types),
            pull_request=PullRequestLink(number=41, url="", checks="success"), isolation="gvisor", labels=("reliability",),
            changes=ChangeCount(files=5, added=164, removed=31), last_action="opened pull request 41",
            usage=TokenUsage(input=280_000, output=16_000, cached=210_000, cost_usd=0.58), seconds=610,
        ),
        _task(
            "rb3bcdfg", "Sort the orders of a customer by date", T.REVIEW, 140, repository="storefront", agent="gemini",
            pull_request=PullRequestLink(number=112, url="", checks="failure"), changes=ChangeCount(files=2, added=23, removed=4),
            last_action="opened pull request 112", isolation="container", seconds=180,
        ),
        _task(
            "da2bcdfg", "Escape names in CSV exports", T.DONE, 240, checks=("pytest -q",), checks_ran=(tests,),
            pull_request=PullRequestLink(number=40, url="", state="merged", checks="success"), isolation="gvisor",
            changes=ChangeCount(files=2, added=37, removed=3), last_action="pull request 40 was merged",
            usage=TokenUsage(input=90_000, output=5_000, cached=60_000, cost_usd=0.19), seconds=140,
        ),
        _task(
            "db3bcdfg", "Raise the minimum version of the SDK", T.DONE, 1600, repository="billing", agent="command",
            pull_request=PullRequestLink(number=9, url="", state="merged"), changes=ChangeCount(files=1, added=1, removed=1), seconds=12,
        ),
        _task("dc4bcdfg", "Try another templating library", T.CANCELLED, 2900, reason="stopped by its user"),
    ]  # fmt: skip


def story(task: Task) -> list[Entry]:
    """What led to the state that a task is in."""
    begin = task.started_at or task.created_at
    entries: list[tuple[float, Entry]] = [(-1, Entry(kind=K.PROMPT, text=task.spec.prompt))]
    if task.attempts:
        entries += [
            (0, Entry(kind=K.STATE, data={"state": "working"})),
            (1, Entry(kind=K.STEP, data={"name": "sandbox", "status": "done", "attempt": 1})),
            (3, Entry(kind=K.STEP, data={"name": "clone", "status": "done", "attempt": 1})),
            (6, Entry(kind=K.THINKING, text="The app is made in create_app(). A route there is the smallest change.\nThe version is in __about__.py.")),
            (9, Entry(kind=K.MESSAGE, text="I'll look at how routes are registered first, then add `/health` **with a test**.")),
            (11, Entry(kind=K.COMMAND, data={"id": "c1", "command": "rg -n 'include_router' src", "running": True})),
            (12, Entry(kind=K.COMMAND, data={"id": "c1", "output": "src/orders/app.py:14:    app.include_router(orders.router)\nsrc/orders/app.py:15:    app.include_router(users.router)\n", "exit_code": 0, "running": False})),
            (30, Entry(kind=K.EDIT, data={"path": "src/orders/app.py", "added": 6, "removed": 1, "diff": DIFF})),
            (44, Entry(kind=K.EDIT, data={"path": "tests/test_health.py", "added": 22, "removed": 0})),
            (52, Entry(kind=K.TOOL, data={"id": "t1", "name": "web_fetch", "input": {"url": "https://fastapi.tiangolo.com/tutorial/testing/"}, "output": "Import TestClient. Create a TestClient by passing your FastAPI application to it.", "ok": True})),
            (60, Entry(kind=K.TEST, data={"command": "pytest -q tests/test_health.py", "passed": 2, "failed": 0, "exit_code": 0, "output": "..                                                                       [100%]\n2 passed in 0.61s\n"})),
            (66, Entry(kind=K.USAGE, data={"input": 184_200, "output": 9_300, "cached": 160_000, "cost_usd": 0.42})),
        ]  # fmt: skip
    if task.status is T.WORKING:
        entries.append(
            (70, Entry(kind=K.COMMAND, data={"id": "c2", "command": "pytest -q && mypy src", "running": True}))
        )
    if task.status is T.NEEDS_YOU and task.reason and task.reason.endswith("?"):
        question = {"text": task.reason, "options": ["Keep it as an alias for one release", "Drop it now"]}
        entries.append((80, Entry(kind=K.QUESTION, text=task.reason, data=question)))
    if task.status in (T.REVIEW, T.DONE) and task.attempts:
        entries += [
            (84, Entry(kind=K.GIT, text="Add a /health route", data={"action": "committed", "sha": "4be1c9a07d2f"})),
            (88, Entry(kind=K.RESULT, text="The route is there, with two tests:\n\n- `GET /health` answers 200 with the version\n- it needs no key\n\nNothing else changed.", data={"cost_usd": 0.42, "turns": 7})),
        ]  # fmt: skip
    if task.status is T.FAILED:
        entries.append((2, Entry(kind=K.ERROR, text=task.reason or "")))
    if task.status not in (T.TODO, T.QUEUED, T.WORKING):
        entries.append((90, Entry(kind=K.STATE, text=task.reason or "", data={"state": task.status.value})))
    return [replace(entry, at=begin + timedelta(seconds=seconds)) for seconds, entry in entries]


def steps(task: Task) -> list[TaskStep]:
    if not task.started_at or not task.attempts:
        return []
    done = (
        len(STEPS)
        if task.status in (T.REVIEW, T.DONE)
        else STEPS.index("agent" if task.status is T.WORKING else "checks")
    )
    at, found = task.started_at, []
    for place, name in enumerate(STEPS):
        took = timedelta(seconds={"agent": 70, "checks": 12}.get(name, 0.8))
        running = place == done
        status = (
            StepStatus.DONE
            if place < done
            else StepStatus.RUNNING
            if running and task.status is T.WORKING
            else StepStatus.PENDING
        )
        found.append(
            TaskStep(
                task_id=task.id, run=1, number=1, name=name, status=status,
                started_at=at if place <= done else None, ended_at=at + took if place < done else None,
            )
        )  # fmt: skip
        at += took
    return found


def many(count: int) -> list[Task]:
    """As many as a large team has in a year."""
    chosen = random.Random(4)
    states: Sequence[TaskStatus] = [T.TODO, T.QUEUED, T.WORKING, T.NEEDS_YOU, T.REVIEW, *[T.DONE] * 3, T.CANCELLED]
    return [
        _task(
            f"m{number:07d}", f"Task {number}: {chosen.choice(['fix', 'add', 'move', 'test'])} part {chosen.randrange(99)}",
            chosen.choice(states), chosen.uniform(1, 9000), last_action="pytest -q",
            changes=ChangeCount(files=1, added=chosen.randrange(300), removed=chosen.randrange(90)),
        )
        for number in range(count)
    ]  # fmt: skip


def long_story(count: int) -> list[Entry]:
    at = now() - timedelta(hours=1)
    return [
        Entry(kind=K.COMMAND, at=at, data={"id": f"n{n}", "command": f"echo {n}", "output": f"{n}\n", "exit_code": 0}, raw=f"line {n}")
        if n % 3 else Entry(kind=K.MESSAGE, at=at, text=f"Message {n}", raw=f"line {n}")
        for n in range(count)
    ]  # fmt: skip


async def write(database: Path, tasks: Sequence[Task], *, entries: Sequence[Entry] | None = None) -> None:
    opened = Database.sqlite(database)
    try:
        for task in tasks:
            event = Event(
                type=TaskEventType.CREATED,
                at=_time(task),
                user_id=task.user_id,
                subject=Subject(TASK, task.id),
                data={"task": task_json(task, brief=True)},
            )
            await SqlTasks(opened).add(task, event)
            await SqlTimeline(opened).append(task.id, entries if entries is not None else story(task))
            for step in steps(task):
                await SqlTaskSteps(opened).put(step)
    finally:
        await opened.close()


def _time(task: Task) -> datetime:
    return task.created_at


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("database", type=Path)
    parser.add_argument("--many", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(write(given.database, many(given.many) if given.many else board()))
