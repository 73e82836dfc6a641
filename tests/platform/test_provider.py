"""What every provider does: the scripted one of the tests, and the real one over E2B's protocol."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider

from sandlot.platform.core.errors import NotFound, ProviderRefused, SandboxGone, Unavailable
from sandlot.platform.core.model import SandboxSpec
from sandlot.platform.core.ports import Box, Channel, Provider
from sandlot.platform.providers.e2b import Address, E2BProvider


def real(server: Server, **changes: str) -> E2BProvider:
    url = f"http://127.0.0.1:{server.port}"
    values = {"api_url": url, "sandbox_url": url, "domain": f"localhost:{server.port}", "key": server.key, **changes}
    address = Address(**values)  # type: ignore[arg-type]

    async def known() -> Address:
        return address

    return E2BProvider("real", known, platform=f"plt-{secrets.token_hex(4)}")


@pytest.fixture(params=["scripted", "real"])
async def any_provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    made: Provider = ScriptedProvider() if request.param == "scripted" else real(request.getfixturevalue("engine"))
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
    await box.write("/tmp/x", b"kept")
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
    return b"".join([piece async for piece in box.read(path)])


async def test_commands_and_files_in_it(any_provider: Provider) -> None:
    box = await any_provider.connect(await any_provider.create(spec()), 300)
    said: list[tuple[Channel, str]] = []

    async def take(channel: Channel, text: str) -> None:
        said.append((channel, text))

    running = await box.start("echo hello; exit 3", cwd=None, envs={}, user=None, on_output=take)
    assert await running.wait() == 3
    assert said == [("stdout", "hello\n")]
    endless = await box.start("sleep 100", cwd=None, envs={}, user=None, on_output=take)
    waiting = asyncio.create_task(endless.wait())
    await endless.kill()
    assert await asyncio.wait_for(waiting, 20) != 0
    await endless.kill()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"a" * 1000
        yield b"b" * 1000

    await box.write("/tmp/deep/file", pieces())
    assert await box.size("/tmp/deep/file") == 2000
    assert await content(box, "/tmp/deep/file") == b"a" * 1000 + b"b" * 1000
    for path in ("/tmp/none",):
        with pytest.raises(NotFound):
            await box.size(path)
        with pytest.raises(NotFound):
            await content(box, path)
    assert "8080" in box.url(8080)


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
