"""Words for pull requests: what was done, the checks with their output, what it cost, and where the timeline is."""

from __future__ import annotations

import re

from sandlot.platform.core.tasks import Attempt, CheckResult, Task
from sandlot.platform.tasks.proof_text import proof_section

MAX_RESULT, MAX_OUTPUT = 8000, 4000


def pull_body(task: Task, attempt: Attempt, *, agent: str, timeline: str) -> str:
    parts = [_bounded(attempt.result.strip(), MAX_RESULT) or task.spec.prompt.strip()[:MAX_RESULT]]
    if attempt.checks:
        parts.append("## Checks\n\n" + "\n\n".join(_check(check) for check in attempt.checks))
    if task.spec.proof is not None:
        parts.append("## Proof\n\n" + proof_section(task.spec.proof, attempt.proof))
    parts.append("## Task\n\n" + "\n".join(_facts(task, attempt, agent, timeline)))
    if task.spec.issue:
        parts.append(f"Closes {_issue(task.spec.issue)}")
    return "\n\n".join(parts) + "\n"


def _check(check: CheckResult) -> str:
    how = "passed" if check.exit_code == 0 else f"**failed** (exit code {check.exit_code})"
    command = check.command.strip().splitlines()[0][:200] if check.command.strip() else check.command
    output = _bounded(check.output.strip(), MAX_OUTPUT, tail=True) or "(no output)"
    fence = _fence(output)
    summary = f"<code>{_escaped(command)}</code>: {how}, {check.seconds:.1f} s"
    summary = summary.replace("**failed**", "<b>failed</b>")
    return f"<details><summary>{summary}</summary>\n\n{fence}text\n{output}\n{fence}\n\n</details>"


def _facts(task: Task, attempt: Attempt, agent: str, timeline: str) -> list[str]:
    usage = attempt.usage
    cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    model = f" ({attempt.model or task.spec.model})" if attempt.model or task.spec.model else ""
    lines = [
        f"- Agent: {agent}{model}, {attempt.turn} turn{'s' if attempt.turn != 1 else ''}, {attempt.seconds:.0f} s",
        f"- Tokens: {usage.input} in, {usage.output} out{cost}",
        f"- Asked for by {_escaped(task.user_id)}",
        f"- Timeline: {timeline}",
    ]
    if len(task.attempts) > 1:
        others = ", ".join(f"{one.agent} ({one.status.value})" for one in task.attempts if one.number != attempt.number)
        lines.insert(1, f"- Chosen of {len(task.attempts)} attempts; the others: {others}")
    return lines


def _issue(url: str) -> str:
    """Forges close an issue that is named by its number, or by its whole address."""
    return re.sub(r"[\s<>]", "", url)[:500]


def _fence(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def _bounded(text: str, most: int, *, tail: bool = False) -> str:
    text = text.replace("\0", "")
    if len(text) <= most:
        return text
    return "…\n" + text[-most:] if tail else text[:most] + "\n…"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
