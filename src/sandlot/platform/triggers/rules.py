"""The rules that make tasks: those of the configuration file and those of the API, their pauses, and how much they may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sandlot.platform.core.errors import Busy, Conflict, NotFound
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.proofs import ProofOutcome
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import Task, TaskStatus
from sandlot.platform.core.triggers import RuleRecord, RuleState, TriggerRule
from sandlot.platform.events.log import EventLog
from sandlot.platform.tasks.service import NOBODY, Tasks
from sandlot.platform.triggers.ports import RuleStore

ADMIN = Caller(user_id=None, scopes=frozenset({Scope.ADMIN, Scope.READ, Scope.WRITE}))
FAILURES = 3  # in a row, after which a rule pauses
MOST_RULES = 200
PAUSED, RESUMED, CREATED, DELETED = "trigger.paused", "trigger.resumed", "trigger.created", "trigger.deleted"
_UNFIXED = (ProofOutcome.NOT_FIXED, ProofOutcome.NOT_REPRODUCIBLE)


class RuleBook:
    """`of_file` come first, in the file's order; then those of the API, by name."""

    def __init__(
        self, *, of_file: Sequence[TriggerRule], store: RuleStore, tasks: Tasks, events: EventLog, clock: Clock
    ) -> None:
        self._of_file, self._store, self._tasks, self._events, self._clock = of_file, store, tasks, events, clock

    async def list(self) -> Sequence[RuleState]:
        stored = {record.name: record for record in await self._store.all()}
        found = [_state(rule, stored.get(rule.name), is_of_file=True) for rule in self._of_file]
        names = {rule.name for rule in self._of_file}
        for name, record in stored.items():
            if record.rule is not None and name not in names:
                found.append(_state(record.rule, record, is_of_file=False))
        return found

    async def get(self, name: str) -> RuleState:
        found = next((each for each in await self.list() if each.rule.name == name), None)
        if found is None:
            raise NotFound(f"there is no rule {name[:80]!r}")
        return found

    # -- changing ---------------------------------------------------------------------------------------------------

    async def create(self, rule: TriggerRule) -> RuleState:
        known = await self.list()
        if any(each.rule.name == rule.name for each in known):
            raise Conflict(f"there is a rule {rule.name!r} already; delete it, or take another name")
        if len(known) >= MOST_RULES:
            raise Busy(f"there are {MOST_RULES} rules; delete one")
        await self._put(RuleRecord(name=rule.name, rule=rule, created_at=self._clock()), CREATED, "")
        return await self.get(rule.name)

    async def delete(self, name: str) -> None:
        if (await self.get(name)).is_of_file:
            raise Conflict(f"rule {name!r} is in sandlot.toml: remove it there, or pause it")
        await self._store.remove(name, self._event(name, DELETED, ""))
        self._events.changed()

    async def pause(self, name: str, reason: str = "paused by an admin") -> RuleState:
        state = await self.get(name)
        if state.paused_at is None:
            record = replace(_record(state), paused_at=self._clock(), paused_reason=reason)
            await self._put(record, PAUSED, reason)
        return await self.get(name)

    async def resume(self, name: str) -> RuleState:
        """What failed before does not count any more."""
        state = await self.get(name)
        if state.paused_at is not None:
            record = replace(_record(state), paused_at=None, paused_reason=None, resumed_at=self._clock())
            await self._put(record, RESUMED, "")
        return await self.get(name)

    async def _put(self, record: RuleRecord, type: str, reason: str) -> None:
        await self._store.put(record, self._event(record.name, type, reason))
        self._events.changed()

    def _event(self, name: str, type: str, reason: str) -> Event:
        data = {"rule": name, "reason": reason}
        return Event(type=type, at=self._clock(), user_id=NOBODY, subject=Subject("trigger", name), data=data)

    # -- how much they may do ---------------------------------------------------------------------------------------

    async def check(self, rule: TriggerRule, key: str, place: str | None = None) -> None:
        """Raises `Busy` if the rule pauses, or has done as much as it may: in a day, and at `place`. Pauses one that keeps failing."""
        recent = await self._tasks.list(ADMIN, TaskQuery(label=_label(rule), limit=max(rule.per_day, 200)))
        if any(each.idempotency_key == key for each in recent):
            return  # it was made, and we came to an end before that was written down
        state = await self.get(rule.name)
        if state.paused_at is not None:
            raise Busy(f"rule {rule.name!r} pauses: {state.paused_reason}; `trigger resume {rule.name}` lets it go on")
        counted = [each for each in recent if state.resumed_at is None or each.created_at > state.resumed_at]
        last = counted[:FAILURES]
        if len(last) == FAILURES and all(map(has_failed, last)):
            names = ", ".join(each.id for each in last)
            reason = f"its last {FAILURES} tasks came to nothing ({names})"
            await self.pause(rule.name, reason)
            raise Busy(f"rule {rule.name!r} pauses: {reason}; `trigger resume {rule.name}` lets it go on")
        today = [each for each in recent if each.created_at > self._clock() - timedelta(days=1)]
        if len(today) >= rule.per_day:
            raise Busy(f"rule {rule.name!r} has made {rule.per_day} tasks within a day; that is its limit")
        if place is not None:
            here = [each for each in recent if place in each.spec.labels]
            if len(here) >= rule.per_pull:
                raise Busy(f"rule {rule.name!r} has tried {len(here)} times here; a person must look at it")


def has_failed(task: Task) -> bool:
    proof = task.chosen.proof if task.chosen is not None else None
    if proof is not None and proof.outcome in _UNFIXED:
        return task.status in (TaskStatus.FAILED, TaskStatus.NEEDS_YOU, TaskStatus.CANCELLED)
    return task.status is TaskStatus.FAILED


def _label(rule: TriggerRule) -> str:
    return f"rule:{rule.name}"


def _state(rule: TriggerRule, record: RuleRecord | None, *, is_of_file: bool) -> RuleState:
    if record is None:
        return RuleState(rule=rule, is_of_file=is_of_file)
    return RuleState(
        rule=rule,
        is_of_file=is_of_file,
        paused_at=record.paused_at,
        paused_reason=record.paused_reason,
        resumed_at=record.resumed_at,
        created_at=record.created_at,
    )


def _record(state: RuleState) -> RuleRecord:
    return RuleRecord(
        name=state.rule.name,
        rule=None if state.is_of_file else state.rule,
        paused_at=state.paused_at,
        paused_reason=state.paused_reason,
        resumed_at=state.resumed_at,
        created_at=state.created_at,
    )
