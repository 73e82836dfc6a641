"""What an attempt hands in: saved when its agent has ended a turn, then conventional commits on top of the base as it is now."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sandlot.platform.core.errors import PlatformError, SandboxGone, Unavailable
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.tasks import AttemptStatus, ChangeCount, Task, TaskStatus
from sandlot.platform.git.receiving import receive
from sandlot.platform.git.records import Prepared
from sandlot.platform.git.service import result_ref
from sandlot.platform.git.submissions import Submission, commit_submission, read_submission
from sandlot.platform.tasks import prompts
from sandlot.platform.tasks.attempt_record import AttemptRecord, Ends
from sandlot.platform.tasks.checkout import Checkout, Refused, person_of
from sandlot.platform.tasks.commit_text import is_conventional, message_of
from sandlot.platform.tasks.proving import Proving
from sandlot.platform.tasks.turns import AgentTurns

log = logging.getLogger(__name__)
MAX_TOLD = 20


class HandingIn:
    """What the git server has of an attempt counts; its sandbox is asked only for what is not there yet."""

    def __init__(self, record: AttemptRecord, repository: Repository, prepared: Prepared, proving: Proving) -> None:
        self._record, self._repository, self._prepared, self._proving = record, repository, prepared, proving
        self._ref = result_ref(record.number)
        self._is_saved = self._is_half_done = False  # known in this process only: otherwise it is saved again
        self._refusal: str | None = None

    async def save(self, checkout: Checkout) -> None:
        """What there is goes to the git server, so that it can be looked at, and outlives the sandbox. Raises `SandboxGone`."""
        self._is_saved, self._refusal = False, None
        try:
            await self._save(checkout)
        except Refused as refused:
            self._refusal = str(refused)
            await self._record.tell_git("refused", str(refused))
        except SandboxGone:
            raise
        except PlatformError as error:
            log.info("the work of task %s could not be saved yet: %s", self._record.task_id, error)

    async def _save(self, checkout: Checkout) -> None:
        git, place = self._record.parts.git, self._prepared.path
        known = await git.head(self._record.task_id, self._record.number)
        saved = await checkout.save(known or checkout.base_sha)
        if saved.pack and (refusal := await receive(git.git, place, self._ref, saved.sha, saved.pack)) is not None:
            raise Refused(refusal)
        self._is_saved, self._is_half_done = True, saved.is_half_done
        await self._count(await self._read(checkout.base_sha))

    async def _read(self, base: str) -> Submission | None:
        return await read_submission(self._record.parts.git.git, self._prepared.path, self._ref, base)

    async def _count(self, found: Submission | None) -> None:
        """How much it has changed, as the git server sees it."""
        if found is not None:
            await self._record.counted(
                ChangeCount(files=found.changes.files, added=found.changes.added, removed=found.changes.removed)
            )

    async def catch_up(self, checkout: Checkout) -> None:
        """Before another turn: what was committed on the git server is in the checkout, too."""
        found = await self._read(checkout.base_sha)
        if found is not None and found.saved is None:
            await checkout.catch_up(found.head)

    async def commit(self, turns: AgentTurns, checkout: Checkout) -> None:
        """Raises `Again` if the agent has to resolve something, `Ends` if nothing was changed or nobody can."""
        record, git = self._record, self._record.parts.git
        if not self._is_saved and self._refusal is None:
            try:
                await self._save(checkout)
            except Refused as refused:
                self._refusal = str(refused)
                await record.tell_git("refused", str(refused))
        if self._refusal is not None:
            await self._refused(turns, self._refusal)
        checkout.base_sha = (await git.fetch_base(record.task_id, self._repository)).new
        await self._proving.check_head(checkout.base_sha)
        if self._is_half_done:
            await self._conflict(turns, ("(a merge or a rebase was left half done)",))
        found = await self._read(checkout.base_sha)
        if found is None or not found.paths:
            flaky = await self._proving.unchanged()
            raise flaky or Ends(TaskStatus.DONE, "nothing was changed", AttemptStatus.UNCHANGED)
        found = await self._committed(found)
        if found.is_behind:
            found = await self._rebased(turns, checkout, found)
        for commit in reversed(found.commits[:MAX_TOLD]):
            await record.tell_git("commit", commit.subject, commit.sha)

    async def _committed(self, found: Submission) -> Submission:
        """With a commit of what was only saved; all of it in one, if somebody's commits are not conventional."""
        is_kept = bool(found.subjects) and all(map(is_conventional, found.subjects))
        if found.saved is None and is_kept:
            return found
        task, _ = await self._record.now()
        person = person_of(task.user_id)
        return await commit_submission(
            self._record.parts.git.git,
            self._prepared.path,
            self._ref,
            found,
            self._message(task, found),
            author=(person.name, person.email),
            squash=not is_kept,
        )

    async def _rebased(self, turns: AgentTurns, checkout: Checkout, found: Submission) -> Submission:
        """On the base as it is now: in the sandbox, where its checks run once more."""
        await checkout.catch_up(found.head)
        if conflicting := await checkout.rebase():
            await self._conflict(turns, conflicting)
        await self._record.steps.reset(self._record.number, "checks")  # they passed on another base
        try:
            await checkout.hand_in()
        except Refused as refused:
            await self._record.tell_git("refused", str(refused))
            await self._refused(turns, str(refused))
        rebased = await self._read(checkout.base_sha)
        if rebased is None:
            raise Unavailable("what was handed in is not at the git server")
        await self._count(rebased)
        return rebased

    async def _refused(self, turns: AgentTurns, sentence: str) -> None:
        """Raises `Again`, `Ends`."""
        self._refusal = None
        words = f"the git server does not take its changes: {sentence}"
        await self._record.failed_once_more(turns, prompts.refused_prompt(sentence), "refused", words)

    async def _conflict(self, turns: AgentTurns, paths: Sequence[str]) -> None:
        """Back to the agent once, then to the person. Raises `Again`, `Ends`."""
        _, attempt = await self._record.now()
        base, listed = self._prepared.base, ", ".join(paths[:10])
        await self._record.tell_git("conflict", f"{base} has moved, and the changes conflict with it in {listed}")
        if attempt.conflicts:
            words = f"its changes conflict with {base} in {listed}; tell it what to keep, or resolve it yourself"
            raise Ends(TaskStatus.NEEDS_YOU, words, AttemptStatus.FAILING)
        await self._record.again(turns, prompts.conflict_prompt(base, paths), "conflict", conflicts=1)

    def _message(self, task: Task, found: Submission) -> str:
        agent = self._record.agent
        body = "" if len(found.subjects) < 2 else "\n".join(f"- {subject}" for subject in found.subjects[:30])
        return message_of(task.spec.title, found.paths, body=body, task=task.id, agent=agent.title, agent_id=agent.id)
