"""Every real agent works on a task: from a prompt to a pull request and a review, without internet, with a scripted model behind the gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.agents.clis import MODEL, NAMES
from tests.agents.recording import AGAIN, FIX, GREETING, HANDS, RUN_TESTS, TESTS, scenes
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.models.script import parse
from tests.models.server import ScriptedModel
from tests.platform.world import Served, load_text
from tests.tasks.world import Tasks

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
WORK = "/home/user/app"
SECONDS = 600  # an agent starts in seconds; on a loaded machine it takes much longer
WAIT, GO_ON = "Wait until I say something.", "Go on now."
CONFIGURATION = """
[providers.elsewhere]
kind = "url"
api_url = "{url}"
sandbox_url = "{url}"
domain = "{domain}"
key_env = "ELSEWHERE_KEY"

[models.anthropic]
api = "anthropic"
url = "{model}"
[models.openai]
api = "openai"
url = "{model}/v1"
[models.gemini]
api = "gemini"
url = "{model}"

[prices.{name}]
input = 10
output = 100
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the template built as users build it."""
    with in_pristine(tmp_path_factory, "container") as server:
        server.cli("template", "build", "--stock", "node", "agent", timeout=1500)
        yield server


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(parse([])) as model:
        yield model


@pytest.fixture
async def ann(engine: Server, model: ScriptedModel, tmp_path: Path) -> AsyncIterator[Tasks]:
    """A user of a platform whose models are all the scripted one."""
    url = f"http://127.0.0.1:{engine.port}"
    text = CONFIGURATION.format(url=url, domain=f"localhost:{engine.port}", model=model.url, name=MODEL)
    async with Served(tmp_path, load_text(text, {"ELSEWHERE_KEY": engine.key})) as served:
        key = await served.key("ann")
        async with served.http(key) as http:
            tasks = Tasks(http, served, key, tmp_path)
            await tasks.repository(**{"greet.py": GREETING, "test_greet.py": TESTS, ".gitignore": "__pycache__\n"})
            yield tasks


@pytest.mark.parametrize("name", NAMES)
async def test_a_prompt_becomes_a_pull_request_and_a_message_goes_on(
    ann: Tasks, model: ScriptedModel, name: str
) -> None:
    model.replace(scenes(name, WORK))
    id = await ann.create(FIX, agent=name, model=MODEL, checks=[RUN_TESTS], limits={"seconds": 1500})
    task = await ann.until(id, "review", seconds=SECONDS)
    assert model.problems == []
    assert task["pull_request"]["number"] == 1 and task["checks"][0]["exit_code"] == 0
    assert task["tokens"]["input"] >= 6000 and task["cost_usd"] > 0
    told = {entry["kind"]: entry for entry in await ann.entries(id)}
    assert {"message", "command", "edit", "test", "git", "usage", "result"} <= set(told)
    assert told["result"]["text"] == "It greets by name now."
    assert told["edit"]["data"]["path"] == "greet.py"
    assert '+    return f"hello from {name}"' in (await ann.http.get(f"/tasks/{id}/patch")).text

    first = len(model.asked)
    await ann.post(f"/tasks/{id}/messages", text=AGAIN)
    await _until_told(ann, id, 2)
    again = await ann.until(id, "review", seconds=SECONDS)
    assert again["sandbox_id"] == task["sandbox_id"]
    later = [str(asked.messages) for asked in model.asked[first:]]
    assert any(FIX in said and AGAIN in said for said in later), "it remembers what it was told first"
    results = [entry["text"] for entry in await ann.entries(id, "result")]
    assert results == ["It greets by name now.", "There is no missing.txt."]
    assert again["tokens"]["input"] > task["tokens"]["input"]
    assert model.problems == []


@pytest.mark.parametrize("name", NAMES)
async def test_an_agent_that_is_interrupted_listens(ann: Tasks, model: ScriptedModel, name: str) -> None:
    begin = {"say": "I wait.", "calls": [HANDS[name].run("touch ../begun && sleep 900")]}
    listen = [{"calls": [HANDS[name].run("echo x >listened.txt")]}, {"say": "I listened."}]
    # To some protocols the result of what was interrupted and the new prompt are one message, which begins no new scene.
    model.replace(parse({"scenes": [{"when": GO_ON, "turns": listen}, {"when": WAIT, "turns": [begin, *listen]}]}))
    id = await ann.create(WAIT, agent=name, model=MODEL, limits={"seconds": 1500})
    await _until_it_waits(ann, id)
    await ann.post(f"/tasks/{id}/messages", text=GO_ON, mode="interrupt")
    task = await ann.rests(id, seconds=SECONDS)
    assert task["state"] == "review", "\n".join(await ann.story(id))
    assert task["changes"]["files"] == 1 and model.problems == []
    assert [entry["text"] for entry in await ann.entries(id, "result")][-1] == "I listened."
    assert any(WAIT in str(asked.messages) and GO_ON in str(asked.messages) for asked in model.asked)


async def _until_it_waits(ann: Tasks, id: str) -> None:
    deadline = time.monotonic() + SECONDS
    sandbox = (await ann.until(id, "working", seconds=SECONDS))["sandbox_id"]
    look = {"sandbox_id": sandbox, "command": "test -e /home/user/begun"}
    while (await ann.http.post("/sandboxes/run-command", json=look)).json().get("exit_code") != 0:
        assert time.monotonic() < deadline, "\n".join(await ann.story(id))
        await asyncio.sleep(0.5)
        look["sandbox_id"] = (await ann.show(id))["sandbox_id"] or ""


async def _until_told(ann: Tasks, id: str, turns: int) -> None:
    """Until the agent has come to the end of so many turns."""
    deadline = time.monotonic() + SECONDS
    while len(await ann.entries(id, "result")) < turns:
        assert time.monotonic() < deadline, "\n".join(await ann.story(id))
        await asyncio.sleep(0.5)
