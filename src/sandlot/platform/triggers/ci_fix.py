"""Red CI: a task's own pull request goes back to its agent; elsewhere a rule makes a task that has to prove its fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sandlot.platform.core.errors import NotFound
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.forges import PullRequest, PullRequestState, Repository
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.proofs import ProofSpec, Trial, TrialStep
from sandlot.platform.core.tasks import Entry, EntryKind, Task, TaskStatus
from sandlot.platform.core.triggers import Handled, TriggerRule, TriggerWhen
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import place_of
from sandlot.platform.forges.github_reports import RED, GitHubReports, WorkflowRun
from sandlot.platform.tasks.service import NOBODY, Tasks
from sandlot.platform.tasks.timeline import Timeline
from sandlot.platform.triggers import payloads
from sandlot.platform.triggers.failures import check_text, log_of, run_text
from sandlot.platform.triggers.making import Arrived, TaskMaking, filled, ignored, made
from sandlot.platform.triggers.payloads import Payload
from sandlot.platform.triggers.rules import ADMIN
from sandlot.platform.triggers.workflows import WorkflowPlace, extracted

CI_TURNS = 3  # how often red checks go back to a task's agent
CI_RED = "ci.red"
ACTIONS = "github-actions"  # the slug of GitHub's own CI
MAX_LOG = 6000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that failed on a commit that is the tip of its branch."""

    title: str
    branch: str
    sha: str
    run: int = 0  # of GitHub Actions; 0: another CI
    check: int = 0  # the check run of another CI


