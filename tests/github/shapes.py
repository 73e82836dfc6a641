"""What GitHub's public description of its REST API (version 2022-11-28) promises of the answers that we read: fields, types, nulls.

Letters: s text, i number, b yes or no, o record, a list; with ? it may be null. Only fields that are always there are named.
"""

from __future__ import annotations

from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {"s": str, "i": (int, float), "b": bool, "o": dict, "a": list}

SHAPES: dict[str, dict[str, str]] = {
    "repository": {
        "s": "full_name html_url node_id name url clone_url default_branch git_url ssh_url svn_url pulls_url issues_url "
        "branches_url commits_url statuses_url pushed_at created_at updated_at",
        "s?": "description homepage language mirror_url",
        "b": "fork private has_issues has_projects has_wiki has_pages archived disabled",
        "i": "id forks forks_count open_issues size watchers network_count subscribers_count",
        "o": "owner",
        "o?": "license",
    },
    "branch": {"s": "name protection_url", "o": "commit _links protection", "b": "protected"},
    "pull": {
        "o": "_links base head user",
        "o?": "assignee milestone auto_merge merged_by",
        "a": "labels",
        "s?": "body closed_at merge_commit_sha merged_at",
        "s": "comments_url commits_url created_at diff_url html_url node_id issue_url patch_url review_comment_url "
        "review_comments_url statuses_url state title updated_at url author_association mergeable_state",
        "i": "id number additions changed_files comments commits deletions review_comments",
        "b": "locked merged maintainer_can_modify",
        "b?": "mergeable",
    },
    "pull side": {"s": "label ref sha", "o": "user", "o?": "repo"},
    "issue": {
        "o?": "assignee milestone user",
        "s?": "closed_at",
        "i": "comments id number",
        "s": "comments_url events_url html_url node_id labels_url repository_url state title url created_at updated_at",
        "a": "labels",
        "b": "locked",
    },
    "issue comment": {"i": "id", "s": "node_id html_url issue_url url created_at updated_at", "o?": "user"},
    "review comment": {
        "s": "url node_id diff_hunk path commit_id original_commit_id body created_at updated_at html_url "
        "pull_request_url author_association",
        "i": "id",
        "i?": "pull_request_review_id",
        "o?": "user",
        "o": "_links",
    },
    "check run": {
        "i": "id",
        "s": "node_id head_sha name url status",
        "s?": "html_url details_url conclusion started_at completed_at external_id",
        "o?": "check_suite app",
        "o": "output",
        "a": "pull_requests",
    },
    "status": {
        "s?": "description target_url avatar_url",
        "i": "id",
        "s": "node_id state context url created_at updated_at",
    },
    "token": {"s": "token expires_at"},
    "installation": {
        "i": "id app_id target_id",
        "s": "app_slug target_type repository_selection access_tokens_url html_url repositories_url",
        "s?": "single_file_name suspended_at",
        "a": "events",
        "o?": "account suspended_by",
        "o": "permissions",
    },
    "app": {"i": "id", "s": "node_id name external_url html_url", "o": "owner permissions", "a": "events"},
    "user": {"s": "login node_id avatar_url url html_url type", "i": "id", "b": "site_admin"},
    "run": {
        "i": "id run_number workflow_id",
        "s": "node_id display_title event head_sha path url html_url jobs_url logs_url check_suite_url workflow_url",
        "s?": "head_branch status conclusion",
        "o?": "head_commit",
        "o": "head_repository repository",
        "a?": "pull_requests",
    },
    "job": {
        "i": "id run_id",
        "s": "node_id run_url head_sha name url status started_at check_run_url created_at",
        "s?": "workflow_name head_branch html_url conclusion completed_at runner_name",
        "a": "labels",
        "i?": "runner_id runner_group_id",
    },
    "permission": {"s": "permission role_name", "o?": "user"},
    "merge": {"b": "merged", "s": "message sha"},
}


def problems(name: str, payload: Any) -> list[str]:
    """How a payload differs from what is promised."""
    found = []
    for letters, fields in SHAPES[name].items():
        for field in fields.split():
            value = payload.get(field, ...)
            if value is None and letters.endswith("?"):
                continue
            kind = TYPES[letters[0]]
            if not isinstance(value, kind) or (letters[0] == "i" and isinstance(value, bool)):
                found.append(f"{name}.{field} is {'missing' if value is ... else repr(value)[:40]}")
    return found
