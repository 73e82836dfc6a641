"""The guest runtime as a Docker volume: filled once for each version of it, and mounted read-only into every container."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiodocker.exceptions import DockerError

MOUNT = "/.sandlot"
STATE = "/.sandlot-box"  # in a container: its lease, and what its daemon is told when it starts
LEASE, INIT = f"{STATE}/lease", f"{STATE}/init.json"
FULL = "sandlot.full"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRuntime:
    """A directory with a Python of its own and envd, to be mounted at `MOUNT`. Its name is a digest of its content."""

    directory: Path
    python: tuple[str, ...]  # the command that starts its Python inside
    envd: tuple[str, ...]  # the command that starts envd inside
    envd_version: str

    @property
    def volume(self) -> str:
        return f"sandlot-guest-{self.directory.name}"

    def first_process(self) -> list[str]:
        """Runs envd for as long as the lease says."""
        program = "from envd.leased import run; run()"
        return [*self.python, "-c", program, LEASE, *self.envd, "--init", INIT]

    def dial(self, port: int) -> list[str]:
        """Connects its input and output with a port inside."""
        return [*self.python, "-c", "from envd.dial import run; run()", str(port)]


async def ensure_volume(docker: Any, guest: GuestRuntime, image: str) -> None:
    """Fill the volume unless it is full. A volume that was left half filled has no second one beside it that says it is full."""
    mark = f"{guest.volume}-full"
    if await _exists(docker, mark):
        return
    await docker.volumes.create({"Name": guest.volume, "Labels": {"sandlot.guest": guest.directory.name}})
    filler = await docker.containers.create(
        {
            "Image": image,
            "Cmd": ["/nothing"],
            "HostConfig": {"Binds": [f"{guest.volume}:{MOUNT}"], "NetworkMode": "none"},
            "Labels": {"sandlot.filler": guest.directory.name},
        }
    )
    try:
        await filler.put_archive(MOUNT, await asyncio.to_thread(_packed, guest.directory))
    finally:
        await filler.delete(force=True)
    await docker.volumes.create({"Name": mark, "Labels": {FULL: guest.directory.name}})


async def put_state(container: Any, files: Mapping[str, str | Mapping[str, Any]]) -> None:
    """Write files of ours into a container, running or not: for root alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        folder = tarfile.TarInfo(STATE.strip("/"))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        archive.addfile(folder)
        for path, content in files.items():
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            entry = tarfile.TarInfo(path.strip("/"))
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    await container.put_archive("/", packed.getvalue())


async def _exists(docker: Any, volume: str) -> bool:
    try:
        await docker.volumes.get(volume)
    except DockerError as error:
        if error.status == 404:
            return False
        raise
    return True


def _packed(directory: Path) -> io.BytesIO:
    """As root's, whoever runs this server."""

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(directory, arcname=".", filter=owned)
    packed.seek(0)
    return packed
