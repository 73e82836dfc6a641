"""What is done about a webhook of GitHub: which repository and task it is about, who may ask for what, and the task that comes of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from sandlot.platform.core.errors import Conflict, NotFound, PlatformError
from sandlot.platform.core.forges import ForgeKind, PullRequest, Repository
from sandlot.platform.core.tasks import Task
from sandlot.platform.core.triggers import GitHubDelivery, Handled, TriggerRule, TriggerWhen
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import place_of
from sandlot.platform.forges.github_records import MARKER
from sandlot.platform.forges.github_reports import GitHubReports
from sandlot.platform.forges.repositories import Repositories
from sandlot.platform.tasks.service import Tasks
from sandlot.platform.triggers import payloads
from sandlot.platform.triggers.ci_fix import CiFix
from sandlot.platform.triggers.making import Arrived, TaskMaking, filled, ignored, made
from sandlot.platform.triggers.payloads import Payload
from sandlot.platform.triggers.rules import ADMIN

NAME = "sandlot"
OWN_COMMIT = re.compile(r"^Co-authored-by: .*@agents\.sandlot\.invalid>", re.MULTILINE)
CI = frozenset({"workflow_run", "workflow_job", "check_run", "check_suite"})  # what follows from a push of ours counts
REVIEW = (
    "Review this pull request. Read what it changes against its base, run its tests, and end with your findings as a list: what is wrong, "
    "where, and why. Change nothing but what is clearly broken."
)
FORKS = "pull requests of forks are left alone: their code must not meet our secrets"
Act = Callable[[Arrived], Awaitable[Handled]]
Look = Callable[[str], Awaitable[Task]]  # has a task look at its pull request now


class GitHubTriggers:
    def __init__(
        self,
        *,
        repositories: Repositories,
        tasks: Tasks,
        look: Look,
        making: TaskMaking,
        ci: CiFix,
        forge: GitHubForge,
        reports: GitHubReports,
    ) -> None:
        self._repositories, self._tasks, self._look = repositories, tasks, look
        self._making, self._forge, self._reports = making, forge, reports
        self._acts: Mapping[tuple[str, str], Act] = {
            ("issues", "labeled"): self._labelled,
            ("issue_comment", "created"): self._commented,
            ("pull_request_review", "submitted"): self._reviewed,
            ("pull_request_review_comment", "created"): self._reviewed,
            ("pull_request", "closed"): self._on_task,
            ("pull_request", "review_requested"): self._asked_for_review,
            ("push", ""): self._pushed,
            ("workflow_run", "completed"): ci.workflow_ended,
            ("workflow_job", "completed"): ci.job_ended,
            ("check_run", "completed"): ci.check_ended,
            ("check_suite", "completed"): ci.check_ended,
        }

    async def handle(self, delivery: GitHubDelivery, payload: Mapping[str, Any]) -> Handled:
        act = self._acts.get((delivery.event, delivery.action))
        if act is None:
            return ignored("nothing is done for this event")
        repository = await self._repository(payload)
        if repository is None:
            return ignored(f"{delivery.repository} is no repository here")
        sender = payloads.sender(payload)
        if sender is None:
            return ignored("it has no sender")
        # A token is a person's, who may command us.
        if repository.github_app and delivery.event not in CI and await self._is_own(repository, sender.login):
            return ignored("we did this ourselves")
        return await act(Arrived(delivery=delivery, payload=payload, repository=repository, sender=sender))

    async def _is_own(self, repository: Repository, login: str) -> bool:
        return login.lower() == (await self._reports.own_login(repository)).lower()

    async def _repository(self, payload: Payload) -> Repository | None:
        """The one of everybody's, else the first by name: several users may have added it with tokens of their own."""
        try:
            there = place_of(str(payloads.part(payload, "repository").get("html_url") or ""))
        except PlatformError:
            return None
        found = []
        for each in await self._repositories.list(ADMIN):
            if each.forge is ForgeKind.GITHUB:
                place = place_of(each.url)
                if (place.origin, place.full_name.lower()) == (there.origin, there.full_name.lower()):
                    found.append(each)
        return min(found, key=lambda each: (each.user_id is not None, each.name), default=None)

    # -- issues and comments ----------------------------------------------------------------------------------------

    async def _labelled(self, arrived: Arrived) -> Handled:
        label = payloads.line(payloads.part(arrived.payload, "label"), "name", 200)
        issue = payloads.part(arrived.payload, "issue")

        def fits(rule: TriggerRule) -> bool:
            return rule.label.lower() == label.lower()

        rule = await self._making.rule(TriggerWhen.ISSUE_LABELLED, arrived.repository, fits)
        if rule is None:
            return ignored(f"no rule is about the label {label!r}")
        return await self._from_issue(arrived, rule, issue, "")

    async def _commented(self, arrived: Arrived) -> Handled:
        issue, comment = payloads.part(arrived.payload, "issue"), payloads.part(arrived.payload, "comment")
        body = payloads.text(comment, "body")
        if MARKER.search(body):
            return ignored("we did this ourselves")
        said = payloads.said_to(NAME, body)
        if "pull_request" in issue:
            return await self._said_on_pull(arrived, payloads.number(issue), said)
        if said is None:
            return ignored("it does not mention us")
        rule = await self._making.rule(TriggerWhen.MENTION, arrived.repository)
        if rule is None:
            return ignored("no rule is about mentions")
        return await self._from_issue(arrived, rule, issue, said)

    async def _from_issue(self, arrived: Arrived, rule: TriggerRule, issue: Payload, said: str) -> Handled:
        refusal = await self._making.refusal(arrived, rule)
        if refusal is not None:
            return refusal
        number = payloads.number(issue)
        place = place_of(arrived.repository.url)
        url = f"{place.origin}/{place.full_name}/issues/{number}"
        values = {
            "title": payloads.line(issue, "title"),
            "body": payloads.text(issue, "body"),
            "comment": said,
            "url": url,
        }
        prompt = filled(rule.prompt, values) if rule.prompt else _issue_prompt(values, number)
        more: dict[str, Any] = {"title": values["title"] or None, "issue": url, "told_at": number}
        task = await self._making.create(rule, arrived.repository, prompt, key=arrived.key, **more)
        await self._answer(arrived, number, task)
        return made(task, rule)

    # -- pull requests ----------------------------------------------------------------------------------------------

    async def _said_on_pull(self, arrived: Arrived, number: int, said: str | None) -> Handled:
        pull = await self._forge.pull_request(arrived.repository, number)
        task = await self._task_of_pull(arrived, pull.head, number) if not pull.is_fork else None
        if task is not None:
            return await self._looked(task)
        if said is None:
            return ignored("it does not mention us, and the pull request is of no task here")
        return await self._from_pull(arrived, TriggerWhen.MENTION, pull, said)

    async def _from_pull(self, arrived: Arrived, when: TriggerWhen, pull: PullRequest, said: str) -> Handled:
        rule = await self._making.rule(when, arrived.repository)
        if rule is None:
            return ignored("no rule is about mentions" if when is TriggerWhen.MENTION else "no rule is about reviews")
        if pull.is_fork:
            return ignored(FORKS)
        refusal = await self._making.refusal(arrived, rule)
        if refusal is not None:
            return refusal
        values = {"title": pull.title, "body": pull.body, "comment": said, "url": pull.url}
        prompt = filled(rule.prompt, values) if rule.prompt else _pull_prompt(values, pull.number)
        more: dict[str, Any] = {"base": pull.head, "told_at": pull.number}
        task = await self._making.create(rule, arrived.repository, prompt, key=arrived.key, **more)
        await self._answer(arrived, pull.number, task)
        return made(task, rule)

    async def _asked_for_review(self, arrived: Arrived) -> Handled:
        """Our account is asked for a review: a task that looks at the pull request, and answers there."""
        wanted = payloads.line(payloads.part(arrived.payload, "requested_reviewer"), "login", 100)
        if not wanted or not await self._is_own(arrived.repository, wanted):
            return ignored("somebody else is asked for a review")
        number = payloads.number(payloads.part(arrived.payload, "pull_request"))
        pull = await self._forge.pull_request(arrived.repository, number)
        return await self._from_pull(arrived, TriggerWhen.REVIEW_REQUESTED, pull, REVIEW)

    async def _reviewed(self, arrived: Arrived) -> Handled:
        """On a task's pull request its agent is told; elsewhere it may mention us."""
        pull = payloads.part(arrived.payload, "pull_request")
        head = payloads.branch(payloads.part(pull, "head"), "ref")
        if payloads.task_of(head) is not None:
            return await self._on_task(arrived)
        said = payloads.part(arrived.payload, "comment") or payloads.part(arrived.payload, "review")
        body = payloads.text(said, "body")
        if MARKER.search(body) or payloads.said_to(NAME, body) is None:
            return ignored("the pull request is of no task here")
        words = payloads.said_to(NAME, body) or ""
        if path := payloads.line(said, "path", 500):
            words += f"\n\nThis is about {path}, line {payloads.number(said, 'line') or 'unknown'}."
        found = await self._forge.pull_request(arrived.repository, payloads.number(pull))
        return await self._from_pull(arrived, TriggerWhen.MENTION, found, words)

    async def _pushed(self, arrived: Arrived) -> Handled:
        """Our own branches and commits do not count: that would never end."""
        payload = arrived.payload
        ref, sha = payload.get("ref"), payloads.sha(payload, "after")
        branch = ref.removeprefix("refs/heads/") if isinstance(ref, str) and ref.startswith("refs/heads/") else ""
        if payloads.branch({"ref": branch}, "ref") is None or sha is None or not sha.strip("0"):
            return ignored("it is of no branch")
        message = payloads.text(payloads.part(payload, "head_commit"), "message")
        is_own = payloads.task_of(branch) is not None or OWN_COMMIT.search(message)
        if is_own or await self._is_own(arrived.repository, arrived.sender.login):
            return ignored("we did this ourselves")

        def fits(rule: TriggerRule) -> bool:
            return any(fnmatchcase(branch, each) for each in rule.branches)

        rule = await self._making.rule(TriggerWhen.PUSH, arrived.repository, fits)
        if rule is None:
            return ignored(f"no rule is about pushes to {branch}")
        refusal = await self._making.refusal(arrived, rule)
        if refusal is not None:
            return refusal
        subject = message.splitlines()[0][:200] if message else sha[:12]
        values = {"title": subject, "body": message, "comment": "", "url": payloads.line(payload, "compare", 500)}
        prompt = filled(rule.prompt, values) if rule.prompt else f"Look at the last push to {branch}: {subject}"
        key = f"github-push-{arrived.repository.id}-{branch}-{sha}{arrived.replay}"
        task = await self._making.create(rule, arrived.repository, prompt, key=key, base=branch)
        return made(task, rule)

    async def _on_task(self, arrived: Arrived) -> Handled:
        """There is news at a pull request. What it means for its task is the same as without webhooks, only sooner."""
        pull = payloads.part(arrived.payload, "pull_request")
        head = payloads.branch(payloads.part(pull, "head"), "ref")
        task = None
        if not payloads.is_from_fork(pull):
            task = await self._task_of_pull(arrived, head, payloads.number(pull))
        return ignored("the pull request is of no task here") if task is None else await self._looked(task)

    async def _looked(self, task: Task) -> Handled:
        after = await self._look(task.id)
        return Handled(outcome=f"task {task.id} is {after.status.value}", acted=True, tasks=(task.id,))

    async def _task_of_pull(self, arrived: Arrived, head: str | None, number: int) -> Task | None:
        """By the name of its branch, and because the task itself knows the pull request."""
        id = payloads.task_of(head)
        if id is None:
            return None
        try:
            task = await self._tasks.find(ADMIN, id)
        except NotFound:
            return None
        link = task.pull_request
        same = task.spec.repository == arrived.repository.name and link is not None and link.number == number
        return task if same else None

    async def _answer(self, arrived: Arrived, number: int, task: Task) -> None:
        """Say that it is begun, where it was asked for. The marker makes it one comment however often this is tried."""
        text = f"On it: task `{task.id}`, on the branch `{task.branch}`."
        try:
            await self._forge.comment(arrived.repository, number, text, marker=f"task-{task.id}")
        except (NotFound, Conflict):
            return


def _issue_prompt(values: Mapping[str, str], number: int) -> str:
    parts = [values["comment"], f"# {values['title']}", values["body"], f"This is issue {number}: {values['url']}"]
    return "\n\n".join(part for part in parts if part.strip(" #"))


def _pull_prompt(values: Mapping[str, str], number: int) -> str:
    about = (
        f"This is about pull request {number}, “{values['title']}”: {values['url']}. Your branch starts at its head."
    )
    return "\n\n".join(part for part in (values["comment"], about, values["body"]) if part)
