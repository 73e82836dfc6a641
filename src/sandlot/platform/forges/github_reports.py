"""What GitHub knows beyond pull requests: what people may, how jobs failed and what reviews say; and what we report on commits."""

from __future__ import annotations

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
_RANKS = ("none", "read", "triage", "write", "maintain", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job of GitHub Actions that failed. `log` is the end of what it said; None if GitHub no longer has it."""

    id: int
    name: str
    url: str
    steps: tuple[str, ...]  # those that failed
    log: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run of a workflow that failed."""

    id: int
    workflow: str
    path: str  # of the workflow's file
    url: str
    head_sha: str
    head_branch: str
    jobs: tuple[FailedJob, ...] = ()


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

    async def failed_run(self, repository: Repository, id: int) -> FailedRun:
        """A run with the jobs that failed, and the ends of their logs."""
        async with asked(self._accounts, repository, f"read run {id} of GitHub Actions") as asking:
            run = await asking.get("/actions/runs{/id}", id=id)
            jobs = await asking.all("/actions/runs{/id}/jobs", key="jobs", id=id)
            red = [job for job in jobs if job.get("conclusion") in ("failure", "timed_out")][:10]
        found = [await self._job(repository, job) for job in red]
        return FailedRun(
            id=id,
            workflow=records.text(run.get("name"), 200),
            path=records.text(run.get("path"), 500).partition("@")[0],
            url=str(run["html_url"]),
            head_sha=str(run["head_sha"]),
            head_branch=records.text(run.get("head_branch"), 300),
            jobs=tuple(found),
        )

    async def _job(self, repository: Repository, job: Mapping[str, Any]) -> FailedJob:
        log: str | None = None
        try:
            async with asked(self._accounts, repository, f"read the log of job {job['id']}") as asking:
                log = await asking.text("/actions/jobs{/id}/logs", MAX_LOG, id=job["id"])
        except NotFound:  # GitHub keeps logs for a while only
            log = None
        steps = [step for step in job.get("steps") or () if step.get("conclusion") in ("failure", "timed_out")]
        return FailedJob(
            id=int(job["id"]),
            name=records.text(job["name"], 300),
            url=str(job.get("html_url") or ""),
            steps=tuple(records.text(step.get("name"), 300) for step in steps[:20]),
            log=log,
        )

    async def report(
        self, repository: Repository, sha: str, name: str, state: str, summary: str, url: str | None = None
    ) -> None:
        """A status on a commit: pending, success, failure or error. The last one of a name counts."""
        body = {"state": state, "context": name[:100], "description": " ".join(summary.split())[:140]}
        async with asked(self._accounts, repository, f"report on commit {sha[:10]}") as asking:
            await asking.post("/statuses{/sha}", body | ({"target_url": url} if url else {}), sha=sha)
