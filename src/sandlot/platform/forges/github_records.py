"""GitHub's payloads as our records. What GitHub says is data of others: checked for its type, cut to a size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sandlot.platform.core.forges import (
    CheckStatus,
    Issue,
    PullComment,
    PullRequest,
    PullRequestCheck,
    PullRequestState,
)

MAX_TEXT = 1 << 20
MARKER = re.compile(r"\s*<!-- sandlot:([A-Za-z0-9_./-]{1,100}) -->\s*\Z")
_FAILED = frozenset({"failure", "timed_out", "cancelled", "action_required", "startup_failure", "error"})
_PASSED = frozenset({"success", "neutral", "skipped"})
Payload = Mapping[str, Any]


def marked(body: str, marker: str | None) -> str:
    """A comment's text with a marker that pages do not show."""
    return body if marker is None else f"{MARKER.sub('', body)}\n\n<!-- sandlot:{marker} -->"


def pull_request(payload: Payload) -> PullRequest:
    merged_at = _time(payload.get("merged_at"))
    is_open = payload["state"] == "open"
    state = PullRequestState.OPEN if is_open else PullRequestState.MERGED if merged_at else PullRequestState.CLOSED
    head, base = payload["head"], payload["base"]
    return PullRequest(
        number=int(payload["number"]),
        title=text(payload["title"], 1000),
        state=state,
        head=str(head["ref"]),
        base=str(base["ref"]),
        url=str(payload["html_url"]),
        created_at=_needed_time(payload["created_at"]),
        body=text(payload.get("body")),
        draft=bool(payload.get("draft")),
        author=login(payload.get("user")),
        labels=labels(payload.get("labels")),
        head_sha=str(head["sha"]),
        merged_at=merged_at,
        merge_sha=payload.get("merge_commit_sha") if merged_at else None,
        mergeable=payload.get("mergeable"),
        is_fork=_repository_id(head) != _repository_id(base),
    )


def issue_comment(payload: Payload) -> PullComment:
    body = text(payload.get("body"))
    found = MARKER.search(body)
    return PullComment(
        id=int(payload["id"]),
        author=login(payload.get("user")),
        body=MARKER.sub("", body) if found else body,
        created_at=_needed_time(payload["created_at"]),
        path=payload.get("path"),
        line=payload.get("line") or payload.get("original_line"),
        side=payload.get("side"),
        marker=found[1] if found else None,
    )


def review(payload: Payload) -> PullComment:
    """What a review says as a whole."""
    return PullComment(
        id=int(payload["id"]),
        author=login(payload.get("user")),
        body=text(payload.get("body")),
        created_at=_needed_time(payload["submitted_at"]),
    )


def check_run(payload: Payload) -> PullRequestCheck:
    url = payload.get("html_url") or payload.get("details_url")
    return PullRequestCheck(name=text(payload["name"], 200), status=conclusion(payload), url=url)


def commit_status(payload: Payload) -> PullRequestCheck:
    known = {"success": CheckStatus.SUCCESS, "pending": CheckStatus.PENDING}
    status = known.get(payload["state"], CheckStatus.FAILURE)
    return PullRequestCheck(name=text(payload["context"], 200), status=status, url=payload.get("target_url"))


def conclusion(payload: Payload) -> CheckStatus:
    found = payload.get("conclusion")
    if payload.get("status") != "completed" or found is None or found == "stale":
        return CheckStatus.PENDING
    return CheckStatus.SUCCESS if found in _PASSED else CheckStatus.FAILURE


def issue(payload: Payload) -> Issue:
    return Issue(
        url=str(payload["html_url"]),
        number=int(payload["number"]),
        title=text(payload["title"], 1000),
        body=text(payload.get("body")),
        author=login(payload.get("user")),
        state=str(payload["state"]),
        labels=labels(payload.get("labels")),
    )


def labels(given: Iterable[Any] | None) -> tuple[str, ...]:
    """GitHub gives names, or records that have one."""
    found = (each.get("name") if isinstance(each, Mapping) else each for each in given or ())
    return tuple(text(name, 200) for name in found if name)[:100]


def login(user: Any) -> str:
    """Whose account it was; `ghost` is GitHub's own word for one that is gone."""
    return text(user["login"], 200) if isinstance(user, Mapping) and user.get("login") else "ghost"


def text(given: Any, most: int = MAX_TEXT) -> str:
    return given.replace("\0", "")[:most] if isinstance(given, str) else ""


def _time(given: Any) -> datetime | None:
    return datetime.fromisoformat(given.replace("Z", "+00:00")) if isinstance(given, str) else None


def _needed_time(given: Any) -> datetime:
    found = _time(given)
    if found is None:
        raise ValueError("a time is missing")
    return found


def _repository_id(side: Payload) -> Any:
    repository = side.get("repo")  # None: the fork is gone
    return repository.get("id") if isinstance(repository, Mapping) else None
