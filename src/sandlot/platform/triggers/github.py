"""What is done about a webhook of GitHub: which repository and task it is about, who may ask for what, and the task that comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sandlot.platform.core.errors import Conflict, NotFound, PlatformError
from sandlot.platform.core.forges import ForgeKind, Repository
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.tasks import Entry, EntryKind, Task, TaskLimits, TaskStatus
from sandlot.platform.core.triggers import GitHubDelivery, Handled, TriggerRule, TriggerWhen
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import place_of
from sandlot.platform.forges.github_records import MARKER
from sandlot.platform.forges.github_reports import GitHubReports
from sandlot.platform.forges.repositories import Repositories
from sandlot.platform.tasks.service import TaskRequest, Tasks
from sandlot.platform.tasks.timeline import Timeline
from sandlot.platform.triggers import payloads
from sandlot.platform.triggers.budgets import RuleBudget
from sandlot.platform.triggers.failures import run_text
from sandlot.platform.triggers.payloads import Payload, Sender

ADMIN = Caller(user_id=None, scopes=frozenset({Scope.ADMIN, Scope.READ, Scope.WRITE}))
NAME = "sandlot"
CI_TURNS = 3  # how often red checks go back to a task's agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A delivery whose repository and sender are known."""

    delivery: GitHubDelivery
    payload: Payload
    repository: Repository
    sender: Sender

    @property
    def key(self) -> str:
        """What makes an effect of this delivery one: it is the same when it is tried again, another when replayed."""
        replay = f"-{self.delivery.replays}" if self.delivery.replays else ""
        return f"github-{self.delivery.id}{replay}"


Act = Callable[[Arrived], Awaitable[Handled]]
Look = Callable[[str], Awaitable[Task]]  # has a task look at its pull request now


def ignored(why: str) -> Handled:
    return Handled(outcome=why)


