"""Backends by type of agent: what the configuration may say, what requests may ask for, and what stands in for what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.platform.docker_world import IMAGE, DockerWorld
from tests.platform.fakes import ScriptedProvider
from tests.platform.test_provider import real
from tests.platform.world import Served, load_text

from sandlot.client import ClientError
from sandlot.platform.core.backends import OFFERS, BackendKind, Capability
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.providers.e2b import Address

TWO = """
[providers.engine]
kind = "local"
[providers.containers]
kind = "docker"
template = "python:3.12"
[backends.sandbox]
fallback = ["docker"]
[backends.cheap]
kind = "docker"
capabilities = ["commands", "files"]
[agents.coder]
backend = "sandbox"
capabilities = ["commands"]
[agents.brancher]
backend = "sandbox"
capabilities = ["snapshots"]
[agents.seer]
backend = "desktop"
"""


def test_every_kind_is_there_without_being_named() -> None:
    known = load_text(TWO, has_engine=True).backends
    assert sorted(known) == ["browser", "cheap", "desktop", "docker", "sandbox"]
    assert (known["desktop"].provider, known["desktop"].template) == ("engine", "desktop")
    assert (known["docker"].provider, known["docker"].template) == ("containers", None)
    assert known["cheap"].capabilities == {Capability.COMMANDS, Capability.FILES}
    assert Capability.SNAPSHOTS not in OFFERS[BackendKind.DOCKER]
    assert sorted(load_text("", has_engine=True).backends) == ["browser", "desktop", "sandbox"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[backends.x]\nprovider = 'engine'", ["backends.x", "kind", "sandbox, desktop, browser, docker"]),
        ("[backends.x]\nkind = 'shoe'", ["backends.x.kind"]),
        ("[backends.x]\nkind = 'docker'\nprovider = 'engine'", ["backends.x", "'engine'", "not docker"]),
        ("[backends.x]\nkind = 'desktop'\nprovider = 'containers'", ["backends.x", "of kind docker", "not desktop"]),
        ("[backends.x]\nkind = 'sandbox'\nprovider = 'nope'", ["backends.x.provider", "'nope'", "containers, engine"]),
        ("[backends.x]\nkind = 'docker'\ncapabilities = ['snapshots']", ["backends.x.capabilities", "no snapshots"]),
        ("[backends.x]\nkind = 'docker'\ncapabilities = ['flying']", ["backends.x.capabilities"]),
        ("[backends.x]\nkind = 'docker'\nfallback = ['x']", ["backends.x.fallback", "'x'"]),
        ("[backends.x]\nkind = 'docker'\nfalback = ['y']", ["backends.x.falback", "fallback"]),
        ("[agents.a]\nbackend = 'nope'", ["agents.a.backend", "'nope'", "docker"]),
        ("[agents.a]\nbackend = 'docker'\ncapabilities = ['browser']", ["agents.a", "'docker'", "no browser"]),
        ("[agents.a]\nbackend = 'docker'\nprovider = 'engine'", ["agents.a", "not both"]),
        ("[agents.a]\ncapabilities = ['browser']", ["agents.a.capabilities", "backend"]),
    ],
)
def test_what_is_wrong_with_a_backend_is_said(text: str, words: list[str]) -> None:
    providers = "[providers.engine]\nkind = 'local'\n[providers.containers]\nkind = 'docker'\n"
    with pytest.raises(ConfigurationError) as raised:
        load_text(providers + text, has_engine=True)
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Served, ScriptedProvider, ScriptedProvider]]:
    engine, containers = ScriptedProvider("engine"), ScriptedProvider("containers")
    containers.template = "python:3.12"
    providers = {"engine": engine, "containers": containers}
    async with Served(tmp_path, load_text(TWO, has_engine=True), providers) as served:
        yield served, engine, containers


Two = tuple[Served, ScriptedProvider, ScriptedProvider]


async def test_a_backend_is_chosen_by_agent_type_or_by_name(two: Two) -> None:
    ada = await two[0].user("ada")
    coder = await ada.create(agent_type="coder")
    assert (coder.info.provider, coder.info.backend, coder.info.template_id) == ("engine", "sandbox", None)
    seer = await ada.create(agent_type="seer", capabilities=["desktop"])
    assert (seer.info.provider, seer.info.backend, seer.info.template_id) == ("engine", "desktop", "desktop")
    cheap = await ada.create(backend="cheap")
    assert (cheap.info.provider, cheap.info.backend, cheap.info.template_id) == ("containers", "cheap", "python:3.12")
    plain = await ada.create()
    assert (plain.info.provider, plain.info.backend) == ("engine", None)
    async with two[0].http() as http:
        listed = {one["name"]: one for one in (await http.get("/platform/backends")).json()["backends"]}
    assert listed["sandbox"]["fallback"] == ["docker"] and listed["cheap"]["capabilities"] == ["commands", "files"]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (
            {"backend": "docker", "capabilities": ["snapshots"]},
            "backend 'docker' has no snapshots; choose one that has all",
        ),
        ({"backend": "cheap", "capabilities": ["ports", "files"]}, "backend 'cheap' has no ports"),
        ({"agent_type": "coder", "capabilities": ["desktop"]}, "backend 'sandbox' has no desktop; .*: desktop"),
        ({"backend": "desktop", "capabilities": ["flying"]}, "capabilities"),
        ({"capabilities": ["browser"]}, "has no browser"),
        ({"backend": "nope"}, "backend 'nope' is not in the configuration"),
        ({"backend": "docker", "provider": "engine"}, "not both"),
    ],
)
async def test_what_a_backend_cannot_do_is_refused(two: Two, wish: dict[str, object], words: str) -> None:
    with pytest.raises(ClientError, match=words):
        await (await two[0].user("ada")).create(**wish)  # type: ignore[arg-type]
    assert two[1].started == [] and two[2].started == []


async def test_another_backend_stands_in_for_one_that_is_full(two: Two) -> None:
    served, engine, containers = two
    ada = await served.user("ada")
    engine.is_full = True
    made = await ada.create(agent_type="coder")
    assert (made.info.status, made.info.provider, made.info.backend) == ("running", "containers", "docker")
    assert made.info.template_id == "python:3.12" and len(containers.made) == 1 and not engine.made
    stuck = await ada.create(agent_type="brancher", wait=1)  # what stands in cannot do what it needs
    assert (stuck.info.status, stuck.info.provider) == ("queued", "engine")
    containers.is_full, engine.is_full = True, False
    back = await ada.create(agent_type="coder", session_id="back")
    assert (back.info.status, back.info.provider) == ("running", "engine")


async def test_another_backend_stands_in_for_one_that_is_down(two: Two) -> None:
    served, engine, _ = two
    ada = await served.user("ada")
    engine.is_down = True
    for number in range(2):  # the first finds out, the second knows
        made = await ada.create(agent_type="coder", session_id=str(number))
        assert (made.info.status, made.info.provider) == ("running", "containers")
    with pytest.raises(ClientError):
        await ada.create(agent_type="brancher")
    engine.is_down = False


@pytest.mark.timeout(300)  # it may be the one that starts the daemon and the engine
async def test_one_workspace_uses_an_engine_another_server_and_docker_by_agent_type(
    tmp_path: Path, engine: Server, docker_world: DockerWorld
) -> None:
    url = f"http://127.0.0.1:{engine.port}"
    text = f"""
    [providers.own]
    kind = "local"
    [providers.elsewhere]
    kind = "url"
    api_url = "{url}"
    sandbox_url = "{url}"
    domain = "localhost:{engine.port}"
    key_env = "KEY"
    [providers.containers]
    kind = "docker"
    address = "unix://{docker_world.daemon.socket}"
    template = "{IMAGE}"
    pull = false
    user = "user"
    [backends.far]
    kind = "sandbox"
    provider = "elsewhere"
    [agents.near]
    backend = "sandbox"
    [agents.far]
    backend = "far"
    [agents.contained]
    backend = "docker"
    """

    async def own() -> Address:
        return await real(engine)._address()

    async with Served(tmp_path, load_text(text, {"KEY": engine.key}, has_engine=True), engine=own) as served:
        ada = await served.user("ada")
        places = {}
        for agent in ("near", "far", "contained"):
            sandbox = await ada.create(agent_type=agent, session_id=agent, wait=60)
            await sandbox.write_file("/home/user/name", agent)
            said = await sandbox.run("cat /home/user/name; id -un")
            assert said.stdout.split() == [f"{agent}user"], said
            places[agent] = sandbox.info.provider
        assert places == {"near": "own", "far": "elsewhere", "contained": "containers"}
        await served.restart()
        for agent in places:
            again = await ada.create(session_id=agent)
            assert (await again.run("cat /home/user/name")).stdout == agent
            await again.delete()
