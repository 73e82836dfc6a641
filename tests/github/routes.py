"""The REST routes of the emulated GitHub: what each does to its state, and what it answers."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from tests.github.payloads import Payloads
from tests.github.state import (
    LEVELS,
    App,
    Comment,
    EmulatedIssue,
    EmulatedPull,
    EmulatedRepository,
    GitHubState,
    Token,
    git,
    moment,
)


@dataclass
class Answer:
    status: int
    body: Any = None
    headers: dict[str, str] | None = None


class Refusal(Exception):
    def __init__(self, status: int, message: str, errors: list[Any] | None = None) -> None:
        super().__init__(message)
        body: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com/rest"}
        if errors is not None:
            body["errors"] = errors
        self.answer = Answer(status, {**body, "status": str(status)})


@dataclass
class Asked:
    method: str
    query: dict[str, str]
    body: Any
    token: Token | None
    bearer: str | None
    names: dict[str, str]


Route = Callable[["Routes", Asked], Answer]
TABLE: list[tuple[str, re.Pattern[str], str, Route]] = []
R = r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)"


def route(method: str, path: str, level: str = "") -> Callable[[Route], Route]:
    def add(function: Route) -> Route:
        TABLE.append((method, re.compile(path), level, function))
        return function

    return add


def not_found() -> Refusal:
    return Refusal(404, "Not Found")


class Routes:
    def __init__(self, state: GitHubState) -> None:
        self.state, self.show = state, Payloads(state)

    def answer(self, method: str, path: str, asked: Asked) -> Answer:
        for known, pattern, level, function in TABLE:
            found = pattern.fullmatch(path)
            if known == method and found:
                asked.names = found.groupdict()
                if level:
                    self._check(asked, level)
                return function(self, asked)
        raise not_found()

    def repository(self, asked: Asked) -> EmulatedRepository:
        found = self.state.repositories.get(f"{asked.names['owner']}/{asked.names['name']}".lower())
        if found is None:
            raise not_found()
        return found

    def _check(self, asked: Asked, level: str) -> None:
        repository = self.repository(asked)
        own = LEVELS.index(self.state.level(asked.token, repository))
        if own == 0:
            raise not_found()
        if own < LEVELS.index(level):
            raise Refusal(403, "Resource not accessible by personal access token")

    def needs(self, asked: Asked, permission: str, kind: str = "write") -> None:
        """Installation tokens only may what they were made for."""
        given = asked.token.permissions if asked.token else None
        if given is not None and given.get(permission) not in (("write",) if kind == "write" else ("read", "write")):
            raise Refusal(403, "Resource not accessible by integration")

    def issue(self, asked: Asked) -> EmulatedIssue:
        found = self.repository(asked).issues.get(int(asked.names["number"]))
        if found is None:
            raise not_found()
        return found

    def pull(self, asked: Asked) -> EmulatedPull:
        found = self.repository(asked).pull(int(asked.names["number"]))
        if found is None:
            raise not_found()
        return found

    def as_app(self, asked: Asked) -> App:
        try:
            claimed = jwt.decode(asked.bearer or "", options={"verify_signature": False})
            app = self.state.apps[str(claimed["iss"])]
            jwt.decode(asked.bearer or "", app.public_key, algorithms=["RS256"], issuer=str(app.id))
        except (jwt.InvalidTokenError, KeyError):
            raise Refusal(401, "A JSON web token could not be decoded") from None
        if claimed["exp"] - claimed["iat"] > 600:
            raise Refusal(401, "'Expiration time' claim ('exp') is too far in the future")
        return app


# -- repositories, people, the App --------------------------------------------------------------------------------------


@route("GET", R, "read")
def get_repository(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    return Answer(200, routes.show.repository(found, routes.state.level(asked.token, found)))


@route("GET", R + r"/branches/(?P<branch>.+)", "read")
def get_branch(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    sha = found.tip(asked.names["branch"])
    if sha is None:
        raise Refusal(404, "Branch not found")
    return Answer(200, routes.show.branch(found, asked.names["branch"], sha))


@route("GET", R + r"/collaborators/(?P<login>[^/]+)/permission", "write")
def get_permission(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    user = routes.state.users.get(asked.names["login"])
    if user is None:
        raise not_found()
    role = found.permissions.get(user.login, "none" if found.private else "read")
    plain = {"maintain": "write", "triage": "read"}.get(role, role)
    return Answer(200, {"permission": plain, "role_name": role, "user": {**routes.show.user(user), "role_name": role}})


@route("GET", R + r"/contents/(?P<path>.+)", "read")
def get_contents(routes: Routes, asked: Asked) -> Answer:
    found, path = routes.repository(asked), asked.names["path"]
    ref = asked.query.get("ref", found.default_branch)
    text = git(found.path, "cat-file", "blob", f"{ref}:{path}")
    if text is None:
        raise not_found()
    content = base64.b64encode(text.encode()).decode()
    return Answer(200, {"type": "file", "path": path, "encoding": "base64", "content": content, "size": len(text)})


@route("GET", "/user")
def get_user(routes: Routes, asked: Asked) -> Answer:
    if asked.token is None:
        raise Refusal(401, "Requires authentication")
    if asked.token.permissions is not None:
        raise Refusal(403, "Resource not accessible by integration")
    plain = dict.fromkeys(("name", "company", "blog", "location", "email", "hireable", "bio"), None)
    counts = dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0)
    when = {"created_at": moment(), "updated_at": moment()}
    return Answer(200, {**routes.show.user(asked.token.user), **plain, **counts, **when})


@route("GET", "/app")
def get_app(routes: Routes, asked: Asked) -> Answer:
    return Answer(200, routes.show.app(routes.as_app(asked)))


@route("GET", R + "/installation")
def get_installation(routes: Routes, asked: Asked) -> Answer:
    app = routes.as_app(asked)
    if asked.names["owner"] not in app.installations:
        raise not_found()
    return Answer(200, routes.show.installation(app, asked.names["owner"]))


@route("POST", r"/app/installations/(?P<id>\d+)/access_tokens")
def create_token(routes: Routes, asked: Asked) -> Answer:
    app = routes.as_app(asked)
    owner = next((name for name, id in app.installations.items() if str(id) == asked.names["id"]), None)
    if owner is None:
        raise not_found()
    body = asked.body or {}
    wanted = body.get("permissions") or app.permissions
    ranks = {"read": 1, "write": 2}
    if any(ranks[kind] > ranks.get(app.permissions.get(name, ""), 0) for name, kind in wanted.items()):
        raise Refusal(422, "The permissions requested are not granted to this installation.")
    names = frozenset(f"{owner}/{name}".lower() for name in body.get("repositories") or ())
    if any(name not in routes.state.repositories for name in names):
        raise Refusal(422, "There is at least one repository that does not exist or is not accessible.")
    until = datetime.now(UTC) + timedelta(hours=1)
    value = f"ghs_{app.id}_{secrets.token_hex(40)}.{secrets.token_hex(40)}"
    user = routes.state.user(f"{app.slug}[bot]", "Bot")
    routes.state.tokens[value] = Token(user, names or None, dict(wanted), until)
    shown = {"token": value, "expires_at": until.strftime("%Y-%m-%dT%H:%M:%SZ"), "permissions": wanted}
    return Answer(201, {**shown, "repository_selection": "selected"})


# -- pull requests ------------------------------------------------------------------------------------------------------


@route("GET", R + "/pulls", "read")
def list_pulls(routes: Routes, asked: Asked) -> Answer:
    found, query = routes.repository(asked), asked.query
    routes.needs(asked, "pull_requests", "read")
    listed = [each for each in found.pulls() if query.get("state", "open") in ("all", each.state)]
    owner, colon, head = query.get("head", "").partition(":")
    if colon:  # without an owner the filter is ignored
        listed = [each for each in listed if each.head == head and (each.fork or found.owner).lower() == owner.lower()]
    if "base" in query:
        listed = [each for each in listed if each.base == query["base"]]
    listed.sort(key=lambda each: each.number, reverse=query.get("direction", "desc") == "desc")
    return Answer(200, [routes.show.pull(found, each, whole=False) for each in listed])


@route("POST", R + "/pulls", "read")
def create_pull(routes: Routes, asked: Asked) -> Answer:
    found, body = routes.repository(asked), asked.body
    routes.needs(asked, "pull_requests")
    owner, colon, head = body["head"].rpartition(":")
    fork = owner if colon and owner.lower() != found.owner.lower() else None
    base_sha, head_sha = found.tip(body["base"]), found.tip(head, fork)
    for name, sha in (("base", base_sha), ("head", head_sha)):
        if sha is None:
            errors = [{"resource": "PullRequest", "field": name, "code": "invalid"}]
            raise Refusal(422, "Validation Failed", errors)
    same = [each for each in found.pulls() if (each.head, each.fork, each.base) == (head, fork, body["base"])]
    if any(each.state == "open" for each in same):
        text = f"A pull request already exists for {fork or found.owner}:{head}."
        raise Refusal(422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": text}])
    if fork is None and found.ahead(base_sha or "", head_sha or "") == 0:
        text = f"No commits between {body['base']} and {head}"
        raise Refusal(422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": text}])
    if body.get("draft") and not found.has_drafts:
        raise Refusal(422, "Draft pull requests are not supported in this repository.")
    assert asked.token is not None
    number = len(found.issues) + 1
    plain = (number, routes.state.number(), body["title"], body.get("body"), asked.token.user, moment())
    made = EmulatedPull(*plain, head=head, base=body["base"], fork=fork, draft=bool(body.get("draft")))
    made.last_head = head_sha
    found.issues[number] = made
    return Answer(201, routes.show.pull(found, made))


@route("GET", R + r"/pulls/(?P<number>\d+)", "read")
def get_pull(routes: Routes, asked: Asked) -> Answer:
    routes.needs(asked, "pull_requests", "read")
    return Answer(200, routes.show.pull(routes.repository(asked), routes.pull(asked)))


@route("PATCH", R + r"/pulls/(?P<number>\d+)", "triage")
def change_pull(routes: Routes, asked: Asked) -> Answer:
    found, pull = routes.repository(asked), routes.pull(asked)
    routes.needs(asked, "pull_requests")
    state = asked.body.get("state", pull.state)
    if state != pull.state and pull.merged_at:
        text = "Cannot change the state of a merged pull request"
        raise Refusal(422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": text}])
    pull.title, pull.body = asked.body.get("title", pull.title), asked.body.get("body", pull.body)
    pull.state, pull.closed_at = state, moment() if state == "closed" else None
    return Answer(200, routes.show.pull(found, pull))


@route("PUT", R + r"/pulls/(?P<number>\d+)/merge", "write")
def merge_pull(routes: Routes, asked: Asked) -> Answer:
    found, pull = routes.repository(asked), routes.pull(asked)
    routes.needs(asked, "contents")
    head, base = found.tip(pull.head, pull.fork), found.tip(pull.base)
    if asked.body.get("sha") not in (None, head):
        raise Refusal(409, "Head branch was modified. Review and try the merge again.")
    if asked.body.get("merge_method", "merge") not in found.allow:
        raise Refusal(405, "Merge commits are not allowed on this repository.")
    if pull.state != "open" or pull.draft or head is None or base is None:
        raise Refusal(405, "Pull Request is not mergeable")
    tree = git(found.path, "merge-tree", "--write-tree", base, head)
    if tree is None:
        raise Refusal(405, "Pull Request is not mergeable")
    message = f"Merge pull request #{pull.number} from {found.owner}/{pull.head}"
    made = git(found.path, "commit-tree", "-p", base, "-p", head, "-m", message, tree.splitlines()[0])
    git(found.path, "update-ref", f"refs/heads/{pull.base}", made or "")
    pull.state, pull.merged_at, pull.closed_at = "closed", moment(), moment()
    pull.merge_sha, pull.last_head = made, head
    return Answer(200, {"sha": made, "merged": True, "message": "Pull Request successfully merged"})


@route("GET", R + r"/pulls/(?P<number>\d+)/comments", "read")
def list_review_comments(routes: Routes, asked: Asked) -> Answer:
    found, pull = routes.repository(asked), routes.pull(asked)
    return Answer(200, [routes.show.review_comment(found, pull, each) for each in pull.review_comments])


@route("POST", R + r"/pulls/(?P<number>\d+)/comments", "read")
def create_review_comment(routes: Routes, asked: Asked) -> Answer:
    found, pull, body = routes.repository(asked), routes.pull(asked), asked.body
    routes.needs(asked, "pull_requests")
    assert asked.token is not None
    head = found.tip(pull.head, pull.fork) or ""
    changed = (git(found.path, "diff", "--name-only", f"{found.tip(pull.base)}...{head}") or "").splitlines()
    if body.get("path") not in changed:
        errors = [
            {"resource": "PullRequestReviewComment", "field": "pull_request_review_thread.path", "code": "invalid"}
        ]
        raise Refusal(422, "Validation Failed", errors)
    made = Comment(routes.state.number(), asked.token.user, body["body"], moment(), body["path"], body["line"], head)
    pull.review_comments.append(made)
    return Answer(201, routes.show.review_comment(found, pull, made))


@route("POST", R + r"/pulls/(?P<number>\d+)/requested_reviewers", "write")
def request_reviewers(routes: Routes, asked: Asked) -> Answer:
    found, pull = routes.repository(asked), routes.pull(asked)
    for login in asked.body.get("reviewers") or ():
        if login not in found.permissions:
            raise Refusal(422, "Reviews may only be requested from collaborators.")
        if login == pull.user.login:
            raise Refusal(422, "Review cannot be requested from pull request author.")
        pull.reviewers.append(routes.state.user(login))
    return Answer(201, routes.show.pull(found, pull, whole=False))


@route("GET", R + r"/pulls/(?P<number>\d+)/reviews", "read")
def list_reviews(routes: Routes, asked: Asked) -> Answer:
    return Answer(200, routes.pull(asked).reviews)


@route("GET", R + r"/pulls/(?P<number>\d+)/reviews/(?P<review>\d+)/comments", "read")
def list_comments_of_review(routes: Routes, asked: Asked) -> Answer:
    found, pull = routes.repository(asked), routes.pull(asked)
    of = [each for each in pull.review_comments if str(each.review) == asked.names["review"]]
    return Answer(200, [routes.show.review_comment(found, pull, each) for each in of])


# -- issues and their comments ------------------------------------------------------------------------------------------


@route("GET", R + r"/issues/(?P<number>\d+)", "read")
def get_issue(routes: Routes, asked: Asked) -> Answer:
    routes.needs(asked, "issues", "read")
    return Answer(200, routes.show.issue(routes.repository(asked), routes.issue(asked)))


@route("GET", R + r"/issues/(?P<number>\d+)/comments", "read")
def list_comments(routes: Routes, asked: Asked) -> Answer:
    found, issue = routes.repository(asked), routes.issue(asked)
    return Answer(200, [routes.show.comment(found, issue, each) for each in issue.comments])


@route("POST", R + r"/issues/(?P<number>\d+)/comments", "read")
def create_comment(routes: Routes, asked: Asked) -> Answer:
    found, issue = routes.repository(asked), routes.issue(asked)
    assert asked.token is not None
    if len(asked.body["body"]) > 65536:
        raise Refusal(422, "Validation Failed", [{"message": "body is too long (maximum is 65536 characters)"}])
    made = Comment(routes.state.number(), asked.token.user, asked.body["body"], moment())
    issue.comments.append(made)
    return Answer(201, routes.show.comment(found, issue, made))


@route("PATCH", R + r"/issues/comments/(?P<id>\d+)", "read")
def change_comment(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    for issue in found.issues.values():
        for each in issue.comments:
            if each.id == int(asked.names["id"]):
                if asked.token is None or each.user.login != asked.token.user.login:
                    raise Refusal(403, "Must have admin rights to Repository.")
                each.body = asked.body["body"]
                return Answer(200, routes.show.comment(found, issue, each))
    raise not_found()


@route("POST", R + r"/issues/(?P<number>\d+)/labels", "triage")
@route("PUT", R + r"/issues/(?P<number>\d+)/labels", "triage")
def set_labels(routes: Routes, asked: Asked) -> Answer:
    found, issue = routes.repository(asked), routes.issue(asked)
    before = [] if asked.method == "PUT" else issue.labels
    issue.labels = list(dict.fromkeys([*before, *asked.body["labels"]]))
    found.labels |= set(issue.labels)
    return Answer(200, [routes.show.label(found, name) for name in issue.labels])


# -- checks and Actions -------------------------------------------------------------------------------------------------


@route("GET", R + r"/commits/(?P<sha>[^/]+)/check-runs", "read")
def list_checks(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    runs = [routes.show.check_run(found, run) for run in found.check_runs if run["head_sha"] == asked.names["sha"]]
    return Answer(200, {"total_count": len(runs), "check_runs": runs})


@route("POST", R + "/check-runs", "write")
def create_check(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    if asked.token is None or asked.token.permissions is None:
        raise Refusal(403, "You must authenticate via a GitHub App.")
    routes.needs(asked, "checks")
    plain = {"status": "queued", "conclusion": None, "started_at": moment(), "completed_at": None}
    made = {**plain, **asked.body, "id": routes.state.number()}
    found.check_runs.append(made)
    return Answer(201, routes.show.check_run(found, made))


@route("PATCH", R + r"/check-runs/(?P<id>\d+)", "write")
def change_check(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    routes.needs(asked, "checks")
    run = next((run for run in found.check_runs if run["id"] == int(asked.names["id"])), None)
    if run is None:
        raise not_found()
    run |= asked.body
    if run.get("conclusion"):
        run |= {"status": "completed", "completed_at": moment()}
    return Answer(200, routes.show.check_run(found, run))


@route("GET", R + r"/commits/(?P<sha>[^/]+)/status", "read")
def get_status(routes: Routes, asked: Asked) -> Answer:
    found, sha = routes.repository(asked), asked.names["sha"]
    latest = {each["context"]: each for each in found.statuses if each["sha"] == sha}
    listed = [routes.show.status(found, each) for each in latest.values()]
    states = {each["state"] for each in listed}
    worst = "failure" if states & {"failure", "error"} else "success" if states == {"success"} else "pending"
    url = f"{routes.show.api}/repos/{found.full_name}/commits/{sha}"
    shown = {"state": worst, "sha": sha, "total_count": len(listed), "statuses": listed}
    return Answer(
        200, {**shown, "repository": routes.show.repository(found), "commit_url": url, "url": f"{url}/status"}
    )


@route("POST", R + r"/statuses/(?P<sha>[0-9a-f]{40})", "write")
def create_status(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    routes.needs(asked, "statuses")
    known = {"sha": asked.names["sha"], "context": "default", "id": routes.state.number()}
    made = {**known, **asked.body}
    found.statuses.append(made)
    return Answer(201, routes.show.status(found, made))


@route("GET", R + r"/actions/runs/(?P<id>\d+)", "read")
def get_run(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    run = found.runs.get(int(asked.names["id"]))
    if run is None:
        raise not_found()
    return Answer(200, routes.show.workflow_run(found, run))


@route("GET", R + r"/actions/runs/(?P<id>\d+)/jobs", "read")
def list_jobs(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    routes.needs(asked, "actions", "read")
    run = found.runs.get(int(asked.names["id"]))
    if run is None:
        raise not_found()
    jobs = [routes.show.job(found, run, job) for job in run.jobs]
    return Answer(200, {"total_count": len(jobs), "jobs": jobs})


@route("GET", R + r"/actions/jobs/(?P<id>\d+)/logs", "read")
def get_log(routes: Routes, asked: Asked) -> Answer:
    found = routes.repository(asked)
    routes.needs(asked, "actions", "read")
    jobs = {job.id: job for run in found.runs.values() for job in run.jobs}
    job = jobs.get(int(asked.names["id"]))
    if job is None or job.log is None:
        raise Refusal(410, "Server Error: the log is gone")
    place = routes.state.url.replace("127.0.0.1", "localhost")  # another host, as at GitHub
    return Answer(302, None, {"location": f"{place}/logs/{found.full_name}/{job.id}?sig=signed"})


# -- GraphQL: the two mutations that REST lacks, and threads of reviews -------------------------------------------------


@route("POST", "/graphql")
def graphql(routes: Routes, asked: Asked) -> Answer:
    if asked.token is None:
        raise Refusal(401, "This endpoint requires you to be authenticated.")
    query, values = asked.body["query"], asked.body.get("variables") or {}
    name = next(
        (name for name in ("markPullRequestReadyForReview", "convertPullRequestToDraft") if name in query), None
    )
    if name is None:
        return Answer(200, {"errors": [{"message": "the emulator does not know this query"}]})
    _, repository, number = str(values["id"]).split("_")
    found = next(each for each in routes.state.repositories.values() if str(each.id) == repository)
    if LEVELS.index(routes.state.level(asked.token, found)) < LEVELS.index("write"):
        return Answer(200, {"errors": [{"type": "FORBIDDEN", "message": "Resource not accessible"}]})
    pull = found.pull(int(number))
    assert pull is not None
    pull.draft = name == "convertPullRequestToDraft"
    return Answer(200, {"data": {name: {"clientMutationId": None}}})
