"""What an attempt hands in: conventional commits on top of the base as it is now, taken by the git server."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot.platform.core.forges import Repository
from sandlot.platform.core.tasks import AttemptStatus, TaskStatus
from sandlot.platform.git.records import Prepared
from sandlot.platform.tasks import prompts
from sandlot.platform.tasks.attempt_record import AttemptRecord, Ends
from sandlot.platform.tasks.checkout import Checkout, Refused, Standing
from sandlot.platform.tasks.commit_text import is_conventional, message_of
from sandlot.platform.tasks.turns import AgentTurns


class HandingIn:
    def __init__(self, record: AttemptRecord, repository: Repository, prepared: Prepared) -> None:
        self._record, self._repository, self._prepared = record, repository, prepared

    async def commit(self, turns: AgentTurns, checkout: Checkout) -> None:
        """Raises `Again` if the agent has to resolve something, `Ends` if nothing was changed or nobody can."""
        record, git = self._record, self._record.parts.git
        checkout.base_sha = (await git.fetch_base(record.task_id, self._repository)).new
        standing = await checkout.standing()
        if standing.is_unfinished:
            await self._conflict(turns, ("(a merge or a rebase was left half done)",))
        if not standing.has_changes:
            raise Ends(TaskStatus.DONE, "nothing was changed", AttemptStatus.UNCHANGED)
        is_kept = bool(standing.subjects) and all(map(is_conventional, standing.subjects))
        if standing.is_dirty or not is_kept:
            await checkout.commit(await self._message(standing), squash=not is_kept)
        if standing.is_behind:
            if conflicting := await checkout.rebase():
                await self._conflict(turns, conflicting)
            await record.steps.reset(record.number, "checks")  # they passed on another base
        await self._hand_in(turns, checkout)

    async def _hand_in(self, turns: AgentTurns, checkout: Checkout) -> None:
        record = self._record
        try:
            await checkout.hand_in()
        except Refused as refused:
            await record.tell_git("refused", str(refused))
            words = f"the git server does not take its changes: {refused}"
            await record.failed_once_more(turns, prompts.refused_prompt(str(refused)), "refused", words)
        await record.count()
        commits = await record.parts.git.commits(record.task_id, record.number)
        for commit in reversed(commits[:20]):
            await record.tell_git("commit", commit.subject, commit.sha)

    async def _conflict(self, turns: AgentTurns, paths: Sequence[str]) -> None:
        """Back to the agent once, then to the person. Raises `Again`, `Ends`."""
        _, attempt = await self._record.now()
        base, listed = self._prepared.base, ", ".join(paths[:10])
        await self._record.tell_git("conflict", f"{base} has moved, and the changes conflict with it in {listed}")
        if attempt.conflicts:
            words = f"its changes conflict with {base} in {listed}; tell it what to keep, or resolve it yourself"
            raise Ends(TaskStatus.NEEDS_YOU, words, AttemptStatus.FAILING)
        await self._record.again(turns, prompts.conflict_prompt(base, paths), "conflict", conflicts=1)

    async def _message(self, standing: Standing) -> str:
        task, _ = await self._record.now()
        agent = self._record.agent
        body = "" if len(standing.subjects) < 2 else "\n".join(f"- {subject}" for subject in standing.subjects[:30])
        return message_of(
            task.spec.title, standing.paths, body=body, task=task.id, agent=agent.title, agent_id=agent.id
        )
