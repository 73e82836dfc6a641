"""The provider of containers of a Docker daemon, spoken to over its Engine API. Inside, they are sandboxes like all others."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiodocker import Docker
from aiodocker.exceptions import DockerError

from sandlot.platform.core.errors import (
    InvalidRequest,
    ProviderFull,
    SandboxGone,
    Unavailable,
)
from sandlot.platform.core.model import ProviderSandbox, SandboxNetwork, SandboxSpec
from sandlot.platform.core.ports import Box
from sandlot.platform.providers.docker_box import ContainerDoor, DockerBox
from sandlot.platform.providers.docker_errors import GONE, TAKEN, docker_errors
from sandlot.platform.providers.docker_guest import INIT, LEASE, MOUNT, GuestRuntime, ensure_volume, put_state
from sandlot.platform.providers.docker_images import DockerSettings, choose_image, find_image
from sandlot.platform.providers.docker_ports import ContainerPorts

PLATFORM, SESSION, METADATA = "sandlot.platform", "sandlot.session", "sandlot.metadata"
NETWORK = "sandlot-open"
READY_S = 30.0
REQUEST_S = 60.0
BOX_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose containers these are. Tokens of daemons inside are made from the secret, so that none has to be stored."""

    platform: str
    secret: str = field(repr=False)

    def token(self, container: str) -> str:
        return hmac.new(self.secret.encode(), container.encode(), hashlib.sha256).hexdigest()


