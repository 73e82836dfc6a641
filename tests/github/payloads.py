"""Records of the emulated GitHub in the shapes of the real one's answers."""

from __future__ import annotations

from typing import Any

from tests.github.state import (
    App,
    Comment,
    EmulatedIssue,
    EmulatedPull,
    EmulatedRepository,
    GitHubState,
    Job,
    User,
    WorkflowRun,
    git,
    moment,
)

_REPOSITORY_URLS = [
    "archive",
    "assignees",
    "blobs",
    "branches",
    "collaborators",
    "comments",
    "commits",
    "compare",
    "contents",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git_commits",
    "git_refs",
    "git_tags",
    "hooks",
    "issue_comment",
    "issue_events",
    "issues",
    "keys",
    "labels",
    "languages",
    "merges",
    "milestones",
    "notifications",
    "pulls",
    "releases",
    "stargazers",
    "statuses",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "trees",
]
_USER_URLS = [
    "events",
    "followers",
    "following",
    "gists",
    "organizations",
    "received_events",
    "repos",
    "starred",
    "subscriptions",
]


class Payloads:
    """`web` and `api` are the addresses that the answers name."""

    def __init__(self, state: GitHubState) -> None:
        self._state = state

    @property
    def web(self) -> str:
        return self._state.url

    @property
    def api(self) -> str:
        return f"{self._state.url}/api/v3"

    def user(self, user: User) -> dict[str, Any]:
        url = f"{self.api}/users/{user.login}"
        return {
            "login": user.login,
            "id": user.id,
            "node_id": f"U_{user.id}",
            "avatar_url": f"{self.web}/avatars/{user.id}",
            "gravatar_id": "",
            "url": url,
            "html_url": f"{self.web}/{user.login}",
            **{f"{name}_url": f"{url}/{name}" for name in _USER_URLS},
            "type": user.type,
            "site_admin": False,
        }

    def repository(self, of: EmulatedRepository, level: str = "none") -> dict[str, Any]:
        url, web = f"{self.api}/repos/{of.full_name}", f"{self.web}/{of.full_name}"
        rank = ("none", "read", "triage", "write", "maintain", "admin").index(level)
        return {
            "id": of.id,
            "node_id": f"R_{of.id}",
            "name": of.name,
            "full_name": of.full_name,
            "private": of.private,
            "owner": self.user(self._state.user(of.owner)),
            "html_url": web,
            "description": None,
            "fork": False,
            "url": url,
            **{f"{name}_url": f"{url}/{name}" for name in _REPOSITORY_URLS},
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "pushed_at": "2026-01-01T00:00:00Z",
            "git_url": f"git://{web.split('://')[1]}.git",
            "ssh_url": f"git@{web.split('://')[1]}.git",
            "clone_url": f"{web}.git",
            "svn_url": web,
            "homepage": None,
            "size": 1,
            **dict.fromkeys(("stargazers_count", "watchers_count", "forks_count", "forks", "watchers"), 0),
            **dict.fromkeys(("network_count", "subscribers_count", "open_issues_count", "open_issues"), 0),
            "language": None,
            **dict.fromkeys(("has_issues", "has_projects", "has_wiki", "has_downloads"), True),
            **dict.fromkeys(("has_pages", "has_discussions", "archived", "disabled"), False),
            "mirror_url": None,
            "license": None,
            "default_branch": of.default_branch,
            "visibility": "private" if of.private else "public",
            "allow_merge_commit": "merge" in of.allow,
            "allow_squash_merge": "squash" in of.allow,
            "allow_rebase_merge": "rebase" in of.allow,
            "permissions": {
                "admin": rank >= 5,
                "maintain": rank >= 4,
                "push": rank >= 3,
                "triage": rank >= 2,
                "pull": rank >= 1,
            },
        }

    def branch(self, of: EmulatedRepository, name: str, sha: str) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/branches/{name}"
        return {
            "name": name,
            "commit": self.commit(of, sha),
            "_links": {"self": url, "html": f"{self.web}/{of.full_name}/tree/{name}"},
            "protected": False,
            "protection": {"enabled": False},
            "protection_url": f"{url}/protection",
        }

    def commit(self, of: EmulatedRepository, sha: str) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/commits/{sha}"
        who = {"name": "Ada", "email": "ada@example.org", "date": moment()}
        message = git(of.path, "log", "-1", "--format=%B", sha) or ""
        tree = git(of.path, "rev-parse", f"{sha}^{{tree}}") or ""
        return {
            "sha": sha,
            "node_id": f"C_{sha}",
            "commit": {
                "author": who,
                "committer": who,
                "message": message,
                "tree": {"sha": tree, "url": f"{self.api}/repos/{of.full_name}/git/trees/{tree}"},
                "url": url,
                "comment_count": 0,
            },
            "url": url,
            "html_url": f"{self.web}/{of.full_name}/commit/{sha}",
            "comments_url": f"{url}/comments",
            "author": None,
            "committer": None,
            "parents": [],
        }

    def label(self, of: EmulatedRepository, name: str) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/labels/{name}"
        plain = {"id": 1, "node_id": "LA_1", "description": None, "color": "ededed", "default": False}
        return {**plain, "url": url, "name": name}

    def issue(self, of: EmulatedRepository, issue: EmulatedIssue) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/issues/{issue.number}"
        is_pull = isinstance(issue, EmulatedPull)
        web = f"{self.web}/{of.full_name}/{'pull' if is_pull else 'issues'}/{issue.number}"
        found = {
            "id": issue.id,
            "node_id": f"I_{issue.id}",
            "url": url,
            "repository_url": f"{self.api}/repos/{of.full_name}",
            "labels_url": f"{url}/labels{{/name}}",
            "comments_url": f"{url}/comments",
            "events_url": f"{url}/events",
            "html_url": web,
            "number": issue.number,
            "state": issue.state,
            "title": issue.title,
            "body": issue.body,
            "user": self.user(issue.user),
            "labels": [self.label(of, name) for name in issue.labels],
            "assignee": None,
            "assignees": [],
            "milestone": None,
            "locked": False,
            "comments": len(issue.comments),
            "closed_at": issue.closed_at,
            "created_at": issue.created_at,
            "updated_at": issue.created_at,
            "author_association": "OWNER",
        }
        if is_pull:
            pull = f"{self.api}/repos/{of.full_name}/pulls/{issue.number}"
            found["pull_request"] = {
                "url": pull,
                "html_url": web,
                "diff_url": f"{web}.diff",
                "patch_url": f"{web}.patch",
            }
        return found

    def pull(self, of: EmulatedRepository, pull: EmulatedPull, *, whole: bool = True) -> dict[str, Any]:
        url, web = (
            f"{self.api}/repos/{of.full_name}/pulls/{pull.number}",
            f"{self.web}/{of.full_name}/pull/{pull.number}",
        )
        issue = f"{self.api}/repos/{of.full_name}/issues/{pull.number}"
        head = of.tip(pull.head, pull.fork) or pull.last_head or "0" * 40
        base = of.tip(pull.base) or "0" * 40
        links = {
            "self": url,
            "html": web,
            "issue": issue,
            "comments": f"{issue}/comments",
            "review_comments": f"{url}/comments",
            "review_comment": f"{self.api}/repos/{of.full_name}/pulls/comments{{/number}}",
            "commits": f"{url}/commits",
            "statuses": f"{self.api}/repos/{of.full_name}/statuses/{head}",
        }
        found = {
            "url": url,
            "id": pull.id,
            "node_id": f"PR_{of.id}_{pull.number}",
            "html_url": web,
            "diff_url": f"{web}.diff",
            "patch_url": f"{web}.patch",
            "issue_url": issue,
            "commits_url": links["commits"],
            "review_comments_url": links["review_comments"],
            "review_comment_url": links["review_comment"],
            "comments_url": links["comments"],
            "statuses_url": links["statuses"],
            "number": pull.number,
            "state": pull.state,
            "locked": False,
            "title": pull.title,
            "user": self.user(pull.user),
            "body": pull.body,
            "labels": [self.label(of, name) for name in pull.labels],
            "milestone": None,
            "created_at": pull.created_at,
            "updated_at": pull.created_at,
            "closed_at": pull.closed_at,
            "merged_at": pull.merged_at,
            "merge_commit_sha": pull.merge_sha,
            "assignee": None,
            "assignees": [],
            "requested_reviewers": [self.user(each) for each in pull.reviewers],
            "requested_teams": [],
            "head": self._side(of, pull.head, head, pull.fork),
            "base": self._side(of, pull.base, base),
            "_links": {name: {"href": link} for name, link in links.items()},
            "author_association": "OWNER",
            "auto_merge": None,
            "draft": pull.draft,
        }
        return found | self._rest(of, pull, base, head) if whole else found

    def _side(self, of: EmulatedRepository, ref: str, sha: str, fork: str | None = None) -> dict[str, Any]:
        owner = fork or of.owner
        repository = self.repository(of)
        if fork:
            repository |= {"id": of.id + 500_000, "full_name": f"{fork}/{of.name}", "fork": True}
            repository["owner"] = self.user(self._state.user(fork))
        user = self.user(self._state.user(owner))
        return {"label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": user, "repo": repository}

    def _rest(self, of: EmulatedRepository, pull: EmulatedPull, base: str, head: str) -> dict[str, Any]:
        mergeable = None if pull.state != "open" else git(of.path, "merge-tree", "--write-tree", base, head) is not None
        return {
            "merged": pull.merged_at is not None,
            "mergeable": mergeable,
            "rebaseable": mergeable,
            "mergeable_state": "unknown" if mergeable is None else "clean" if mergeable else "dirty",
            "merged_by": None,
            "comments": len(pull.comments),
            "review_comments": len(pull.review_comments),
            "maintainer_can_modify": False,
            "commits": of.ahead(base, head),
            "additions": 0,
            "deletions": 0,
            "changed_files": 0,
        }

    def comment(self, of: EmulatedRepository, issue: EmulatedIssue, comment: Comment) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/issues"
        kind = "pull" if isinstance(issue, EmulatedPull) else "issues"
        return {
            "id": comment.id,
            "node_id": f"IC_{comment.id}",
            "url": f"{url}/comments/{comment.id}",
            "html_url": f"{self.web}/{of.full_name}/{kind}/{issue.number}#issuecomment-{comment.id}",
            "issue_url": f"{url}/{issue.number}",
            "body": comment.body,
            "user": self.user(comment.user),
            "created_at": comment.created_at,
            "updated_at": comment.created_at,
            "author_association": "OWNER",
            "performed_via_github_app": None,
        }

    def review_comment(self, of: EmulatedRepository, pull: EmulatedPull, comment: Comment) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/pulls"
        web = f"{self.web}/{of.full_name}/pull/{pull.number}#discussion_r{comment.id}"
        found = {
            "url": f"{url}/comments/{comment.id}",
            "id": comment.id,
            "node_id": f"PRRC_{comment.id}",
            "pull_request_review_id": comment.review,
            "diff_hunk": "@@ -0,0 +1 @@",
            "path": comment.path,
            "line": comment.line,
            "original_line": comment.line,
            "side": "RIGHT",
            "commit_id": comment.commit_id,
            "original_commit_id": comment.commit_id,
            "user": self.user(comment.user),
            "body": comment.body,
            "created_at": comment.created_at,
            "updated_at": comment.created_at,
            "html_url": web,
            "pull_request_url": f"{url}/{pull.number}",
            "author_association": "OWNER",
            "_links": {
                "self": {"href": f"{url}/comments/{comment.id}"},
                "html": {"href": web},
                "pull_request": {"href": f"{url}/{pull.number}"},
            },
        }
        return found | ({"in_reply_to_id": comment.reply_to} if comment.reply_to else {})

    def check_run(self, of: EmulatedRepository, run: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/check-runs/{run['id']}"
        output = {"title": None, "summary": None, "text": None, "annotations_count": 0} | (run.get("output") or {})
        return {
            "external_id": "",
            "details_url": None,
            "check_suite": {"id": 1},
            "app": None,
            "pull_requests": [],
            **run,
            "node_id": f"CR_{run['id']}",
            "url": url,
            "html_url": f"{self.web}/{of.full_name}/runs/{run['id']}",
            "output": {**output, "annotations_url": f"{url}/annotations"},
        }

    def status(self, of: EmulatedRepository, status: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/statuses/{status['sha']}"
        known = {"description": None, "target_url": None, "avatar_url": None, "node_id": "SC_1", "url": url}
        when = {"created_at": moment(), "updated_at": moment()}
        return {**known, **when, **{name: value for name, value in status.items() if name != "sha"}}

    def app(self, app: App) -> dict[str, Any]:
        return {
            "id": app.id,
            "slug": app.slug,
            "node_id": f"A_{app.id}",
            "client_id": f"Iv1.{app.id}",
            "owner": self.user(self._state.user("owner-of-apps")),
            "name": app.slug,
            "description": None,
            "external_url": "https://sandlot.test",
            "html_url": f"{self.web}/apps/{app.slug}",
            "created_at": moment(),
            "updated_at": moment(),
            "permissions": app.permissions,
            "events": [],
        }

    def installation(self, app: App, owner: str) -> dict[str, Any]:
        number = app.installations[owner]
        url = f"{self.api}/app/installations/{number}"
        account = self._state.user(owner)
        return {
            "id": number,
            "account": self.user(account),
            "repository_selection": "selected",
            "access_tokens_url": f"{url}/access_tokens",
            "repositories_url": f"{self.api}/installation/repositories",
            "html_url": f"{self.web}/settings/installations/{number}",
            "app_id": app.id,
            "app_slug": app.slug,
            "target_id": account.id,
            "target_type": account.type,
            "permissions": app.permissions,
            "events": [],
            "created_at": moment(),
            "updated_at": moment(),
            "single_file_name": None,
            "suspended_by": None,
            "suspended_at": None,
        }

    def workflow_run(self, of: EmulatedRepository, run: WorkflowRun) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/actions/runs/{run.id}"
        names = ("jobs", "logs", "check_suite", "cancel", "rerun", "artifacts", "workflow")
        return {
            "id": run.id,
            "name": run.name,
            "node_id": f"WFR_{run.id}",
            "head_branch": run.head_branch,
            "head_sha": run.head_sha,
            "path": run.path,
            "run_number": 1,
            "run_attempt": 1,
            "display_title": run.name,
            "event": "pull_request",
            "status": "completed",
            "conclusion": run.conclusion,
            "workflow_id": 1,
            "check_suite_id": 1,
            "url": url,
            "html_url": f"{self.web}/{of.full_name}/actions/runs/{run.id}",
            "pull_requests": [],
            "created_at": moment(),
            "updated_at": moment(),
            **{f"{name}_url": f"{url}/{name}" for name in names},
            "head_commit": {
                "id": run.head_sha,
                "tree_id": run.head_sha,
                "message": "change",
                "timestamp": moment(),
                "author": {"name": "Ada", "email": "ada@example.org"},
                "committer": {"name": "Ada", "email": "ada@example.org"},
            },
            "repository": self.repository(of),
            "head_repository": self.repository(of),
        }

    def job(self, of: EmulatedRepository, run: WorkflowRun, job: Job) -> dict[str, Any]:
        url = f"{self.api}/repos/{of.full_name}/actions/jobs/{job.id}"
        return {
            "id": job.id,
            "run_id": run.id,
            "run_url": f"{self.api}/repos/{of.full_name}/actions/runs/{run.id}",
            "node_id": f"J_{job.id}",
            "head_sha": run.head_sha,
            "url": url,
            "html_url": f"{self.web}/{of.full_name}/actions/runs/{run.id}/job/{job.id}",
            "status": "completed",
            "conclusion": job.conclusion,
            "started_at": moment(),
            "created_at": moment(),
            "completed_at": moment(),
            "name": job.name,
            "steps": job.steps,
            "check_run_url": f"{self.api}/repos/{of.full_name}/check-runs/{job.id}",
            "labels": ["ubuntu-latest"],
            "runner_id": 1,
            "runner_name": "runner",
            "runner_group_id": 1,
            "runner_group_name": "default",
            "workflow_name": run.name,
            "head_branch": run.head_branch,
        }
