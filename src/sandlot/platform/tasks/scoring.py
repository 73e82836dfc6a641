"""Which of several attempts becomes the pull request: checks first, then the smallest change, the least money, the least time."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot.platform.core.tasks import Attempt, AttemptStatus

_RANK = {
    AttemptStatus.READY: 0,
    AttemptStatus.FAILING: 1,
    AttemptStatus.UNCHANGED: 2,
    AttemptStatus.WORKING: 3,
    AttemptStatus.WAITING: 3,
    AttemptStatus.FAILED: 3,
}


def score(attempt: Attempt) -> tuple[float, ...]:
    """Less is better."""
    failing = sum(1 for check in attempt.checks if check.exit_code != 0)
    size = attempt.changes.added + attempt.changes.removed
    return (_RANK[attempt.status], failing, size, attempt.usage.cost_usd or 0.0, attempt.seconds, attempt.number)


def best_of(attempts: Sequence[Attempt]) -> Attempt:
    return min(attempts, key=score)
