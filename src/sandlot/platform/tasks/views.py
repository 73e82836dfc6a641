"""How tasks look to callers: the JSON of tasks, attempts, entries and steps."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sandlot.platform.core.tasks import Attempt, ChangeCount, Entry, Task, TaskStep


def task_json(task: Task, *, brief: bool = False) -> dict[str, Any]:
    """`brief`, for events: without the prompt and without what checks wrote."""
    spec, usage, chosen = task.spec, task.usage, task.chosen
    checks = _checks(task)
    if brief:
        checks = [{**check, "output": ""} for check in checks]
    return {
        "id": task.id,
        "title": spec.title,
        "prompt": "" if brief else spec.prompt,
        "state": task.status.value,
        "reason": task.reason,
        "repository": spec.repository,
        "base": spec.base,
        "branch": task.branch,
        "agent": chosen.agent if chosen is not None else spec.agent,
        "model": spec.model,
        "template": spec.template,
        "provider": spec.provider,
        "command": spec.command,
        "checks": checks,
        "limits": asdict(spec.limits),
        "network": {"internet": spec.network.internet, "allow": list(spec.network.allow)},
        "secrets": list(spec.secrets),
        "labels": list(spec.labels),
        "parent": spec.parent,
        "blocked_by": list(spec.blocked_by),
        "attempt_count": spec.attempts,
        "agents": list(spec.agents),
        "issue": spec.issue,
        "draft_on_failure": spec.draft_on_failure,
        "pull_request": asdict(task.pull_request) if task.pull_request is not None else None,
        "cost_usd": usage.cost_usd,
        "tokens": {"input": usage.input, "output": usage.output, "cached": usage.cached},
        "changes": asdict(chosen.changes if chosen is not None else ChangeCount()),
        "last_action": task.last_action,
        "sandbox_id": chosen.session if chosen is not None else None,
        "isolation": task.isolation,
        "artifacts": list(task.artifacts),
        "reviewers": list(spec.reviewers),
        "user_id": task.user_id,
        "created_at": _time(task.created_at),
        "queued_at": _time(task.queued_at),
        "started_at": _time(task.started_at),
        "ended_at": _time(task.ended_at),
        "revision": task.revision,
    }


def _checks(task: Task) -> list[dict[str, Any]]:
    ran = {check.command: asdict(check) for check in (task.chosen.checks if task.chosen is not None else ())}
    unknown = {"exit_code": None, "output": "", "seconds": 0.0}
    return [ran.get(command) or {"command": command, **unknown} for command in task.spec.checks]


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "agent": attempt.agent,
        "state": attempt.status.value,
        "checks": [asdict(check) for check in attempt.checks],
        "changes": asdict(attempt.changes),
        "cost_usd": attempt.usage.cost_usd,
        "seconds": attempt.seconds,
        "sandbox_id": attempt.session,
        "problem": attempt.problem,
        "chosen": attempt.chosen,
    }


def entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": _time(entry.at),
        "kind": entry.kind.value,
        "text": entry.text,
        "data": dict(entry.data),
        "raw": entry.raw,
        "attempt": entry.attempt,
    }


def step_json(step: TaskStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "status": step.status.value,
        "attempt": step.attempt,
        "number": step.number,
        "started_at": _time(step.started_at),
        "ended_at": _time(step.ended_at),
        "problem": step.problem,
    }


def _time(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None