class CiFix:
    def __init__(
        self,
        *,
        making: TaskMaking,
        tasks: Tasks,
        forge: GitHubForge,
        reports: GitHubReports,
        timeline: Timeline,
        events: EventLog,
        clock: Clock,
    ) -> None:
        self._making, self._tasks, self._forge, self._reports = making, tasks, forge, reports
        self._timeline, self._events, self._clock = timeline, events, clock

    # -- what may have failed ---------------------------------------------------------------------------------------

    async def workflow_ended(self, arrived: Arrived) -> Handled:
        run = payloads.part(arrived.payload, "workflow_run")
        if run.get("conclusion") not in RED:
            return ignored("it did not fail")
        if payloads.part(run, "head_repository").get("id") != payloads.part(arrived.payload, "repository").get("id"):
            return ignored("runs of forks are left alone: their code must not meet our secrets")
        return await self._failed(arrived, run, payloads.line(run, "name", 200), run=payloads.number(run, "id"))

    async def job_ended(self, arrived: Arrived) -> Handled:
        """The run as a whole tells more. Where only jobs are told of, the last one stands for it."""
        job = payloads.part(arrived.payload, "workflow_job")
        if job.get("conclusion") not in RED:
            return ignored("it did not fail")
        id = payloads.number(job, "run_id")
        run = await self._reports.run(arrived.repository, id)
        if not run.is_over:
            return ignored("the workflow's run goes on, and tells when it has ended")
        if run.is_of_fork:
            return ignored("runs of forks are left alone: their code must not meet our secrets")
        return await self._failed(arrived, job, run.workflow, run=id)

    async def check_ended(self, arrived: Arrived) -> Handled:
        """A check of another CI. What GitHub Actions found is told by its workflows."""
        check = payloads.part(arrived.payload, arrived.delivery.event)
        if check.get("conclusion") not in RED:
            return ignored("it did not fail")
        app = payloads.line(payloads.part(check, "app"), "slug", 100)
        if app == ACTIONS:
            return ignored("it is of GitHub Actions, whose workflows tell of it")
        own = (await self._reports.own_login(arrived.repository)).lower()
        if f"{app}[bot]".lower() == own:
            return ignored("we did this ourselves")
        suite = check if arrived.delivery.event == "check_suite" else payloads.part(check, "check_suite")
        record = {"head_branch": suite.get("head_branch"), "head_sha": check.get("head_sha")}
        title = payloads.line(check, "name", 200) or app or "a check"
        id = payloads.number(check, "id") if arrived.delivery.event == "check_run" else 0
        return await self._failed(arrived, record, title, check=id)

    async def _failed(self, arrived: Arrived, record: Payload, title: str, *, run: int = 0, check: int = 0) -> Handled:
        branch, sha = payloads.branch(record, "head_branch"), payloads.sha(record, "head_sha")
        if branch is None or sha is None:
            return ignored("it is of no branch")
        if await self._reports.tip(arrived.repository, branch) != sha:
            return ignored(f"{branch} has moved on from {sha[:10]}")
        failure = Failure(title=title, branch=branch, sha=sha, run=run, check=check)
        id = payloads.task_of(branch)
        if id is not None:
            return await self._of_task(arrived, id, failure)
        return await self._elsewhere(arrived, failure)

    # -- on a task's own branch -------------------------------------------------------------------------------------

    async def _of_task(self, arrived: Arrived, id: str, failure: Failure) -> Handled:
        try:
            task = await self._tasks.find(ADMIN, id)
        except NotFound:
            return ignored(f"there is no task {id}")
        link, sha = task.pull_request, failure.sha
        if task.spec.repository != arrived.repository.name or link is None or link.state != "open":
            return ignored(f"task {id} has no open pull request here")
        told = [each for each in await self._prompts(id) if each.data.get("kind") == "checks"]
        note = f"run {failure.run or failure.check} on {sha}"
        if any(note in each.text for each in told) or any(note in text for text in task.pending):
            return Handled(outcome=f"task {id} was told", acted=True, tasks=(id,))
        if any(sha in each.text for each in told):
            return ignored(f"task {id} was told of a failure on {sha[:10]} already")
        if len(told) >= CI_TURNS:
            return ignored(f"task {id} was told of {len(told)} failures; a person must look at it")
        if task.status in (TaskStatus.CANCELLED, TaskStatus.DONE):
            return ignored(f"task {id} is {task.status.value}")
        text = await self._words(arrived.repository, failure)
        await self._tasks.message(ADMIN, id, f"{text}\n\n({note})", kind="checks")
        await self._tell(task.user_id, arrived.repository, failure, task)
        return Handled(outcome=f"task {id} was told", acted=True, tasks=(id,))

    async def _words(self, repository: Repository, failure: Failure) -> str:
        if failure.run:
            return run_text(await self._reports.run(repository, failure.run))
        said = await self._reports.annotations(repository, failure.check) if failure.check else ""
        return check_text(failure.title, failure.sha, said)

    async def _prompts(self, id: str) -> Sequence[Entry]:
        found: list[Entry] = []
        while page := await self._timeline.page(id, found[-1].seq if found else 0, 200, {EntryKind.PROMPT}):
            found += page
        return found

    # -- elsewhere --------------------------------------------------------------------------------------------------

    async def _elsewhere(self, arrived: Arrived, failure: Failure) -> Handled:
        branch, repository = failure.branch, arrived.repository

        def fits(rule: TriggerRule) -> bool:
            return any(fnmatchcase(branch, each) for each in rule.branches) and any(
                fnmatchcase(failure.title, each) for each in rule.workflows
            )

        rule = await self._making.rule(TriggerWhen.CI_FIX, repository, fits)
        if rule is None:
            return ignored(f"no rule is about {failure.title!r} on {branch}")
        own = (await self._reports.own_login(repository)).lower()
        if arrived.sender.login.lower() != own:  # a fix of ours that did not hold: `per_pull` ends that
            refusal = await self._making.refusal(arrived, rule)
            if refusal is not None:
                return refusal
        pull = await self._pull(repository, failure)
        if pull is not None and rule.skip_label in pull.labels:
            return ignored(f"pull request {pull.number} has the label {rule.skip_label!r}")
        text, proof = await self._proof(arrived, rule, failure, pull)
        values = {"title": failure.title, "body": "", "comment": "", "url": proof.url, "log": text}
        prompt = (
            filled(rule.prompt, values) if rule.prompt else f"Fix what fails: {failure.title} on {branch}.\n\n{text}"
        )
        place = f"pull:{pull.number}" if pull is not None else f"branch:{branch}"
        task = await self._making.create(
            rule,
            repository,
            prompt,
            key=f"github-ci-{repository.id}-{failure.sha}{arrived.replay}",
            place=place,
            title=f"Fix {failure.title} on {branch}"[:120],
            base=branch,
            proof=proof,
        )
        await self._tell(task.user_id, repository, failure, task)
        return made(task, rule)

    async def _pull(self, repository: Repository, failure: Failure) -> PullRequest | None:
        """The open one of this branch, in the same repository."""
        listed = await self._forge.pull_requests(repository, PullRequestState.OPEN, head=failure.branch)
        return next((each for each in listed if each.head == failure.branch and not each.is_fork), None)

    async def _proof(
        self, arrived: Arrived, rule: TriggerRule, failure: Failure, pull: PullRequest | None
    ) -> tuple[str, ProofSpec]:
        """The failure in words for the agent, and what has to be shown."""
        repository, known = arrived.repository, rule.template is not None
        trials: tuple[Trial, ...] = ()
        problem, log, text = None, "", ""
        there = place_of(repository.url)
        url = f"{there.origin}/{there.full_name}/commit/{failure.sha}"
        if failure.run:
            run = await self._reports.run(repository, failure.run)
            text, url, log = run_text(run), run.url, _log(run)
            if not rule.reproduce:
                trials, problem = await self._trials(repository, run, pull, known)
        else:
            text = await self._words(repository, failure)
            log, problem = text[-MAX_LOG:], "it is no workflow of GitHub Actions; say in the rule how to `reproduce` it"
        if rule.reproduce:
            trials, problem = _own_trials(rule), None
        spec = ProofSpec(
            sha=failure.sha,
            branch=failure.branch,
            title=failure.title,
            url=url,
            pull=pull.number if pull is not None else None,
            log=log,
            trials=trials,
            problem=problem,
            unproven=rule.unproven,
        )
        return text, spec

    async def _trials(
        self, repository: Repository, run: WorkflowRun, pull: PullRequest | None, known: bool
    ) -> tuple[tuple[Trial, ...], str | None]:
        file = await self._reports.workflow_file(repository, run.path, run.head_sha)
        if file is None:
            return (), f"the workflow's file {run.path[:200]!r} is not at this commit"
        place = WorkflowPlace(
            repository=place_of(repository.url).full_name,
            branch=run.head_branch,
            sha=run.head_sha,
            event=run.event or "push",
            number=pull.number if pull is not None else None,
            has_template=known,
        )
        found = extracted(file, place, run.jobs)
        if found.trials:
            return found.trials, None
        return (), "; ".join(found.problems)[:1000] or "no job failed"

    async def _tell(self, user: str | None, repository: Repository, failure: Failure, task: Task) -> None:
        data = {
            "repository": repository.name,
            "branch": failure.branch,
            "sha": failure.sha,
            "title": failure.title,
            "task": {"id": task.id, "title": task.spec.title},
        }
        event = Event(
            type=CI_RED, at=self._clock(), user_id=user or NOBODY, subject=Subject("task", task.id), data=data
        )
        await self._events.append(event)


def _log(run: WorkflowRun) -> str:
    return "\n\n".join(f"{job.name}:\n{log_of(job.log, MAX_LOG // 2)}" for job in run.failed[:2] if job.log)


def _own_trials(rule: TriggerRule) -> tuple[Trial, ...]:
    """What the operator says shows the failure: all commands in their order, in one shell each."""
    *before, last = [
        TrialStep(name=command.strip().splitlines()[0][:100], script=command) for command in rule.reproduce
    ]
    return (Trial(name=rule.name, steps=(*before, last), failed=True),)
