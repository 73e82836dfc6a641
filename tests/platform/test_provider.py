"""What every provider does: the scripted one of the tests, the real one over E2B's protocol, and Docker's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tests.e2e.server import Server
from tests.platform.docker_world import of_docker
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import until

from sandlot.platform.core.errors import InvalidRequest, NotFound, ProviderRefused, SandboxGone, Unavailable
from sandlot.platform.core.model import (
    BoundSecret,
    FileChange,
    FileChangeKind,
    SandboxNetwork,
    SandboxSpec,
    TerminalSize,
)
from sandlot.platform.core.ports import Box, Channel, Provider
from sandlot.platform.providers.e2b import Address, E2BProvider


def real(server: Server, **changes: str) -> E2BProvider:
    url = f"http://127.0.0.1:{server.port}"
    values = {"api_url": url, "sandbox_url": url, "domain": f"localhost:{server.port}", "key": server.key, **changes}
    address = Address(**values)  # type: ignore[arg-type]

    async def known() -> Address:
        return address

    return E2BProvider("real", known, platform=f"plt-{secrets.token_hex(4)}")


@pytest.fixture(params=["scripted", "real", "docker"])
async def any_provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    async with AsyncExitStack() as stack:
        made: Provider
        if request.param == "scripted":
            made = ScriptedProvider()
        elif request.param == "real":
            made = real(request.getfixturevalue("engine"))
        else:
            made = await stack.enter_async_context(of_docker(request.getfixturevalue("docker_world")))
        yield made
        for found in await made.inventory():
            await made.kill(found.id)


def spec() -> SandboxSpec:
    name = f"sbx_{secrets.token_hex(8)}"
    return SandboxSpec(session=name, template=None, timeout_s=300, envs={"A": "b"}, metadata={"who": "ada"})


async def test_a_sandbox_is_made_once_found_paused_resumed_and_ended(any_provider: Provider) -> None:
    asked = spec()
    made = await any_provider.create(asked)
    assert await any_provider.create(asked) == made
    (found,) = await any_provider.inventory()
    assert (found.id, found.session, found.is_paused) == (made, asked.session, False)
    box = await any_provider.connect(made, 300)
    await box.files.write("/tmp/x", b"kept")
    await any_provider.set_timeout(made, 200)
    await any_provider.pause(made)
    await any_provider.pause(made)
    paused = await any_provider.find(made)
    assert paused is not None and paused.is_paused
    box = await any_provider.connect(made, 300)
    assert await content(box, "/tmp/x") == b"kept"
    await any_provider.kill(made)
    await any_provider.kill(made)
    assert await any_provider.find(made) is None and list(await any_provider.inventory()) == []
    for call in (any_provider.connect(made, 60), any_provider.pause(made), any_provider.set_timeout(made, 60)):
        with pytest.raises(SandboxGone):
            await call


async def content(box: Box, path: str) -> bytes:
    return b"".join([piece async for piece in box.files.read(path)])


async def test_commands_and_files_in_it(any_provider: Provider) -> None:
    box = await any_provider.connect(await any_provider.create(spec()), 300)
    said: list[tuple[Channel, str]] = []

    async def take(channel: Channel, text: str) -> None:
        said.append((channel, text))

    running = await box.commands.start("echo hello; exit 3", cwd=None, envs={}, user=None, on_output=take)
    assert await running.wait() == 3
    assert said == [("stdout", "hello\n")]
    endless = await box.commands.start("sleep 100", cwd=None, envs={}, user=None, on_output=take)
    waiting = asyncio.create_task(endless.wait())
    await endless.kill()
    assert await asyncio.wait_for(waiting, 20) != 0
    await endless.kill()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"a" * 1000
        yield b"b" * 1000

    await box.files.write("/tmp/deep/file", pieces())
    assert await box.files.size("/tmp/deep/file") == 2000
    assert await content(box, "/tmp/deep/file") == b"a" * 1000 + b"b" * 1000
    for path in ("/tmp/none",):
        with pytest.raises(NotFound):
            await box.files.size(path)
        with pytest.raises(NotFound):
            await content(box, path)
    assert "8080" in box.url(8080)


async def test_a_command_is_followed_by_who_attaches_to_it(any_provider: Provider) -> None:
    made = await any_provider.create(spec())
    box = await any_provider.connect(made, 300)
    first, second = Output(), Output()
    running = await box.commands.start(
        "echo one; sleep 2; echo two; exit 5", cwd=None, envs={}, user=None, on_output=first.take
    )
    await until(lambda: bool(first.pieces), what="its first words")
    assert (running.pid, "echo one; sleep 2; echo two; exit 5") in [
        (process.pid, process.command) for process in await box.commands.processes()
    ]
    await running.detach()
    again = await box.commands.attach(running.pid, second.take)
    assert again.pid == running.pid
    assert await asyncio.wait_for(again.wait(), 20) == 5
    assert second.pieces == [("stdout", "two\n")] and first.pieces == [("stdout", "one\n")]
    with pytest.raises(NotFound):
        await box.commands.attach(4_000_000, second.take)


async def test_a_terminal_takes_input_and_tells_its_exit_code(any_provider: Provider) -> None:
    box = await any_provider.connect(await any_provider.create(spec()), 300)
    seen = bytearray()

    async def take(data: bytes) -> None:
        seen.extend(data)

    terminal = await box.terminals.open(TerminalSize(100, 30), cwd=None, envs={}, user=None, on_data=take)
    await terminal.resize(TerminalSize(120, 40))
    await terminal.write(b"echo hello\n")
    await until(lambda: b"hello" in seen, what="its echo")
    await terminal.detach()
    again = await box.terminals.attach(terminal.pid, take)
    await again.write(b"exit 3\n")
    assert await asyncio.wait_for(again.wait(), 20) == 3
    other = await box.terminals.open(TerminalSize(), cwd=None, envs={}, user=None, on_data=take)
    waiting = asyncio.create_task(other.wait())
    await other.kill()
    assert await asyncio.wait_for(waiting, 20) != 0
    with pytest.raises(NotFound):
        await box.terminals.attach(4_000_000, take)


async def test_a_directory_is_watched_until_nobody_wants_to_know(any_provider: Provider) -> None:
    box = await any_provider.connect(await any_provider.create(spec()), 300)
    await box.files.write("/tmp/watched/here", b"1")
    seen: list[FileChange] = []

    async def take(change: FileChange) -> None:
        seen.append(change)

    watch = await box.files.watch("/tmp/watched", recursive=True, on_change=take)
    waiting = asyncio.create_task(watch.wait())
    await box.files.write("/tmp/watched/new", b"2")
    await until(lambda: FileChange("new", FileChangeKind.CREATED) in seen, what="the news")
    await watch.stop()
    await asyncio.wait_for(waiting, 20)
    with pytest.raises(NotFound):
        await box.files.watch("/tmp/nothing", recursive=False, on_change=take)


class Output:
    def __init__(self) -> None:
        self.pieces: list[tuple[Channel, str]] = []

    async def take(self, channel: Channel, text: str) -> None:
        self.pieces.append((channel, text))


async def test_who_does_not_answer_and_who_refuses_are_told_apart(engine: Server) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        await real(engine, api_url="http://127.0.0.1:9").create(spec())
    with pytest.raises(ProviderRefused, match="refuses this platform's key") as refused:
        await real(engine, key="e2b_0000").create(spec())
    assert "e2b_0000" not in str(refused.value)
    assert "e2b_0000" not in repr(Address(api_url="x", domain="y", key="e2b_0000"))


async def test_a_platform_sees_its_own_sandboxes_only(engine: Server) -> None:
    one, other = real(engine), real(engine)
    made = await one.create(spec())
    try:
        assert [found.id for found in await one.inventory()] == [made]
        assert list(await other.inventory()) == []
    finally:
        await one.kill(made)


async def test_bound_secrets_are_kept_with_the_provider_and_leave_by_rule(engine: Server) -> None:
    provider = real(engine)
    provider._secrets = {"TOKEN": "canary-3c9e"}
    bound = (BoundSecret(name="TOKEN", hosts=("api.example.com", "*.example.org")),)
    made = await provider.create(replace(spec(), network=SandboxNetwork(secrets=bound)))
    try:
        with engine.http() as client:
            shown = client.get(f"/sandboxes/{made}").json()["network"]["rules"]
            assert set(shown) == {"api.example.com", "*.example.org"}
            wanted = {"SECRET_PLACEHOLDER_TOKEN": "${e2b.secrets.platform-TOKEN}"}
            assert all(rule[0]["transform"]["headers"] == wanted for rule in shown.values())
            assert client.get("/secrets/platform-token").json()["currentVersion"] == 1
            with pytest.raises(InvalidRequest, match="configuration"):
                await provider.create(replace(spec(), network=SandboxNetwork(secrets=(replace(bound[0], name="X"),))))
    finally:
        await provider.kill(made)
