"""What a task brings to the forge: its branch, and one pull request with the words, labels and checks of the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.core.errors import Conflict, NothingToMerge
from sandlot.platform.core.forges import (
    CheckStatus,
    PullRequest,
    PullRequestChange,
    PullRequestCheck,
    PullRequestSpec,
    Repository,
)
from sandlot.platform.core.proofs import ProofSpec
from sandlot.platform.core.tasks import Attempt, Entry, EntryKind, PullRequestLink, Task
from sandlot.platform.forges.ports import Forge
from sandlot.platform.git.service import GitService
from sandlot.platform.tasks.commit_text import subject_of
from sandlot.platform.tasks.pull_text import pull_body
from sandlot.platform.tasks.state import TaskState
from sandlot.platform.tasks.turns import attempt_of

TimelineLink = Callable[[Task], str]


class Publishing:
    def __init__(
        self,
        *,
        state: TaskState,
        git: GitService,
        forge: Callable[[Repository], Forge],
        agents: Mapping[str, AgentDescription],
        link: TimelineLink,
    ) -> None:
        self._state, self._git, self._forge, self._agents, self._link = state, git, forge, agents, link

    async def push(self, task: Task, number: int, repository: Repository) -> None:
        """The task's branch is what this attempt came to, here and at the forge. Safe to repeat."""
        await self._git.adopt(task.id, number)
        forwarded = await self._git.forward(task.id, repository)
        if forwarded.sha != forwarded.was:
            words = f"{forwarded.branch} is at {repository.name} now, at {forwarded.sha[:12]}"
            await self._tell(task, number, "push", words, forwarded.sha)

    async def deliver(self, task: Task, number: int, repository: Repository, proof: ProofSpec) -> str:
        """Onto the branch that failed, as long as it is where it was. Safe to repeat. Raises `HeadMoved`."""
        await self._git.adopt(task.id, number)
        delivered = await self._git.deliver(task.id, repository, proof.branch, proof.sha)
        if delivered.sha != delivered.was:
            words = f"{proof.branch} is at {delivered.sha[:12]} now"
            await self._tell(task, number, "push", words, delivered.sha)
        return delivered.sha

    async def linked(self, task: Task, repository: Repository, number: int) -> bool:
        """The pull request of others that got the change. Safe to repeat."""
        pull = await self._forge(repository).pull_request(repository, number)
        await self._state.update(task.id, lambda _: {"pull_request": link_of(pull)})
        return True

    async def pull_request(self, task: Task, number: int, repository: Repository, *, draft: bool) -> bool:
        """Open it, or bring the open one up to date. Safe to repeat. False if the forge has none."""
        forge = self._forge(repository)
        if not forge.has_pull_requests:
            return False
        attempt = attempt_of(task, number)
        title, body = await self._title(task, number), self._body(task, attempt)
        spec = PullRequestSpec(
            title=title,
            head=task.branch,
            base=task.spec.base or repository.default_branch,
            body=body,
            draft=draft,
            labels=task.spec.labels,
            reviewers=task.spec.reviewers,
            author=task.user_id,
        )
        try:
            opened = await forge.open_pull_request(repository, spec)
        except NothingToMerge:
            return False
        opened = await self._brought_up(forge, repository, opened, spec, attempt)
        link = link_of(opened)
        is_new = task.pull_request is None or task.pull_request.number != link.number
        await self._state.update(task.id, lambda _: {"pull_request": link})
        if is_new:
            await self._tell(task, number, "pull_request", f"pull request {link.number}: {title}", opened.head_sha)
        return True

    async def _brought_up(
        self, forge: Forge, repository: Repository, opened: PullRequest, spec: PullRequestSpec, attempt: Attempt
    ) -> PullRequest:
        """One that was open already has the words of an earlier run. Checks are told where the forge has none of its own."""
        checks = tuple(
            PullRequestCheck(
                name=check.command.splitlines()[0][:100],
                status=CheckStatus.SUCCESS if check.exit_code == 0 else CheckStatus.FAILURE,
            )
            for check in attempt.checks
        )
        change = PullRequestChange(
            title=spec.title if opened.title != spec.title else None,
            body=spec.body if opened.body != spec.body else None,
            draft=spec.draft if opened.draft != spec.draft else None,
            checks=checks if checks != opened.checks else None,
        )
        if change == PullRequestChange():
            return opened
        try:
            return await forge.update(repository, opened.number, change)
        except Conflict:  # it was merged or closed a moment ago
            return await forge.pull_request(repository, opened.number)

    async def _title(self, task: Task, number: int) -> str:
        commits = await self._git.commits(task.id, number)
        if len(commits) == 1:
            return commits[0].subject
        diff = await self._git.diff(task.id, number)
        return subject_of(task.spec.title, [file.path for file in diff.files])

    def _body(self, task: Task, attempt: Attempt) -> str:
        agent = self._agents.get(attempt.agent)
        title = agent.title if agent is not None else attempt.agent
        return pull_body(task, attempt, agent=title, timeline=self._link(task))

    async def _tell(self, task: Task, number: int, action: str, text: str, sha: str | None) -> None:
        data = {"action": action, "text": text, "sha": sha}
        await self._state.timeline.add(task.id, Entry(kind=EntryKind.GIT, text=text, data=data, attempt=number))


def link_of(pull: PullRequest) -> PullRequestLink:
    status = pull.check_status
    return PullRequestLink(
        number=pull.number,
        url=pull.url,
        state=pull.state.value,
        draft=pull.draft,
        checks=status.value if status is not None else None,
    )
