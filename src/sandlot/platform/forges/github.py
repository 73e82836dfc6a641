"""GitHub as a forge: repositories, pull requests and issues by its REST API, at github.com or an Enterprise Server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import gidgethub

from sandlot.platform.core.errors import (
    Conflict,
    ForgeRefused,
    InvalidRequest,
    NotFound,
    NothingToMerge,
    Unavailable,
)
from sandlot.platform.core.forges import (
    GitRemote,
    Issue,
    PullComment,
    PullRequest,
    PullRequestChange,
    PullRequestCheck,
    PullRequestSpec,
    PullRequestState,
    Repository,
    RepositoryFacts,
)
from sandlot.platform.forges import github_records as records
from sandlot.platform.forges.github_accounts import GitHubAccounts, origin_of, place_of
from sandlot.platform.forges.github_reports import GitHubReports
from sandlot.platform.forges.github_requests import RepositoryRequests, asked
from sandlot.platform.forges.remote import basic

MAX_BODY = 65_000  # GitHub takes 65,536 characters
MAX_TITLE = 250
_MARKER = re.compile(r"[A-Za-z0-9_./-]{1,100}")
_READY = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }"
_DRAFT = "mutation($id: ID!) { convertPullRequestToDraft(input: {pullRequestId: $id}) { clientMutationId } }"


class GitHubForge:
    name = "github"
    has_pull_requests = True

    def __init__(self, accounts: GitHubAccounts) -> None:
        self.accounts = accounts

    async def close(self) -> None:
        await self.accounts.close()

    def is_at(self, url: str) -> bool:
        return self.accounts.is_github(url)

    def speaks_for(self, url: str) -> bool:
        app = self.accounts.app
        return app is not None and origin_of(app.url) == origin_of(url)

    async def may_command(self, repository: Repository, login: str) -> bool:
        if login.endswith("[bot]"):
            return False
        return await GitHubReports(self.accounts).may(repository, login)

    async def describe(self, repository: Repository) -> RepositoryFacts:
        async with asked(self.accounts, repository, f"look at repository {repository.name!r} at GitHub") as asking:
            found = await asking.get("")
            branch = str(found["default_branch"])
            try:
                await asking.get("/branches{/branch}", branch=branch)
            except gidgethub.BadRequest as error:
                if int(error.status_code) != 404:
                    raise
                return RepositoryFacts(default_branch=None, web_url=str(found["html_url"]))
            if repository.github_app:
                may_push = await self.accounts.may_push(repository)
            else:
                may_push = bool((found.get("permissions") or {}).get("push"))
            return RepositoryFacts(default_branch=branch, web_url=str(found["html_url"]), may_push=may_push)

    async def remote(self, repository: Repository, *, write: bool = False) -> GitRemote:
        token = await self.accounts.git_token(repository, write=write)
        authorization = basic("x-access-token", token) if token else None
        return GitRemote(url=place_of(repository.url).clone_url, authorization=authorization)

    # -- pull requests ----------------------------------------------------------------------------------------------

    async def open_pull_request(self, repository: Repository, spec: PullRequestSpec) -> PullRequest:
        async with asked(self.accounts, repository, f"open a pull request for {spec.head}") as asking:
            found = await self._open(asking, spec)
            if found is None:
                found = await self._create(asking, spec)
            await self._decorate(asking, int(found["number"]), found, spec)
        return await self.pull_request(repository, int(found["number"]))

    async def _open(self, asking: RepositoryRequests, spec: PullRequestSpec) -> Mapping[str, Any] | None:
        head = f"{asking.owner}:{spec.head}"  # without the owner GitHub ignores the filter
        listed = await asking.get("/pulls{?head,base,state}", head=head, base=spec.base, state="open")
        return next((each for each in listed if each["head"]["ref"] == spec.head), None)

    async def _create(self, asking: RepositoryRequests, spec: PullRequestSpec) -> Mapping[str, Any]:
        body = {
            "title": spec.title[:MAX_TITLE],
            "head": spec.head,
            "base": spec.base,
            "body": _cut(spec.body),
            "draft": spec.draft,
        }
        try:
            return await asking.post("/pulls", body)
        except (gidgethub.InvalidField, gidgethub.ValidationError) as error:
            return await self._created_anyway(asking, spec, body, error)
        except (gidgethub.GitHubBroken, Unavailable):
            # It may have been made before the answer was lost. If not, whoever asked may ask again.
            found = await self._open(asking, spec)
            if found is None:
                raise
            return found

    async def _created_anyway(
        self, asking: RepositoryRequests, spec: PullRequestSpec, body: Mapping[str, Any], error: Any
    ) -> Mapping[str, Any]:
        """What a 422 means is in its words only."""
        words, fields = _words_of(error), _fields_of(error)
        if "already exists" in words:
            found = await self._open(asking, spec)
            if found is not None:
                return found
        if "no commits between" in words:
            raise NothingToMerge(f"{spec.head} has no commit that {spec.base} lacks") from error
        if "draft" in words and body["draft"]:  # some plans have no drafts in private repositories
            return await self._create(asking, replace(spec, draft=False))
        missing = [name for name in ("head", "base") if name in fields]
        if missing:
            names = " and ".join(repr(getattr(spec, name)) for name in missing)
            raise InvalidRequest(f"there is no branch {names} at GitHub") from error
        raise error

    async def _decorate(
        self, asking: RepositoryRequests, number: int, found: Mapping[str, Any], spec: PullRequestSpec
    ) -> None:
        """Labels and reviewers: niceties, for which a pull request is not given up."""
        wanted = [label for label in spec.labels[:50] if label not in records.labels(found.get("labels"))]
        if wanted:
            await _tried(asking.post("/issues{/number}/labels", {"labels": wanted}, number=number))
        waiting = {records.login(user).lower() for user in found.get("requested_reviewers") or ()}
        own = records.login(found.get("user")).lower()
        people = [name for name in spec.reviewers[:15] if name.lower() not in {*waiting, own} and "/" not in name]
        teams = [name.split("/", 1)[1] for name in spec.reviewers[:15] if "/" in name]
        for body in ({"reviewers": people}, {"team_reviewers": teams}):
            if any(body.values()):
                await _tried(asking.post("/pulls{/number}/requested_reviewers", body, number=number))

    async def pull_request(self, repository: Repository, number: int) -> PullRequest:
        async with asked(self.accounts, repository, f"look at pull request {number}") as asking:
            found = records.pull_request(await asking.get("/pulls{/number}", number=number))
            said = await asking.all("/issues{/number}/comments", number=number)
            on_lines = await asking.all("/pulls{/number}/comments", number=number)
            reviews = [each for each in await asking.all("/pulls{/number}/reviews", number=number) if each.get("body")]
            found_comments = [*map(records.issue_comment, chain(said, on_lines)), *map(records.review, reviews)]
            comments = sorted(found_comments, key=lambda each: each.created_at)
            checks = await self._checks(asking, found.head_sha or "")
            return replace(found, comments=tuple(comments), checks=checks)

    async def pull_requests(
        self, repository: Repository, state: PullRequestState | None = None, *, head: str | None = None
    ) -> Sequence[PullRequest]:
        states = {None: "all", PullRequestState.OPEN: "open"}
        async with asked(self.accounts, repository, "list pull requests") as asking:
            values = {"state": states.get(state, "closed"), "sort": "created", "direction": "desc", "per_page": "100"}
            if head is not None:
                values["head"] = f"{asking.owner}:{head}"
            listed = await asking.get("/pulls{?state,sort,direction,per_page,head}", **values)
            found = [records.pull_request(each) for each in listed]
        return [each for each in found if state is None or each.state is state]

    async def update(self, repository: Repository, number: int, change: PullRequestChange) -> PullRequest:
        async with asked(self.accounts, repository, f"change pull request {number}") as asking:
            old = await asking.get("/pulls{/number}", number=number)
            before = records.pull_request(old)
            moves = change.state is not None and change.state is not before.state
            if moves and PullRequestState.MERGED in (change.state, before.state):
                raise Conflict(f"pull request {number} is {before.state.value}; its state cannot be changed like this")
            body = {
                "title": None if change.title is None else change.title[:MAX_TITLE],
                "body": None if change.body is None else _cut(change.body),
                "state": change.state.value if change.state is not None and moves else None,
            }
            wanted = {name: value for name, value in body.items() if value is not None}
            if wanted:
                await asking.patch("/pulls{/number}", wanted, number=number)
            if change.labels is not None:
                await asking.put("/issues{/number}/labels", {"labels": list(change.labels[:50])}, number=number)
            if change.draft is not None and change.draft is not before.draft:
                await asking.graphql(_DRAFT if change.draft else _READY, id=old["node_id"])
        return await self.pull_request(repository, number)

    async def comment(
        self,
        repository: Repository,
        number: int,
        body: str,
        *,
        marker: str | None = None,
        author: str = "",
        path: str | None = None,
        line: int | None = None,
    ) -> PullComment:
        """The account of the token is its author there; `author` is not shown."""
        if marker is not None and not _MARKER.fullmatch(marker):
            raise InvalidRequest("a marker has letters, digits, and _ . / -")
        body = records.marked(_cut(body), marker)
        async with asked(self.accounts, repository, f"comment on pull request {number}") as asking:
            known = await self._marked(repository, asking, number, marker) if marker is not None else None
            if known is not None:
                made = await asking.patch("/issues/comments{/id}", {"body": body}, id=known)
            elif path is not None and line is not None:
                made = await self._on_line(asking, number, body, path, line)
            else:
                made = await asking.post("/issues{/number}/comments", {"body": body}, number=number)
            return records.issue_comment(made)

    async def _marked(self, repository: Repository, asking: RepositoryRequests, number: int, marker: str) -> int | None:
        """Our own comment with this marker: anybody may write one that looks like it."""
        own = (await self.accounts.login(repository)).lower()
        for each in map(records.issue_comment, await asking.all("/issues{/number}/comments", number=number)):
            if each.marker == marker and each.author.lower() == own:
                return each.id
        return None

    async def _on_line(
        self, asking: RepositoryRequests, number: int, body: str, path: str, line: int
    ) -> dict[str, Any]:
        pull = await asking.get("/pulls{/number}", number=number)
        place = {"path": path, "line": line, "side": "RIGHT", "commit_id": pull["head"]["sha"]}
        try:
            return await asking.post("/pulls{/number}/comments", {"body": body, **place}, number=number)
        except (gidgethub.InvalidField, gidgethub.ValidationError):  # a line that the pull request does not touch
            return await asking.post(
                "/issues{/number}/comments", {"body": f"`{path}`, line {line}:\n\n{body}"}, number=number
            )

    async def merge(self, repository: Repository, number: int, *, sha: str | None = None) -> PullRequest:
        async with asked(self.accounts, repository, f"merge pull request {number}") as asking:
            before = records.pull_request(await asking.get("/pulls{/number}", number=number))
            if before.state is PullRequestState.CLOSED:
                raise Conflict(f"pull request {number} is closed")
            if before.state is PullRequestState.OPEN:
                if before.draft:
                    raise Conflict(f"pull request {number} is a draft; mark it as ready first")
                if sha is not None and before.head_sha != sha:
                    raise Conflict(f"the head of pull request {number} has moved; look at it again")
                await self._merge(asking, before)
        return await self.pull_request(repository, number)

    async def _merge(self, asking: RepositoryRequests, pull: PullRequest) -> None:
        settings = await asking.get("")
        ways = [way for way in ("merge", "squash", "rebase") if settings.get(_ALLOWS[way], True)]
        body = {"sha": pull.head_sha, "merge_method": (ways or ["merge"])[0]}
        try:
            await asking.put("/pulls{/number}/merge", body, number=pull.number)
        except gidgethub.BadRequest as error:
            if int(error.status_code) == 405:
                raise Conflict(f"{pull.head} cannot be merged into {pull.base}: {_words_of(error)}") from error
            raise

    async def report_on(
        self, repository: Repository, sha: str, *, name: str, state: str, title: str, summary: str, url: str | None
    ) -> None:
        """A check run where an App speaks for the repository; other accounts may only set a status."""
        reports = GitHubReports(self.accounts)
        if repository.github_app:
            await reports.check(repository, sha, name, state, title, summary, url)
        else:
            await reports.report(repository, sha, name, state, title, url)

    async def issue(self, repository: Repository, number: int) -> Issue:
        async with asked(self.accounts, repository, f"read issue {number}") as asking:
            found = await asking.get("/issues{/number}", number=number)
            if "pull_request" in found:
                raise InvalidRequest(f"{number} is a pull request, not an issue")
            return records.issue(found)

    async def _checks(self, asking: RepositoryRequests, sha: str) -> tuple[PullRequestCheck, ...]:
        """What reports on a commit: check runs, and statuses of older programs. A token may see neither."""
        found: list[PullRequestCheck] = []
        try:
            runs = await asking.get("/commits{/sha}/check-runs{?per_page}", sha=sha, per_page="100")
            found += map(records.check_run, runs["check_runs"])
            status = await asking.get("/commits{/sha}/status{?per_page}", sha=sha, per_page="100")
            found += map(records.commit_status, status["statuses"])
        except gidgethub.BadRequest as error:
            if int(error.status_code) not in (403, 404, 422):
                raise
        return tuple(found[:200])


_ALLOWS = {"merge": "allow_merge_commit", "squash": "allow_squash_merge", "rebase": "allow_rebase_merge"}


async def _tried(asking: Any) -> None:
    """For what may be missing: a label that cannot be made, a reviewer who is no collaborator."""
    try:
        await asking
    except (gidgethub.HTTPException, ForgeRefused, NotFound, Unavailable):
        return


def _words_of(error: Exception) -> str:
    details = getattr(error, "errors", None) or ()
    told = [each.get("message") or "" if isinstance(each, Mapping) else str(each) for each in details]
    return " ".join([str(error), *map(str, told)]).lower()


def _fields_of(error: Exception) -> set[str]:
    details = getattr(error, "errors", None) or ()
    return {str(each.get("field")) for each in details if isinstance(each, Mapping)}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_BODY else text[: MAX_BODY - 30] + "\n\n… (cut: it is too long)"
