"""What GitHub knows beyond pull requests: what people may, how jobs failed and what reviews say; and what we report on commits."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gidgethub

from sandlot.platform.core.errors import NotFound
from sandlot.platform.core.forges import PullComment, Repository
from sandlot.platform.forges import github_records as records
from sandlot.platform.forges.github_accounts import GitHubAccounts
from sandlot.platform.forges.github_requests import asked

MAX_LOG = 64 << 10
MAX_FILE = 256 << 10
MAX_SUMMARY = 60_000
RED = ("failure", "timed_out")
MAX_JOBS = 40
_PATH = re.compile(r"\.github/workflows/[\w. -]{1,200}\.ya?ml")
_RANKS = ("none", "read", "triage", "write", "maintain", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowJob:
    """A job of GitHub Actions. `log` is the end of what it said, if it failed; None if GitHub no longer has it."""

    id: int
    name: str
    url: str
    conclusion: str
    steps: tuple[tuple[str, str], ...]  # their names and how they ended, in their order
    log: str | None = None

    @property
    def failed_steps(self) -> tuple[str, ...]:
        return tuple(name for name, conclusion in self.steps if conclusion in RED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun:
    """A run of a workflow, with its jobs."""

    id: int
    workflow: str
    path: str  # of the workflow's file
    event: str
    url: str
    head_sha: str
    head_branch: str
    is_over: bool = True
    is_of_fork: bool = False
    jobs: tuple[WorkflowJob, ...] = ()

    @property
    def failed(self) -> tuple[WorkflowJob, ...]:
        return tuple(job for job in self.jobs if job.conclusion in RED)


class GitHubReports:
    def __init__(self, accounts: GitHubAccounts) -> None:
        self._accounts = accounts

    async def own_login(self, repository: Repository) -> str:
        return await self._accounts.login(repository)

    async def may(self, repository: Repository, login: str, least: str = "write") -> bool:
        """Whether this account has at least this permission. One that GitHub does not know has none."""
        async with asked(self._accounts, repository, f"ask what {login!r} may") as asking:
            try:
                found = await asking.get("/collaborators{/login}/permission", login=login)
            except gidgethub.BadRequest as error:
                if int(error.status_code) == 404:
                    return False
                raise
            ranks = [_RANKS.index(name) for name in (found.get("role_name"), found["permission"]) if name in _RANKS]
        return max(ranks, default=0) >= _RANKS.index(least)

    async def tip(self, repository: Repository, branch: str) -> str | None:
        async with asked(self._accounts, repository, f"look at branch {branch!r}") as asking:
            try:
                return str((await asking.get("/branches{/branch}", branch=branch))["commit"]["sha"])
            except gidgethub.BadRequest as error:
                if int(error.status_code) == 404:
                    return None
                raise

    async def review_comments(self, repository: Repository, number: int, review: int) -> Sequence[PullComment]:
        async with asked(self._accounts, repository, f"read a review of pull request {number}") as asking:
            listed = await asking.all("/pulls{/number}/reviews{/review}/comments", number=number, review=review)
            return [records.issue_comment(each) for each in listed]

    async def run(self, repository: Repository, id: int) -> WorkflowRun:
        """A run with its jobs, and the ends of the logs of those that failed."""
        async with asked(self._accounts, repository, f"read run {id} of GitHub Actions") as asking:
            run = await asking.get("/actions/runs{/id}", id=id)
            jobs = (await asking.all("/actions/runs{/id}/jobs", key="jobs", id=id))[:MAX_JOBS]
        found = [await self._job(repository, job) for job in jobs]
        return WorkflowRun(
            id=id,
            workflow=records.text(run.get("name"), 200),
            path=records.text(run.get("path"), 500).partition("@")[0],
            event=records.text(run.get("event"), 100),
            url=str(run["html_url"]),
            head_sha=str(run["head_sha"]),
            head_branch=records.text(run.get("head_branch"), 300),
            is_over=run.get("status") == "completed" or all(job.get("conclusion") for job in jobs),
            is_of_fork=_id(run.get("head_repository")) != _id(run.get("repository")),
            jobs=tuple(found),
        )

    async def _job(self, repository: Repository, job: Mapping[str, Any]) -> WorkflowJob:
        log: str | None = None
        if job.get("conclusion") in RED:
            try:
                async with asked(self._accounts, repository, f"read the log of job {job['id']}") as asking:
                    log = await asking.text("/actions/jobs{/id}/logs", MAX_LOG, id=job["id"])
            except NotFound:  # GitHub keeps logs for a while only
                log = None
        steps = [step for step in job.get("steps") or () if isinstance(step, Mapping)][:200]
        return WorkflowJob(
            id=int(job["id"]),
            name=records.text(job["name"], 300),
            url=str(job.get("html_url") or ""),
            conclusion=records.text(job.get("conclusion"), 40),
            steps=tuple((records.text(s.get("name"), 300), records.text(s.get("conclusion"), 40)) for s in steps),
            log=log,
        )

    async def workflow_file(self, repository: Repository, path: str, sha: str) -> str | None:
        """The workflow as it was at this commit; None if it is not there, or too large."""
        if not _PATH.fullmatch(path):
            return None
        async with asked(self._accounts, repository, f"read {path}") as asking:
            try:
                found = await asking.get("/contents{/folder,workflows,file}{?ref}", **_steps_of(path), ref=sha)
            except gidgethub.BadRequest as error:
                if int(error.status_code) in (404, 403):
                    return None
                raise
            if found.get("encoding") != "base64" or int(found.get("size") or 0) > MAX_FILE:
                return None
            return base64.b64decode(str(found["content"])).decode(errors="replace")

    async def annotations(self, repository: Repository, check: int) -> str:
        """What a check run of another CI says of its failure."""
        async with asked(self._accounts, repository, f"read check run {check}") as asking:
            found = await asking.get("/check-runs{/id}", id=check)
            output = found.get("output") or {}
            lines = [records.text(output.get(name), 20_000) for name in ("title", "summary", "text")]
            for each in (await asking.all("/check-runs{/id}/annotations", id=check))[:50]:
                place = f"{records.text(each.get('path'), 300)}:{each.get('start_line')}"
                lines.append(f"{place}: {records.text(each.get('message'), 2000)}")
        return "\n".join(line for line in lines if line)

    async def report(
        self, repository: Repository, sha: str, name: str, state: str, summary: str, url: str | None = None
    ) -> None:
        """A status on a commit: pending, success, failure or error. The last one of a name counts."""
        body = {"state": state, "context": name[:100], "description": " ".join(summary.split())[:140]}
        async with asked(self._accounts, repository, f"report on commit {sha[:10]}") as asking:
            await asking.post("/statuses{/sha}", body | ({"target_url": url} if url else {}), sha=sha)

    async def check(
        self, repository: Repository, sha: str, name: str, state: str, title: str, summary: str, url: str | None = None
    ) -> None:
        """A check run of the App on a commit: the one of this name is changed, else made. States are those of statuses."""
        ended = {"success": "success", "failure": "failure", "error": "neutral"}.get(state)
        body: dict[str, Any] = {"output": {"title": title[:250], "summary": summary[:MAX_SUMMARY]}}
        body |= {"status": "completed", "conclusion": ended} if ended else {"status": "in_progress"}
        body |= {"details_url": url} if url else {}
        async with asked(self._accounts, repository, f"report on commit {sha[:10]}") as asking:
            listed = await asking.get(
                "/commits{/sha}/check-runs{?check_name,per_page}", sha=sha, check_name=name, per_page="100"
            )
            known = next((each["id"] for each in listed["check_runs"] if each["name"] == name), None)
            if known is not None:
                await asking.patch("/check-runs{/id}", body, id=known)
            else:
                await asking.post("/check-runs", {**body, "name": name, "head_sha": sha})


def _id(repository: Any) -> Any:
    return repository.get("id") if isinstance(repository, Mapping) else None


def _steps_of(path: str) -> dict[str, str]:
    folder, workflows, file = path.split("/", 2)
    return {"folder": folder, "workflows": workflows, "file": file}
