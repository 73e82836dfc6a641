"""Models for the agents of tasks: through the gateway, with a key of the task's own, where the operator gave the agent no key of its own."""

from __future__ import annotations

from collections.abc import Mapping

from sandlot.platform.agents.descriptions import AgentDescription, PointedAgent
from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.model import AgentSettings
from sandlot.platform.core.models import BudgetCap, BudgetScope, ModelClient
from sandlot.platform.core.tasks import Task
from sandlot.platform.models.gateway import ModelGateway
from sandlot.platform.models.prices import Prices
from sandlot.platform.tunnel.routes import RouteApp

ROUTE = "models"
INSIDE = f"http://127.0.0.1:6070/{ROUTE}"  # where the tunnel ends in a sandbox
PROVIDER = "sandlot"
URL, KEY = "MODEL_GATEWAY_URL", "MODEL_GATEWAY_KEY"


class TaskModels:
    """`settings` are those of the configuration, by agent: one with a key in its variables is not pointed elsewhere."""

    def __init__(self, gateway: ModelGateway, settings: Mapping[str, AgentSettings]) -> None:
        self._gateway, self._settings = gateway, settings

    @property
    def prices(self) -> Prices:
        """For what agents tell of themselves."""
        return self._gateway.prices

    def route(self, task: Task) -> RouteApp:
        return self._gateway.door((BudgetScope.TASK, task.id))

    def pointed(self, task: Task, agent: AgentDescription, model: str | None) -> PointedAgent | None:
        """What has the agent use the gateway; None if there are no models. Any program finds it by two variables.

        Raises `InvalidRequest`.
        """
        if not self._gateway.router.endpoints:
            return None
        key = self._gateway.keys.key(BudgetScope.TASK, task.id)
        found = {URL: INSIDE, KEY: key, **({} if task.spec.network.internet else agent.offline)}
        api = agent.endpoint.api
        if api is None or self._gateway.router.of(api) is None or self._has_own_key(task, agent):
            return PointedAgent(environment=found, files={})
        chosen = model or (agent.model.default if agent.model is not None else None)
        if chosen is None and agent.must_name_model:
            raise InvalidRequest(f"{agent.title} must be told which model to use: name one in the task")
        told = agent.pointed_at(INSIDE, key=key, model=chosen or "", provider=PROVIDER)
        return PointedAgent(environment={**found, **told.environment}, files=told.files)

    async def problem(self, task: Task) -> str | None:
        """Why the task's next call would be refused: a budget is used up."""
        client = ModelClient(
            user_id=task.user_id,
            scope=BudgetScope.TASK,
            id=task.id,
            cap=BudgetCap(cost_usd=task.spec.limits.cost_usd),
        )
        return await self._gateway.budgets.problem(client)

    def _has_own_key(self, task: Task, agent: AgentDescription) -> bool:
        settings = self._settings.get(agent.id)
        wanted = agent.task.env if agent.task is not None else ()
        given = {*(settings.envs if settings is not None else ()), *task.spec.secrets}
        return any(name in given for name in wanted)
