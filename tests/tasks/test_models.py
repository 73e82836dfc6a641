"""Tasks that call models: through the tunnel and the gateway, without internet, with a key that is worth nothing elsewhere, within a budget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.e2e.server import Server
from tests.models.script import parse
from tests.models.server import ScriptedModel
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks

from sandlot.platform.agents.descriptions import load_agents
from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.model import AgentSettings
from sandlot.platform.core.models import ModelApi, ModelEndpoint
from sandlot.platform.core.tasks import Task, TaskNetwork, TaskSpec
from sandlot.platform.models.gateway import ModelGateway
from sandlot.platform.models.keys import ModelKeys
from sandlot.platform.models.routing import ModelRouter
from sandlot.platform.tasks.models import TaskModels

SECRET = "the-real-key-of-the-host"
SAID = "The answer is forty-two."
CALL = """
cat >/tmp/ask <<'END'
{"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "what is it?"}]}
END
curl -sS -f --json @/tmp/ask -H "x-api-key: $MODEL_GATEWAY_KEY" "$MODEL_GATEWAY_URL/v1/messages" >answer.json || exit 7
"""


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    turn = {"say": SAID, "input_tokens": 100_000, "output_tokens": 1000}
    with ScriptedModel(parse({"scenes": [{"chat": True, "turns": [turn]}]})) as served:
        yield served


@pytest.fixture
async def served(tmp_path: Path, engine: Server, model: ScriptedModel) -> AsyncIterator[Served]:
    endpoint = ModelEndpoint(name="own", api=ModelApi.ANTHROPIC, url=model.url, key=SECRET)
    configuration = by_url(f"http://127.0.0.1:{engine.port}", engine.key, models=(endpoint,))
    async with Served(tmp_path, configuration) as served:
        yield served


async def test_a_program_without_internet_calls_a_model_and_the_task_pays(ann: Tasks) -> None:
    await ann.repository(README="Ask.\n")
    id = await ann.create("Ask the model", agent="command", command=f"{CALL}\nenv >environment.txt")
    await ann.until(id, "review")
    diff = (await ann.http.get(f"/tasks/{id}/diff")).text
    assert SAID in diff and SECRET not in diff and "MODEL_GATEWAY_URL=" in diff
    await ann.served.deps.models.gateway.close()
    (row,) = (await ann.http.get("/usage", params={"by": "task,repository,agent,user"})).json()["usage"]
    assert row["group"] == {
        "task": id,
        "repository": "app",
        "agent": "command",
        "user": "ann",
    }
    assert (row["input_tokens"], row["output_tokens"]) == (100_000, 1000)


async def test_at_its_budget_a_task_needs_you_and_goes_on_when_it_is_raised(ann: Tasks) -> None:
    await ann.repository(README="Ask.\n")
    id = await ann.create("Ask the model twice", agent="command", command=f"{CALL}\n{CALL}", limits={"cost_usd": 0.1})
    task = await ann.until(id, "needs_you")
    assert "budget" in task["reason"] and "cost_usd" in task["reason"]
    assert (await ann.http.patch(f"/tasks/{id}", json={"limits": {"cost_usd": 10}})).status_code == 200
    await ann.post(f"/tasks/{id}/retry")
    await ann.until(id, "review")


def models(*apis: ModelApi, **settings: AgentSettings) -> TaskModels:
    async def nobody(*_: Any) -> Any:
        raise AssertionError

    endpoints = [ModelEndpoint(name=api.value, api=api, url="http://127.0.0.1:1") for api in apis]
    gateway = SimpleNamespace(router=ModelRouter(endpoints), keys=ModelKeys(secret="s", find=nobody, user=nobody))
    return TaskModels(cast(ModelGateway, gateway), settings)


def task(**spec: Any) -> Task:
    from datetime import UTC, datetime

    from sandlot.platform.core.tasks import TaskStatus

    asked = TaskSpec(repository="app", prompt="p", title="t", agent="claude", **spec)
    return Task(id="bcdfghjk", user_id="ann", status=TaskStatus.WORKING, spec=asked, created_at=datetime.now(UTC))


def test_each_agent_is_pointed_at_the_gateway_in_its_own_way() -> None:
    agents, given = load_agents(), models(*ModelApi)
    for name in ("claude", "codex", "gemini", "opencode", "copilot"):
        found = given.pointed(task(), agents[name], None)
        assert found is not None
        text = "".join((*found.environment.values(), *found.files.values()))
        assert "http://127.0.0.1:6070/models" in text and "slm_task_bcdfghjk_" in text
        assert "{" not in "".join(found.environment.values())


def test_an_agent_with_a_key_of_its_own_is_left_alone() -> None:
    agents = load_agents()
    own = AgentSettings(envs={"ANTHROPIC_API_KEY": "k"})
    found = models(*ModelApi, claude=own).pointed(task(), agents["claude"], None)
    assert found is not None and "ANTHROPIC_BASE_URL" not in found.environment
    assert models().pointed(task(), agents["claude"], None) is None
    other = models(ModelApi.GEMINI).pointed(task(), agents["claude"], None)
    assert other is not None and "ANTHROPIC_BASE_URL" not in other.environment


def test_without_internet_an_agent_is_told_to_call_nobody_else() -> None:
    found = models(*ModelApi).pointed(task(network=TaskNetwork(internet=False)), load_agents()["claude"], None)
    assert found is not None and found.environment["DISABLE_TELEMETRY"] == "1"


def test_an_agent_that_must_be_told_a_model_has_one() -> None:
    agents = load_agents()
    codex = models(*ModelApi).pointed(task(), agents["codex"], "gpt-5-mini")
    assert codex is not None and 'model = "gpt-5-mini"' in codex.files[".codex/config.toml"]
    described = agents["codex"].model
    assert described is not None
    bare = agents["codex"].model_copy(update={"model": described.model_copy(update={"default": None})})
    with pytest.raises(InvalidRequest, match="which model"):
        models(*ModelApi).pointed(task(), bare, None)
