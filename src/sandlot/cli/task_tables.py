"""How tasks look as rows and records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sandlot.cli import output
from sandlot.cli.timeline import state_word


def row(task: dict[str, Any]) -> tuple[Any, ...]:
    pull, title = task["pull_request"], task["title"]
    return (
        task["id"],
        state_word(task["state"]),
        title if len(title) <= 50 else title[:49] + "…",
        task["repository"],
        ",".join(task["agents"]) or task["agent"],
        _changes(task["changes"]),
        _cost(task["cost_usd"]),
        f"#{pull['number']} {pull['state']}" if pull else None,
        output.age(datetime.fromisoformat(task["created_at"])),
    )


def record(task: dict[str, Any], absolute: Callable[[str], str]) -> dict[str, Any]:
    pull, tokens, limits = task["pull_request"], task["tokens"], task["limits"]
    shown: dict[str, Any] = {
        "id": task["id"],
        "title": task["title"],
        "state": state_word(task["state"]),
        "reason": task["reason"],
        "repository": f"{task['repository']} ({task['base']})",
        "branch": task["branch"],
        "agent": ", ".join(task["agents"]) or task["agent"],
        "model": task["model"],
        "pull request": f"{absolute(pull['url'])} ({'draft, ' if pull['draft'] else ''}{pull['state']})"
        if pull
        else None,
        "changes": _changes(task["changes"]),
        "cost": _cost(task["cost_usd"]),
        "tokens": f"{tokens['input']} in, {tokens['output']} out" if tokens["input"] or tokens["output"] else None,
        "limits": f"{limits['seconds']} s, {limits['attempts']} tries"
        + (f", ${limits['cost_usd']}" if limits["cost_usd"] else "")
        + (f", {limits['turns']} turns" if limits["turns"] else ""),
        "network": "internet" if task["network"]["internet"] else ", ".join(task["network"]["allow"]) or "none",
        "labels": ", ".join(task["labels"]) or None,
        "blocked by": ", ".join(task["blocked_by"]) or None,
        "parent": task["parent"],
        "issue": task["issue"],
        "artifacts": ", ".join(task["artifacts"]) or None,
        "sandbox": task["sandbox_id"],
        "doing": task["last_action"],
        "created": f"{output.age(datetime.fromisoformat(task['created_at']))} ago",
    }
    return {name: value for name, value in shown.items() if value is not None}


def print_checks(checks: list[dict[str, Any]], full: bool) -> None:
    if checks:
        print(f"\n{output.paint('checks', 'bold')}")
    for check in checks:
        code = check["exit_code"]
        sign = "·" if code is None else output.paint("✓", "green") if code == 0 else output.paint("✗", "red")
        print(f"  {sign} {output.plain(check['command'])}" + (f"  exit code {code}" if code else ""))
        lines = output.plain(check["output"]).strip("\n").splitlines()
        for line in lines if full else lines[-10:] if code else []:
            print(f"      {line}")


def step(step: dict[str, Any]) -> str:
    signs = {
        "done": output.paint("✓", "green"),
        "failed": output.paint("✗", "red"),
        "running": output.paint("…", "cyan"),
    }
    return f"{signs.get(step['status'], '·')} {step['name'].replace('_', ' ')}"


def attempt(each: dict[str, Any]) -> tuple[Any, ...]:
    mark = "chosen" if each["chosen"] else each["problem"] or ""
    facts = (_changes(each["changes"]), _cost(each["cost_usd"]), f"{each['seconds']:.0f}")
    return (each["number"], each["agent"], each["state"], *facts, mark)


def _changes(changes: dict[str, Any]) -> str | None:
    return f"+{changes['added']} -{changes['removed']}" if changes["files"] else None


def _cost(usd: float | None) -> str | None:
    return f"${usd:.2f}" if usd is not None else None