class GitHubTriggers:
    """`rules` are looked through in their order; the first that fits counts."""

    def __init__(
        self,
        *,
        repositories: Repositories,
        tasks: Tasks,
        look: Look,
        budget: RuleBudget,
        forge: GitHubForge,
        reports: GitHubReports,
        timeline: Timeline,
        rules: Sequence[TriggerRule],
    ) -> None:
        self._repositories, self._tasks, self._look, self._budget = repositories, tasks, look, budget
        self._forge, self._reports, self._timeline, self._rules = forge, reports, timeline, rules
        self._acts: Mapping[tuple[str, str], Act] = {
            ("issues", "labeled"): self._labelled,
            ("issue_comment", "created"): self._commented,
            ("pull_request_review", "submitted"): self._on_task,
            ("pull_request_review_comment", "created"): self._on_task,
            ("pull_request", "closed"): self._on_task,
            ("workflow_run", "completed"): self._ci_ended,
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
        if repository.github_app and sender.login.lower() == (await self._reports.own_login(repository)).lower():
            return ignored("we did this ourselves")  # a token is a person's, who may command us
        return await act(Arrived(delivery=delivery, payload=payload, repository=repository, sender=sender))

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
        rule = self._rule(TriggerWhen.ISSUE_LABELLED, arrived, lambda rule: rule.label.lower() == label.lower())
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
        rule = self._rule(TriggerWhen.MENTION, arrived)
        if rule is None:
            return ignored("no rule is about mentions")
        return await self._from_issue(arrived, rule, issue, said)

    async def _from_issue(self, arrived: Arrived, rule: TriggerRule, issue: Payload, said: str) -> Handled:
        refusal = await self._refusal(arrived, rule)
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
        prompt = _filled(rule.prompt, values) if rule.prompt else _issue_prompt(values, arrived.sender, number)
        task = await self._create(arrived, rule, prompt, title=values["title"] or None, issue=url)
        await self._answer(arrived, number, task)
        return Handled(outcome=f"task {task.id} was made by rule {rule.name!r}", acted=True, tasks=(task.id,))

    # -- pull requests ----------------------------------------------------------------------------------------------

    async def _said_on_pull(self, arrived: Arrived, number: int, said: str | None) -> Handled:
        pull = await self._forge.pull_request(arrived.repository, number)
        task = await self._task_of_pull(arrived, pull.head, number) if not pull.is_fork else None
        if task is not None:
            return await self._looked(task)
        if said is None:
            return ignored("it does not mention us, and the pull request is of no task here")
        rule = self._rule(TriggerWhen.MENTION, arrived)
        if rule is None:
            return ignored("no rule is about mentions")
        if pull.is_fork:
            return ignored("pull requests of forks are left alone: their code must not meet our secrets")
        refusal = await self._refusal(arrived, rule)
        if refusal is not None:
            return refusal
        values = {"title": pull.title, "body": pull.body, "comment": said, "url": pull.url}
        prompt = _filled(rule.prompt, values) if rule.prompt else _pull_prompt(values, arrived.sender, number)
        made = await self._create(arrived, rule, prompt, title=None, base=pull.head)
        await self._answer(arrived, number, made)
        return Handled(outcome=f"task {made.id} was made by rule {rule.name!r}", acted=True, tasks=(made.id,))

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

    # -- GitHub Actions ---------------------------------------------------------------------------------------------

    async def _ci_ended(self, arrived: Arrived) -> Handled:
        """Red on a task's branch goes back to its agent; red elsewhere makes a task, if a rule says so."""
        run = payloads.part(arrived.payload, "workflow_run")
        if run.get("conclusion") not in ("failure", "timed_out"):
            return ignored("it did not fail")
        branch, sha = payloads.branch(run, "head_branch"), payloads.sha(run, "head_sha")
        if payloads.part(run, "head_repository").get("id") != payloads.part(arrived.payload, "repository").get("id"):
            return ignored("runs of forks are left alone: their code must not meet our secrets")
        if branch is None or sha is None:
            return ignored("it is of no branch")
        if await self._reports.tip(arrived.repository, branch) != sha:
            return ignored(f"{branch} has moved on from {sha[:10]}")
        id = payloads.task_of(branch)
        if id is not None:
            return await self._ci_of_task(arrived, id, payloads.number(run, "id"), sha)
        return await self._ci_elsewhere(arrived, run, branch, sha)

    async def _ci_of_task(self, arrived: Arrived, id: str, run: int, sha: str) -> Handled:
        try:
            task = await self._tasks.find(ADMIN, id)
        except NotFound:
            return ignored(f"there is no task {id}")
        link = task.pull_request
        if task.spec.repository != arrived.repository.name or link is None or link.state != "open":
            return ignored(f"task {id} has no open pull request here")
        told = [each for each in await self._prompts(id) if each.data.get("kind") == "checks"]
        note = f"run {run} on {sha}"
        if any(note in each.text for each in told) or any(note in text for text in task.pending):
            return Handled(outcome=f"task {id} was told", acted=True, tasks=(id,))
        if any(sha in each.text for each in told):
            return ignored(f"task {id} was told of a failure on {sha[:10]} already")
        if len(told) >= CI_TURNS:
            return ignored(f"task {id} was told of {len(told)} failures; a person must look at it")
        if task.status in (TaskStatus.CANCELLED, TaskStatus.DONE):
            return ignored(f"task {id} is {task.status.value}")
        failed = await self._reports.failed_run(arrived.repository, run)
        await self._tasks.message(ADMIN, id, f"{run_text(failed)}\n\n({note})", kind="checks")
        return Handled(outcome=f"task {id} was told", acted=True, tasks=(id,))

    async def _ci_elsewhere(self, arrived: Arrived, run: Payload, branch: str, sha: str) -> Handled:
        name = payloads.line(run, "name", 200)

        def fits(rule: TriggerRule) -> bool:
            return any(fnmatchcase(branch, each) for each in rule.branches) and any(
                fnmatchcase(name, each) for each in rule.workflows
            )

        rule = self._rule(TriggerWhen.CI_FIX, arrived, fits)
        if rule is None:
            return ignored(f"no rule is about {name!r} on {branch}")
        refusal = await self._refusal(arrived, rule)
        if refusal is not None:
            return refusal
        failed = await self._reports.failed_run(arrived.repository, payloads.number(run, "id"))
        log = run_text(failed)
        values = {"title": name, "body": "", "comment": "", "url": failed.url, "log": log}
        prompt = (
            _filled(rule.prompt, values) if rule.prompt else f"Fix the failing workflow {name!r} of {branch}.\n\n{log}"
        )
        key = f"github-ci-{arrived.repository.id}-{sha}"
        more = {"title": f"Fix {name} on {branch}"[:120], "base": branch}
        task = await self._create(arrived, rule, prompt, key=key, **more)
        return Handled(outcome=f"task {task.id} was made by rule {rule.name!r}", acted=True, tasks=(task.id,))

    async def _prompts(self, id: str) -> Sequence[Entry]:
        found: list[Entry] = []
        while page := await self._timeline.page(id, found[-1].seq if found else 0, 200, {EntryKind.PROMPT}):
            found += page
        return found

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

    # -- who may, and what is made ----------------------------------------------------------------------------------

    def _rule(
        self, when: TriggerWhen, arrived: Arrived, fits: Callable[[TriggerRule], bool] = lambda _: True
    ) -> TriggerRule | None:
        for rule in self._rules:
            wanted = not rule.repositories or any(
                fnmatchcase(arrived.repository.name, each) for each in rule.repositories
            )
            if rule.when is when and wanted and fits(rule):
                return rule
        return None

    async def _refusal(self, arrived: Arrived, rule: TriggerRule | None) -> Handled | None:
        """None: whoever sent it may command us."""
        login = arrived.sender.login
        if arrived.sender.is_bot:
            if rule is not None and login.lower() in {each.lower() for each in rule.bots}:
                return None
            return ignored(f"{login} is a bot, and no rule lists it")
        least = rule.permission if rule is not None else "write"
        if await self._reports.may(arrived.repository, login, least):
            return None
        return ignored(f"{login} has no {least} permission in {arrived.delivery.repository}")

    async def _create(
        self, arrived: Arrived, rule: TriggerRule, prompt: str, *, title: str | None, key: str = "", **more: Any
    ) -> Task:
        key = key or arrived.key
        await self._budget.check(rule, key)
        limits = TaskLimits()
        if rule.seconds is not None or rule.cost_usd is not None:
            limits = TaskLimits(seconds=rule.seconds or limits.seconds, cost_usd=rule.cost_usd)
        request = TaskRequest(
            repository=arrived.repository.name,
            prompt=prompt,
            title=title,
            user_id=arrived.repository.user_id,
            agent=rule.agent,
            model=rule.model,
            template=rule.template,
            command=rule.command,
            checks=rule.checks,
            limits=limits,
            labels=(f"rule:{rule.name}",),
            start=rule.start,
            idempotency_key=key,
            **more,
        )
        return await self._tasks.create(ADMIN, request)

    async def _answer(self, arrived: Arrived, number: int, task: Task) -> None:
        """Say that it is begun, where it was asked for. The marker makes it one comment however often this is tried."""
        text = f"On it: task `{task.id}`, on the branch `{task.branch}`."
        try:
            await self._forge.comment(arrived.repository, number, text, marker=f"task-{task.id}")
        except (NotFound, Conflict):
            return


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Only our own names are replaced, once: what people wrote is no template."""
    found = template
    parts = []
    while found:
        at = [(found.find(f"{{{name}}}"), name) for name in (*values, "log") if f"{{{name}}}" in found]
        if not at:
            break
        place, name = min(at)
        parts += [found[:place], values.get(name, "")]
        found = found[place + len(name) + 2 :]
    return "".join([*parts, found])


def _issue_prompt(values: Mapping[str, str], sender: Sender, number: int) -> str:
    parts = [values["comment"], f"# {values['title']}", values["body"], f"This is issue {number}: {values['url']}"]
    return "\n\n".join(part for part in parts if part.strip(" #"))


def _pull_prompt(values: Mapping[str, str], sender: Sender, number: int) -> str:
    about = (
        f"This is about pull request {number}, “{values['title']}”: {values['url']}. Your branch starts at its head."
    )
    return "\n\n".join(part for part in (values["comment"], about, values["body"]) if part)
