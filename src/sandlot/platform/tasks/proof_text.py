"""Words about proofs, for pull requests: what was red, what is green, what was changed and what it cost."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandlot.platform.core.proofs import Proof, ProofOutcome, ProofSpec, TrialRun
from sandlot.platform.core.tasks import Attempt, Task, TaskStatus
from sandlot.platform.git.records import FileDiff

MAX_OUTPUT, MAX_LOG, MAX_FILES = 5000, 4000, 30
HEADLINES = {
    ProofOutcome.RED: "Working on it",
    ProofOutcome.FIXED: "Fixed, and shown to be",
    ProofOutcome.FLAKY: "Flaky: nothing was changed",
    ProofOutcome.NOT_REPRODUCIBLE: "Not reproducible",
    ProofOutcome.NOT_FIXED: "Not fixed",
    ProofOutcome.MOVED: "Stopped: the branch has moved on",
}
STATES = {
    ProofOutcome.FIXED: "success",
    ProofOutcome.FLAKY: "success",
    ProofOutcome.NOT_FIXED: "failure",
    ProofOutcome.RED: "failure",
}


def headline(proof: Proof | None, status: TaskStatus) -> str:
    if proof is None:
        return "Failed" if status is TaskStatus.FAILED else "Stopped"
    if proof.outcome is ProofOutcome.RED:
        return "Not fixed"
    return HEADLINES[proof.outcome]


def state_of(proof: Proof | None) -> str:
    """As forges call it, once it is over."""
    return STATES.get(proof.outcome, "error") if proof is not None else "error"


def proof_section(spec: ProofSpec, proof: Proof | None) -> str:
    """The runs before and after, folded."""
    parts = [f"Failure: {escaped(spec.title)} on `{spec.sha[:12]}`, {spec.url}"]
    if proof is not None and proof.words:
        parts.append(escaped(proof.words))
    for run in proof.before if proof is not None else ():
        parts.append(_folded("before", run))
    if proof is None or not proof.before:
        parts += [folded("log of the failure", spec.log[-MAX_LOG:])] if spec.log else []
    for run in proof.after if proof is not None else ():
        parts.append(_folded("after", run))
    return "\n\n".join(parts)


def ended_comment(
    task: Task, attempt: Attempt | None, status: TaskStatus, reason: str, files: Sequence[FileDiff], link: str
) -> str:
    """The one comment of a pull request, as it is in the end."""
    assert task.spec.proof is not None
    proof = attempt.proof if attempt is not None else None
    parts = [f"### Sandlot: {headline(proof, status)}", proof_section(task.spec.proof, proof)]
    if reason and (proof is None or proof.words not in reason):
        parts.insert(1, escaped(reason))
    if files and proof is not None and proof.outcome is ProofOutcome.FIXED:
        parts.append(diff_summary(files))
    return "\n\n".join([*parts, facts(task, link)])


def diff_summary(files: Sequence[FileDiff]) -> str:
    lines = ["| changed | + | − |", "| --- | --- | --- |"]
    for file in files[:MAX_FILES]:
        name = escaped(file.path).replace("|", "\\|").replace("`", "'").replace("\n", " ")
        lines.append(f"| `{name}` | {file.added} | {file.removed} |")
    if len(files) > MAX_FILES:
        lines.append(f"| and {len(files) - MAX_FILES} more | | |")
    return "\n".join(lines)


def facts(task: Task, link: str) -> str:
    usage = task.usage
    cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    return f"Task `{task.id}`, {usage.input} tokens in, {usage.output} out{cost}. Timeline: {link}"


def _folded(when: str, run: TrialRun) -> str:
    how = "green" if run.is_green else f"red, exit code {run.exit_code}"
    title = f"{when}: {run.trial}, {run.step}: {how}, {run.seconds:.1f} s"
    return folded(title, run.output[-MAX_OUTPUT:])


def folded(title: str, output: str) -> str:
    """A text of anybody's, that cannot end the fence around it."""
    text = output.replace("\0", "").strip() or "(no output)"
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"<details><summary>{escaped(title)}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"


def escaped(text: str) -> str:
    """No markup, no mention of anybody, no marker of ours."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("@", "@\N{ZERO WIDTH SPACE}")
