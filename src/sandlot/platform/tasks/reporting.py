"""Tells a forge how a task goes that was asked for there: one comment that is changed in place, and a report on the commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sandlot.platform.core.errors import Conflict, ForgeRefused, InvalidRequest, NotFound, PlatformError
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.tasks import Attempt, Task, TaskStatus
from sandlot.platform.forges.ports import Forge, ReportsOnCommits
from sandlot.platform.git.records import FileDiff
from sandlot.platform.git.service import GitService
from sandlot.platform.tasks.proof_text import ended_comment, escaped, facts, headline, proof_section, state_of

log = logging.getLogger(__name__)
CI_MARKER = "ci-fix"
CHECK = "sandlot/ci-fix"
MAX_RESULT = 8000
_WORDS = {
    TaskStatus.DONE: "Done",
    TaskStatus.REVIEW: "Ready for review",
    TaskStatus.NEEDS_YOU: "Needs you",
    TaskStatus.FAILED: "Failed",
    TaskStatus.CANCELLED: "Cancelled",
}


class TaskReports:
    def __init__(self, *, git: GitService, forge: Callable[[Repository], Forge], link: Callable[[Task], str]) -> None:
        self._git, self._forge, self._link = git, forge, link

    async def progress(self, task: Task, repository: Repository, words: str) -> None:
        """It goes on. What cannot be told is told with the next."""
        try:
            await self._commit(task, repository, "pending", words, words)
            if task.spec.proof is not None:
                text = f"### Sandlot: working on it\n\n{proof_section(task.spec.proof, None)}\n\nNow: {escaped(words)}."
                await self._comment(task, repository, f"{text} Task `{task.id}`: {self._link(task)}")
        except PlatformError as error:
            log.info("could not tell how task %s goes: %s", task.id, error)

    async def ended(self, task: Task, repository: Repository, status: TaskStatus, reason: str | None) -> None:
        """Safe to repeat. Raises what the forge answers, if it may work later."""
        attempt = task.chosen or (task.attempts[0] if task.attempts else None)
        try:
            if task.spec.proof is not None:
                await self._proof_ended(task, repository, attempt, status, reason or "")
            elif task.spec.told_at is not None:
                await self._comment(task, repository, self._told(task, attempt, status, reason or ""))
        except (NotFound, Conflict, ForgeRefused, InvalidRequest) as error:  # it would be no better later
            log.warning("could not tell how task %s ended: %s", task.id, error)

    async def _proof_ended(
        self, task: Task, repository: Repository, attempt: Attempt | None, status: TaskStatus, reason: str
    ) -> None:
        proof = attempt.proof if attempt is not None else None
        files: Sequence[FileDiff] = ()
        if attempt is not None and attempt.changes.files:
            files = (await self._git.diff(task.id, attempt.number)).files
        text = ended_comment(task, attempt, status, reason, files, self._link(task))
        await self._comment(task, repository, text)
        title = f"{headline(proof, status)}: {proof.words if proof is not None else reason}"
        await self._commit(task, repository, state_of(proof), title, text)

    async def _comment(self, task: Task, repository: Repository, text: str) -> None:
        proof = task.spec.proof
        number = proof.pull if proof is not None else task.spec.told_at
        if number is not None:
            marker = CI_MARKER if proof is not None else f"task-{task.id}"
            await self._forge(repository).comment(repository, number, text, marker=marker)

    async def _commit(self, task: Task, repository: Repository, state: str, title: str, summary: str) -> None:
        forge, proof = self._forge(repository), task.spec.proof
        if proof is None or not isinstance(forge, ReportsOnCommits):
            return
        link = self._link(task)
        url = link if link.startswith("http") else None
        plain = " ".join(title.split())
        await forge.report_on(repository, proof.sha, name=CHECK, state=state, title=plain, summary=summary, url=url)

    def _told(self, task: Task, attempt: Attempt | None, status: TaskStatus, reason: str) -> str:
        parts = [f"### {_WORDS.get(status, status.value)}"]
        if task.pull_request is not None:
            parts.append(f"Pull request {task.pull_request.number}: {task.pull_request.url}")
        if reason:
            parts.append(escaped(reason))
        if attempt is not None and attempt.result.strip() and status is not TaskStatus.FAILED:
            parts.append(escaped(attempt.result.strip()[:MAX_RESULT]))
        return "\n\n".join([*parts, facts(task, self._link(task))])
