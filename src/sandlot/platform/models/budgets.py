"""Budgets: refuses a call when the money is spent, counts what calls used, and tells at 80 % and at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.models import (
    NANO,
    BudgetCap,
    BudgetKey,
    BudgetScope,
    ModelCall,
    ModelCallStore,
    ModelClient,
    Spent,
)
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.log import EventLog

WARN_AT = 0.8
FRESH = timedelta(seconds=2)  # how long what other processes spent may be unknown here
WARNING, REACHED = "budget.warning", "budget.reached"
EVERYBODY = "*"


class BudgetSpentError(Exception):
    """There is no money left. The message says whose, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDefaults:
    """Limits of the configuration: a month's, of each session, of each user, of some users, of everybody."""

    session: BudgetCap = field(default_factory=BudgetCap)
    user: BudgetCap = field(default_factory=BudgetCap)
    users: Mapping[str, BudgetCap] = field(default_factory=dict)
    everybody: BudgetCap = field(default_factory=BudgetCap)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a call may cost, held back while it runs, so that calls at the same time do not all count on the same money."""

    keys: tuple[BudgetKey, ...]
    cost_nano: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    key: BudgetKey
    cap: BudgetCap
    spent: Spent


class Budgets:
    def __init__(self, *, store: ModelCallStore, events: EventLog, defaults: BudgetDefaults, clock: Clock) -> None:
        self._store, self._events, self._defaults, self._clock = store, events, defaults, clock
        self._spent: dict[BudgetKey, tuple[datetime, Spent]] = {}
        self._caps: dict[tuple[BudgetScope, str], tuple[datetime, BudgetCap | None]] = {}
        self._reserved: defaultdict[BudgetKey, int] = defaultdict(int)

    async def reserve(self, client: ModelClient, cost_nano: int) -> Reservation:
        """Raises `BudgetSpentError`. A call is let in while anything is left: one may overshoot, not ten at once."""
        keys = self.keys(client)
        for key in keys:
            cap = await self.cap(client, key)
            if cap.is_none:
                continue
            spent = await self._so_far(key)
            held = Spent(cost_nano=spent.cost_nano + self._reserved[key], tokens=spent.tokens)
            if cap.share(held) >= 1.0:
                raise BudgetSpentError(_refusal(key, cap, spent, self._reserved[key]))
        for key in keys:
            self._reserved[key] += cost_nano
        return Reservation(keys, cost_nano)

    def release(self, reservation: Reservation) -> None:
        for key in reservation.keys:
            self._reserved[key] -= reservation.cost_nano
            if self._reserved[key] <= 0:
                del self._reserved[key]

    async def settle(self, call: ModelCall) -> None:
        """Count a call."""
        keys, events = self.keys(call.client), list[Event]()
        for key in keys:
            cap = await self.cap(call.client, key)
            before = await self._so_far(key)
            after = before.plus(call.cost_nano, call.tokens.total)
            events += _crossings(call, key, cap, before, after)
            self._spent[key] = (self._clock(), after)
        await self._store.add(call, keys, events)
        if events:
            self._events.changed()

    async def problem(self, client: ModelClient) -> str | None:
        """Why this client's next call would be refused, or None."""
        for view in await self.views(client):
            if view.cap.share(view.spent) >= 1.0:
                return _refusal(view.key, view.cap, view.spent, 0)
        return None

    async def views(self, client: ModelClient) -> Sequence[BudgetView]:
        """What counts for a client: limits, and what is spent of them."""
        return [
            BudgetView(key=key, cap=await self.cap(client, key), spent=await self._store.spent(key))
            for key in self.keys(client)
        ]

    def keys(self, client: ModelClient) -> tuple[BudgetKey, ...]:
        month = self._clock().strftime("%Y-%m")
        own = () if client.scope is BudgetScope.USER else (BudgetKey(client.scope, client.id),)
        shared = BudgetKey(BudgetScope.USER, client.user_id, month), BudgetKey(BudgetScope.ALL, EVERYBODY, month)
        return (*own, *shared)

    async def cap(self, client: ModelClient, key: BudgetKey) -> BudgetCap:
        if key.scope is BudgetScope.TASK:
            return client.cap
        set_by_hand = await self._set_by_hand(key)
        if set_by_hand is not None:
            return set_by_hand
        match key.scope:
            case BudgetScope.SESSION:
                return client.cap if not client.cap.is_none else self._defaults.session
            case BudgetScope.USER:
                return self._defaults.users.get(key.subject, self._defaults.user)
            case _:
                return self._defaults.everybody

    async def set_cap(self, scope: BudgetScope, subject: str, cap: BudgetCap | None) -> None:
        """Instead of the configuration's; None brings that back."""
        await self._store.set_cap(scope, subject, cap)
        self._caps.clear()

    async def caps(self) -> Mapping[tuple[BudgetScope, str], BudgetCap]:
        """The limits that were set by hand."""
        return await self._store.caps()

    async def _set_by_hand(self, key: BudgetKey) -> BudgetCap | None:
        known = self._caps.get((key.scope, key.subject))
        if known is not None and self._clock() - known[0] < FRESH:
            return known[1]
        if len(self._caps) > 10_000:
            self._caps.clear()
        found = await self._store.cap(key.scope, key.subject)
        self._caps[key.scope, key.subject] = (self._clock(), found)
        return found

    async def _so_far(self, key: BudgetKey) -> Spent:
        known = self._spent.get(key)
        if known is not None and self._clock() - known[0] < FRESH:
            return known[1]
        if len(self._spent) > 10_000:
            self._spent.clear()
        found = await self._store.spent(key)
        self._spent[key] = (self._clock(), found)
        return found


def _crossings(call: ModelCall, key: BudgetKey, cap: BudgetCap, before: Spent, after: Spent) -> list[Event]:
    """The events of a call that brought a budget past 80 %, or to its end."""
    if cap.is_none:
        return []
    old, new = cap.share(before), cap.share(after)
    crossed = [type for type, mark in ((WARNING, WARN_AT), (REACHED, 1.0)) if old < mark <= new]
    is_task = key.scope is BudgetScope.TASK
    subject = Subject("task", key.subject) if is_task else Subject("budget", f"{key.scope.value}:{key.subject}")
    data = {
        "scope": key.scope.value,
        "subject": key.subject,
        "period": key.period or None,
        "spent_usd": round(after.cost_nano / NANO, 6),
        "spent_tokens": after.tokens,
        "limit_usd": cap.cost_usd,
        "limit_tokens": cap.tokens,
        "share": round(new, 4),
    }
    return [Event(type=type, at=call.at, user_id=call.client.user_id, subject=subject, data=data) for type in crossed]


def _refusal(key: BudgetKey, cap: BudgetCap, spent: Spent, reserved: int) -> str:
    used = f"${spent.cost_nano / NANO:.2f} and {spent.tokens:,} tokens are spent"
    if reserved and cap.share(spent) < 1.0:
        used += f", and calls under way may use the rest (${reserved / NANO:.2f})"
    raise_it = {
        BudgetScope.TASK: "raise the task's limit (cost_usd) and send it a message to go on",
        BudgetScope.SESSION: "an administrator can raise it",
        BudgetScope.USER: "an administrator can raise it, or wait for the next month",
        BudgetScope.ALL: "an administrator can raise it, or wait for the next month",
    }[key.scope]
    return f"the budget of {key} is used up: {used}, the limit is {cap}; {raise_it}"
