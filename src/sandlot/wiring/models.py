"""Puts the model gateway together: its endpoints, virtual keys, prices and budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandlot.platform.config.configuration import Configuration
from sandlot.platform.config.models import BudgetsTable
from sandlot.platform.core.model import TERMINAL, Scope
from sandlot.platform.core.models import BudgetCap, BudgetScope, ModelClient
from sandlot.platform.core.ports import Clock, SessionStore
from sandlot.platform.core.task_ports import TaskStore
from sandlot.platform.core.tasks import TaskStatus
from sandlot.platform.events.log import EventLog
from sandlot.platform.identity.keys import Access, require
from sandlot.platform.models.budgets import BudgetDefaults, Budgets
from sandlot.platform.models.gateway import ModelGateway
from sandlot.platform.models.keys import ModelKeys
from sandlot.platform.models.parts import ModelServices
from sandlot.platform.models.prices import Prices
from sandlot.platform.models.routing import ModelRouter
from sandlot.platform.models.upstream import Upstream
from sandlot.platform.models.usage_report import ModelUsage
from sandlot.platform.store import Database, SqlModelCalls
from sandlot.platform.store.events import Route

NOBODY = "admin"  # whose calls those of an admin key without a user are


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    configuration: Configuration
    database: Database
    route: Route
    events: EventLog
    secret: str
    access: Access
    tasks: TaskStore
    sessions: SessionStore
    upstream: Upstream
    clock: Clock


def build_models(parts: ModelParts) -> ModelServices:
    config = parts.configuration
    store = SqlModelCalls(parts.database, parts.route)
    budgets = Budgets(store=store, events=parts.events, defaults=_defaults(config.budgets), clock=parts.clock)
    keys = ModelKeys(secret=parts.secret, find=_find(parts.tasks, parts.sessions), user=_user(parts.access))
    gateway = ModelGateway(
        keys=keys,
        router=ModelRouter(config.models),
        budgets=budgets,
        prices=Prices(config.prices),
        upstream=parts.upstream,
        clock=parts.clock,
    )
    return ModelServices(gateway=gateway, usage=ModelUsage(store=store, budgets=budgets, clock=parts.clock))


def _defaults(table: BudgetsTable) -> BudgetDefaults:
    return BudgetDefaults(
        session=table.session.cap(),
        user=table.user.cap(),
        users={name: cap.cap() for name, cap in table.users.items()},
        everybody=table.everybody.cap(),
    )


def _find(tasks: TaskStore, sessions: SessionStore) -> Callable[[BudgetScope, str], Awaitable[ModelClient | None]]:
    async def find(scope: BudgetScope, id: str) -> ModelClient | None:
        if scope is BudgetScope.TASK:
            task = await tasks.get(id)
            if task is None or task.status is not TaskStatus.WORKING:
                return None
            return ModelClient(
                user_id=task.user_id,
                scope=scope,
                id=id,
                agent=task.spec.agent,
                repository=task.spec.repository,
                cap=BudgetCap(cost_usd=task.spec.limits.cost_usd),
            )
        session = await sessions.get(id)
        if session is None or session.status in TERMINAL:
            return None
        return ModelClient(user_id=session.user_id, scope=scope, id=id, agent=session.agent_type)

    return find


def _user(access: Access) -> Callable[[str], Awaitable[ModelClient]]:
    async def user(secret: str) -> ModelClient:
        caller = await access.authenticate(secret)
        require(caller, Scope.WRITE)
        name = caller.user_id or NOBODY
        return ModelClient(user_id=name, scope=BudgetScope.USER, id=name)

    return user
