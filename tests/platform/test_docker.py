"""What is Docker's own: containers that outlive the platform, leases, images, networks, limits, and whose they are."""

from __future__ import annotations

import asyncio
import secrets

import httpx
import pytest
from tests.platform.docker_world import DockerWorld, of_docker
from tests.platform.test_provider import Output, content, spec
from tests.platform.world import until

from sandlot.platform.core.errors import InvalidRequest, ProviderFull, ProviderRefused, SandboxGone, Unavailable
from sandlot.platform.core.model import SandboxNetwork, SandboxSpec
from sandlot.platform.core.ports import Snapshotting


def asked(**changes: object) -> SandboxSpec:
    from dataclasses import replace

    return replace(spec(), **changes)  # type: ignore[arg-type]


async def test_a_command_is_found_again_by_a_platform_that_was_restarted(docker_world: DockerWorld) -> None:
    platform, output = f"plt-{secrets.token_hex(4)}", Output()
    async with of_docker(docker_world, platform=platform) as provider:
        made = await provider.create(spec())
        box = await provider.connect(made, 300)
        running = await box.commands.start(
            "sleep 4; echo $A; exit 7", cwd=None, envs={}, user=None, on_output=output.take
        )
    async with of_docker(docker_world, platform=platform) as provider:
        box = await provider.connect(made, 300)
        again = await box.commands.attach(running.pid, output.take)
        assert await asyncio.wait_for(again.wait(), 30) == 7
        assert output.pieces == [("stdout", "b\n")]
        await provider.kill(made)


async def test_a_pause_keeps_what_runs_and_the_end_of_a_lease_keeps_the_files(docker_world: DockerWorld) -> None:
    async with of_docker(docker_world) as provider:
        made = await provider.create(spec())
        box = await provider.connect(made, 300)
        running = await box.commands.start("sleep 1000", cwd=None, envs={}, user=None, on_output=Output().take)
        await running.detach()
        await provider.pause(made)
        box = await provider.connect(made, 300)
        assert running.pid in [process.pid for process in await box.commands.processes()]
        await box.files.write("/home/user/kept", b"1")
        await provider.set_timeout(made, 0)

        async def is_over() -> bool:
            found = await provider.find(made)
            return found is not None and found.is_paused

        await until(is_over, what="the end of the lease")
        box = await provider.connect(made, 300)
        assert await content(box, "/home/user/kept") == b"1" and list(await box.commands.processes()) == []
        said = Output()
        asking = await box.commands.start("echo $A; id -un", cwd=None, envs={}, user=None, on_output=said.take)
        assert await asking.wait() == 0 and "".join(text for _, text in said.pieces) == "b\nuser\n"
        await provider.kill(made)


async def test_ports_are_reached_without_a_network_and_nothing_gets_out(docker_world: DockerWorld) -> None:
    async with of_docker(docker_world) as provider:
        made = await provider.create(asked(network=SandboxNetwork(internet=False)))
        box = await provider.connect(made, 300)
        await box.files.write("/home/user/index.html", b"from inside")
        server = await box.commands.start(
            "python3 -m http.server 8000 --bind 127.0.0.1",
            cwd="/home/user",
            envs={},
            user=None,
            on_output=Output().take,
        )
        async with httpx.AsyncClient(trust_env=False) as client:

            async def answers() -> bool:
                try:
                    return (await client.get(box.address(8000).url)).text == "from inside"
                except httpx.HTTPError:
                    return False

            await until(answers, what="the answer of the server inside")
            with pytest.raises(httpx.HTTPError):
                await client.get(box.address(8001).url)
        said = Output()
        look = await box.commands.start("ls /sys/class/net", cwd=None, envs={}, user=None, on_output=said.take)
        assert await look.wait() == 0 and "".join(text for _, text in said.pieces).split() == ["lo"]
        await server.detach()
        await provider.kill(made)
        with pytest.raises(InvalidRequest, match="Docker cannot allow single hosts"):
            await provider.create(asked(network=SandboxNetwork(internet=False, allow=("example.org",))))


async def test_images_and_numbers_are_limited(docker_world: DockerWorld) -> None:
    async with of_docker(docker_world, most=1, images=("sandlot/*",)) as provider:
        with pytest.raises(InvalidRequest, match="does not start the image 'alpine'"):
            await provider.create(asked(template="alpine"))
        with pytest.raises(ProviderRefused, match="does not have the image"):
            await provider.create(asked(template="sandlot/other"))
        made = await provider.create(spec())
        with pytest.raises(ProviderFull, match="no room"):
            await provider.create(spec())
        facts = docker_world.daemon.run(
            "inspect", "--format", "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}", made
        )
        assert facts.split() == [str(512 << 20), "2000000000", "1024"]
        assert not isinstance(provider, Snapshotting)
        await provider.kill(made)


async def test_containers_of_others_are_not_found(docker_world: DockerWorld) -> None:
    async with of_docker(docker_world) as provider, of_docker(docker_world) as other:
        made = await provider.create(spec())
        assert await other.find(made) is None and list(await other.inventory()) == []
        with pytest.raises(SandboxGone):
            await other.connect(made, 60)
        await other.kill(made)
        assert await provider.find(made) is not None
        await provider.kill(made)


async def test_a_daemon_that_does_not_answer_is_unavailable(docker_world: DockerWorld) -> None:
    async with of_docker(docker_world, url="unix:///nowhere/docker.sock") as provider:
        with pytest.raises(Unavailable, match="does not answer"):
            await provider.create(spec())
        with pytest.raises(Unavailable, match="does not answer"):
            await provider.inventory()
