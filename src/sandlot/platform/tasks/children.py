"""What tasks below a task may be and use: how deep, how many, and no more than is left of its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandlot.platform.core.errors import Busy, InvalidRequest
from sandlot.platform.core.tasks import TASK_ENDED, Task, TaskLimits, TaskPolicy


def child_limits(parent: Task, children: Sequence[Task], wanted: TaskLimits, policy: TaskPolicy) -> TaskLimits:
    """The limits of one more task below `parent`. Raises `Busy` if there may be none, `InvalidRequest` if it wants too much."""
    if parent.spec.depth + 1 > policy.depth:
        raise Busy(f"task {parent.id!r} is {parent.spec.depth} levels deep already; tasks below it are not allowed")
    if len(children) >= policy.children:
        raise Busy(f"task {parent.id!r} has {len(children)} tasks below it already; that is the limit")
    limits = replace(wanted, seconds=min(wanted.seconds, parent.spec.limits.seconds))
    left = remaining_usd(parent, children)
    if left is None:
        return limits
    if left <= 0:
        raise Busy(f"the budget of task {parent.id!r} is used up, by itself and the tasks below it")
    if wanted.cost_usd is not None and wanted.cost_usd > left:
        raise InvalidRequest(
            f"task {parent.id!r} has {left:.2f} USD left for tasks below it; ask for no more than that"
        )
    return replace(limits, cost_usd=wanted.cost_usd if wanted.cost_usd is not None else left)


def remaining_usd(parent: Task, children: Sequence[Task]) -> float | None:
    """What a task may still spend or give away; None if it has no limit. A child that is not over counts with its whole limit."""
    limit = parent.spec.limits.cost_usd
    if limit is None:
        return None
    return limit - (parent.usage.cost_usd or 0.0) - sum(_reserved_usd(child) for child in children)


def _reserved_usd(child: Task) -> float:
    spent = child.usage.cost_usd or 0.0
    return spent if child.status in TASK_ENDED else max(spent, child.spec.limits.cost_usd or 0.0)
