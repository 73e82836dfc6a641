"""Tasks, for programs: hand over work, follow it, talk to its agent, and get what came of it."""

from __future__ import annotations

import asyncio
import builtins
import json
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict
from typing import Any, Literal, Protocol
from urllib.parse import quote

import httpx

from sandlot.client.decoding import decoded
from sandlot.client.errors import NotFound, Unavailable
from sandlot.client.forge_records import Diff
from sandlot.client.repositories import given
from sandlot.client.task_records import (
    RESTING,
    Artifact,
    TaskAttempt,
    TaskInfo,
    TaskLimits,
    TaskNetwork,
    TaskNews,
    TaskState,
    TaskStep,
    TimelineEntry,
)

RETRY_S = 1.0
PAGE = 500
NOW = 2**53  # a place behind every entry: only news of the task itself come


class TaskHttp(Protocol):
    """What tasks need of the client."""

    async def ask(self, method: str, path: str, **options: Any) -> Any: ...

    def lines(self, path: str, params: dict[str, Any], headers: dict[str, str]) -> AsyncIterator[str]: ...

    def pieces(self, path: str) -> AsyncIterator[bytes]: ...


class Tasks:
    """`client.tasks`."""

    def __init__(self, http: TaskHttp) -> None:
        self._http = http

    async def create(
        self,
        repository: str | None = None,
        prompt: str | None = None,
        *,
        title: str | None = None,
        base: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        command: str | None = None,
        checks: Sequence[str] = (),
        limits: TaskLimits | None = None,
        network: TaskNetwork | None = None,
        secrets: Sequence[str] = (),
        labels: Sequence[str] = (),
        parent: str | None = None,
        blocked_by: Sequence[str] = (),
        attempts: int = 1,
        agents: Sequence[str] = (),
        issue: str | None = None,
        template: str | None = None,
        provider: str | None = None,
        draft_on_failure: bool = False,
        artifacts: Sequence[str] = (),
        reviewers: Sequence[str] = (),
        user_id: str | None = None,
        start: bool = True,
        idempotency_key: str | None = None,
    ) -> Task:
        """Describe work on a repository. Without a prompt, `issue` is the address of an issue that has one.

        With an `idempotency_key` it is safe to ask again when the answer was lost.
        """
        body = {
            "repository": repository,
            "prompt": prompt,
            "title": title,
            "base": base,
            "agent": agent,
            "model": model,
            "command": command,
            "checks": [*checks],
            "limits": asdict(limits) if limits is not None else None,
            "network": asdict(network) if network is not None else None,
            "secrets": [*secrets],
            "labels": [*labels],
            "parent": parent,
            "blocked_by": [*blocked_by],
            "attempts": attempts,
            "agents": [*agents],
            "issue": issue,
            "template": template,
            "provider": provider,
            "draft_on_failure": draft_on_failure,
            "artifacts": [*artifacts],
            "reviewers": [*reviewers],
            "user_id": user_id,
            "start": start,
        }
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        answer = await self._http.ask("POST", "/tasks", json=given(body), headers=headers)
        return Task(self._http, decoded(TaskInfo, answer))

    async def get(self, id: str) -> Task:
        return Task(self._http, decoded(TaskInfo, await self._http.ask("GET", _path(id))))

    async def list(
        self,
        *,
        states: Collection[TaskState] = (),
        repository: str | None = None,
        label: str | None = None,
        text: str | None = None,
        limit: int | None = None,
    ) -> builtins.list[TaskInfo]:
        """The newest first; all of them, unless there is a limit."""
        wanted = {"state": ",".join(states) or None, "repository": repository, "label": label, "q": text}
        found: list[TaskInfo] = []
        after: str | None = None
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            page = await self._http.ask("GET", "/tasks", params=given({**wanted, "limit": size, "after": after}))
            found += [decoded(TaskInfo, row) for row in page["tasks"]]
            after = page["next"]
            if after is None:
                break
        return found