class DockerProvider:
    """`guest` is called when it is first needed: making the guest runtime takes seconds."""

    def __init__(
        self, name: str, settings: DockerSettings, *, owner: Owner, guest: Callable[[], Awaitable[GuestRuntime]]
    ) -> None:
        self.name, self.template, self.timeout_s = name, settings.image, settings.timeout_s
        self._settings, self._owner, self._find_guest = settings, owner, guest
        self._client: Docker | None = None
        self._guest: GuestRuntime | None = None
        self._preparing = asyncio.Lock()
        self._ports = ContainerPorts(self._docker, self._dial)
        self._boxes: dict[str, tuple[float, DockerBox]] = {}

    async def create(self, spec: SandboxSpec) -> str:
        image, network = choose_image(self.name, self._settings, spec.template), _network(spec.network)
        name = f"sandlot-{spec.session}".lower().replace("_", "-")
        with docker_errors(self.name, "start a container"):
            known = await self._show(name)
            if known is None:
                await self._check_room()
                details = await self._prepare(image, network)
                known = await self._make(name, spec, image, network, details)
            self._require_ours(known)
            await self._run(name, known, spec.timeout_s)
        return name

    async def connect(self, sandbox_id: str, timeout_s: int) -> Box:
        kept = self._boxes.get(sandbox_id)
        if kept is not None and time.monotonic() - kept[0] < BOX_S:
            return kept[1]
        with docker_errors(self.name, "reach a container"):
            await self._prepare_guest()
            await self._run(sandbox_id, await self._known(sandbox_id), timeout_s)
        return self._boxes[sandbox_id][1]

    async def pause(self, sandbox_id: str) -> None:
        """Its memory stays where it is; it uses no CPU."""
        self._boxes.pop(sandbox_id, None)
        with docker_errors(self.name, "pause a container"):
            if _is_running(await self._known(sandbox_id)):
                self._ports.close(sandbox_id)
                await self._container(sandbox_id).pause()

    async def kill(self, sandbox_id: str) -> None:
        self._boxes.pop(sandbox_id, None)
        self._ports.close(sandbox_id)
        with docker_errors(self.name, "end a container"):
            try:
                await self._known(sandbox_id)
                await self._container(sandbox_id).delete(force=True, v=True)
            except SandboxGone:
                return
            except DockerError as error:
                if error.status not in (GONE, TAKEN):  # gone, or just being removed
                    raise

    async def set_timeout(self, sandbox_id: str, timeout_s: int) -> None:
        with docker_errors(self.name, "change the timeout of a container"):
            await self._known(sandbox_id)
            await self._lease(sandbox_id, timeout_s)

    async def find(self, sandbox_id: str) -> ProviderSandbox | None:
        with docker_errors(self.name, "look at a container"):
            try:
                known = await self._known(sandbox_id)
            except SandboxGone:
                return None
        if not _is_running(known):  # its lease may have ended, or somebody else stopped it
            self._boxes.pop(sandbox_id, None)
        return ProviderSandbox(
            id=sandbox_id, session=known["Config"]["Labels"][SESSION], is_paused=not _is_running(known)
        )

    async def inventory(self) -> Sequence[ProviderSandbox]:
        with docker_errors(self.name, "list containers"):
            return [
                ProviderSandbox(
                    id=one["Names"][0].lstrip("/"), session=one["Labels"][SESSION], is_paused=one["State"] != "running"
                )
                for one in await self._ours()
            ]

    async def close(self) -> None:
        """Containers go on; what leads into them ends."""
        self._ports.close()
        if self._client is not None:
            await self._client.close()

    # -- making one -------------------------------------------------------------------------------------------------

    async def _check_room(self) -> None:
        running = sum(1 for one in await self._ours() if one["State"] == "running")
        if running >= self._settings.most:
            raise ProviderFull(f"provider {self.name!r} has no room just now: {running} containers run")

    async def _prepare(self, image: str, network: str) -> dict[str, Any]:
        """What a container needs: the image, whose description is returned, the network and the guest runtime."""
        details = await find_image(self._docker(), self.name, image, pull=self._settings.pull)
        guest = await self._prepare_guest()
        async with self._preparing:
            await ensure_volume(self._docker(), guest, image)
            if network == NETWORK and not await self._docker().networks.list(filters={"name": [NETWORK]}):
                await self._docker().networks.create(
                    {
                        "Name": NETWORK,
                        "CheckDuplicate": True,
                        "Options": {
                            "com.docker.network.bridge.enable_icc": "false"
                        },  # containers do not see each other
                    }
                )
        return details

    async def _prepare_guest(self) -> GuestRuntime:
        if self._guest is None:
            self._guest = await self._find_guest()
        return self._guest

    async def _make(
        self, name: str, spec: SandboxSpec, image: str, network: str, details: dict[str, Any]
    ) -> dict[str, Any]:
        guest, own = await self._prepare_guest(), details.get("Config") or {}
        config: dict[str, Any] = {
            "Image": image,
            "Entrypoint": guest.first_process()[:1],
            "Cmd": guest.first_process()[1:],
            "User": "0:0",
            "Env": ["LC_ALL=C", "TZ=UTC0"],
            "Hostname": name[-12:],
            "Labels": {
                PLATFORM: self._owner.platform,
                SESSION: spec.session,
                METADATA: json.dumps(dict(spec.metadata)),
            },
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": self._host_config(guest, network),
        }
        init = {
            "sandboxId": name,
            "templateId": image,
            "accessToken": self._owner.token(name),
            "envVars": dict(spec.envs),
            "defaultUser": self._settings.user or own.get("User", "").partition(":")[0] or "root",
            "defaultWorkdir": own.get("WorkingDir") or "",
        }
        try:
            made = await self._docker().containers.create(config, name=name)
        except DockerError as error:
            if error.status != TAKEN:
                raise
        else:
            await put_state(made, {INIT: init, LEASE: _lease_end(spec.timeout_s)})
        return await self._known(name)

    def _host_config(self, guest: GuestRuntime, network: str) -> dict[str, Any]:
        settings = self._settings
        memory = settings.memory_mb << 20
        return {
            "Binds": [f"{guest.volume}:{MOUNT}:ro"],
            "NetworkMode": network,
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": int(settings.cpus * 1e9),
            "PidsLimit": settings.processes,
            "SecurityOpt": ["no-new-privileges"],
            "CapDrop": ["NET_RAW", "MKNOD", "AUDIT_WRITE", "SETFCAP"],
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            **({"Runtime": settings.runtime} if settings.runtime else {}),
        }

    # -- running it -------------------------------------------------------------------------------------------------

    async def _run(self, name: str, known: dict[str, Any], timeout_s: int) -> None:
        """From whatever state it is in to one in which its daemon answers."""
        container = self._container(name)
        await self._lease(name, timeout_s)
        if known["State"]["Status"] == "paused":
            await container.unpause()
        elif not _is_running(known):
            await container.start()
        await self._await_daemon(name)

    async def _await_daemon(self, name: str) -> None:
        guest = await self._prepare_guest()
        door = ContainerDoor(
            container=name, ports=self._ports, token=self._owner.token(name), envd_version=guest.envd_version
        )
        deadline, url = time.monotonic() + READY_S, door.sandbox().envd_api_url
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            while True:
                try:
                    async with session.get(f"{url}/health") as reply:
                        if reply.status == 204:
                            break
                except (aiohttp.ClientError, OSError):
                    if not _is_running(await self._known(name)) or time.monotonic() > deadline:
                        raise Unavailable(
                            f"container {name!r} of provider {self.name!r} does not answer; can the image run programs?"
                        ) from None
                await asyncio.sleep(0.05)
        box = DockerBox(self.name, door, forget=lambda: self._boxes.pop(name, None))
        self._boxes[name] = (time.monotonic(), box)

    async def _lease(self, name: str, timeout_s: int) -> None:
        await put_state(self._container(name), {LEASE: _lease_end(timeout_s)})

    # -- finding it -------------------------------------------------------------------------------------------------

    def _docker(self) -> Docker:
        if self._client is None:
            self._client = Docker(self._settings.url, timeout=aiohttp.ClientTimeout(total=REQUEST_S))
        return self._client

    def _dial(self, port: int) -> Sequence[str]:
        assert self._guest is not None  # nobody is told of a port before
        return self._guest.dial(port)

    def _container(self, name: str) -> Any:
        return self._docker().containers.container(name)

    async def _show(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(await self._container(name).show())
        except DockerError as error:
            if error.status == GONE:
                return None
            raise

    async def _known(self, name: str) -> dict[str, Any]:
        """Raises `SandboxGone` for what is not there, or is somebody else's."""
        known = await self._show(name) if name.startswith("sandlot-") else None
        if known is None or known["State"]["Status"] in ("removing", "dead"):
            raise SandboxGone(f"provider {self.name!r} has no such container")
        self._require_ours(known)
        return known

    def _require_ours(self, known: dict[str, Any]) -> None:
        if (known["Config"].get("Labels") or {}).get(PLATFORM) != self._owner.platform:
            raise SandboxGone(f"provider {self.name!r} has no such container")

    async def _ours(self) -> list[dict[str, Any]]:
        chosen = json.dumps({"label": [f"{PLATFORM}={self._owner.platform}"]})
        found = await self._docker().containers.list(all="true", filters=chosen)
        return [one._container for one in found if one._container["State"] not in ("removing", "dead")]


def _is_running(known: dict[str, Any]) -> bool:
    return known["State"]["Status"] in ("running", "restarting")


def _lease_end(timeout_s: int) -> str:
    return f"{time.time() + timeout_s:.0f}"


def _network(wanted: SandboxNetwork) -> str:
    if wanted.secrets:
        raise InvalidRequest(
            "Docker has no secrets that leave with requests: leave out `hosts`, or choose another backend"
        )
    if wanted.internet:
        return NETWORK
    if wanted.allow:
        raise InvalidRequest(
            "Docker cannot allow single hosts: give it the internet or nothing, or choose another backend"
        )
    return "none"