class Task:
    """One task. `info` is what was last heard of it."""

    def __init__(self, http: TaskHttp, info: TaskInfo) -> None:
        self._http, self.info = http, info

    @property
    def id(self) -> str:
        return self.info.id

    async def refresh(self) -> TaskInfo:
        return self._heard(await self._http.ask("GET", _path(self.id)))

    async def edit(self, **changes: Any) -> TaskInfo:
        """`title`, `prompt`, `labels`, `limits`, `checks`, `blocked_by`."""
        return self._heard(await self._http.ask("PATCH", _path(self.id), json=changes))

    async def start(self) -> TaskInfo:
        return await self._act("start")

    async def stop(self) -> TaskInfo:
        """End its agent, and cancel it. It ends soon; `wait` for it."""
        return await self._act("stop")

    async def pause(self) -> TaskInfo:
        return await self._act("pause")

    async def retry(self) -> TaskInfo:
        """Take it up again where it stopped."""
        return await self._act("retry")

    async def done(self) -> TaskInfo:
        """Nothing is left to do."""
        return await self._act("done")

    async def message(self, text: str, *, mode: Literal["queue", "interrupt"] = "queue") -> TaskInfo:
        """Say something to its agent: after its turn, or at once. A task that rests goes on."""
        return await self._act("messages", {"text": text, "mode": mode})

    async def delete(self) -> None:
        await self._http.ask("DELETE", _path(self.id))

    async def timeline(self, *, after: int = 0, kinds: Collection[str] = ()) -> list[TimelineEntry]:
        """All that has happened so far."""
        found: list[TimelineEntry] = []
        while True:
            params = given({"after": after, "limit": PAGE, "kinds": ",".join(kinds) or None})
            page = await self._http.ask("GET", f"{_path(self.id)}/timeline", params=params)
            found += [decoded(TimelineEntry, row) for row in page["entries"]]
            after = int(page["next"])
            if len(page["entries"]) < PAGE:
                return found

    async def events(self, *, after: int = 0) -> AsyncIterator[TaskNews]:
        """Its timeline as it grows, each entry once, over as many connections as it takes. It ends if the task is deleted.

        To go on later, give the `seq` of the last entry as `after`.
        """
        known = False
        while True:
            try:
                async for news in self._connection(after):
                    known = True
                    if news.entry is not None:
                        after = max(after, news.entry.seq)
                    if news.task is not None:
                        self.info = news.task
                    yield news
            except NotFound:
                if not known:
                    raise
                return
            except (Unavailable, httpx.TransportError):
                pass
            await asyncio.sleep(RETRY_S)

    async def wait(self, *, timeout: float | None = None, states: Collection[TaskState] = RESTING) -> TaskInfo:
        """Until it is in one of these states; by default until nothing happens by itself any more. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            stream = self.events(after=NOW)
            try:
                async for news in stream:
                    if news.task is not None and news.task.state in states:
                        return news.task
            finally:
                await stream.aclose()  # type: ignore[attr-defined]
        raise NotFound(404, f"task {self.id!r} was deleted")

    async def steps(self) -> list[TaskStep]:
        """Of its last run."""
        answer = await self._http.ask("GET", f"{_path(self.id)}/steps")
        return [decoded(TaskStep, row) for row in answer["steps"]]

    async def attempts(self) -> list[TaskAttempt]:
        answer = await self._http.ask("GET", f"{_path(self.id)}/attempts")
        return [decoded(TaskAttempt, row) for row in answer["attempts"]]

    async def diff(self) -> Diff:
        """What it changes."""
        return decoded(Diff, await self._http.ask("GET", f"{_path(self.id)}/diff"))

    async def artifacts(self) -> list[Artifact]:
        """Files that were kept."""
        answer = await self._http.ask("GET", f"{_path(self.id)}/artifacts")
        return [decoded(Artifact, row) for row in answer["artifacts"]]

    async def artifact(self, path: str) -> bytes:
        return b"".join([piece async for piece in self._http.pieces(f"{_path(self.id)}/artifacts/{quote(path)}")])

    async def _act(self, route: str, body: Any = None) -> TaskInfo:
        return self._heard(await self._http.ask("POST", f"{_path(self.id)}/{route}", json=body))

    def _heard(self, answer: Any) -> TaskInfo:
        self.info = decoded(TaskInfo, answer)
        return self.info

    async def _connection(self, after: int) -> AsyncIterator[TaskNews]:
        async for line in self._http.lines(f"{_path(self.id)}/events", {}, {"Last-Event-ID": str(after)}):
            if line.startswith("data: "):
                record = json.loads(line[6:])
                if "entry" in record:
                    yield TaskNews(decoded(TimelineEntry, record["entry"]), decoded(TaskInfo, record))
                elif "kind" in record:
                    yield TaskNews(entry=decoded(TimelineEntry, record))
                else:
                    yield TaskNews(task=decoded(TaskInfo, record))


def _path(id: str) -> str:
    return f"/tasks/{quote(id, safe='')}"
