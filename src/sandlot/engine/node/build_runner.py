"""Runs the steps of builds on this host: commands in short-lived machines, changes of files by the layer editor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sandlot.engine.core.errors import MachineFailed, NotFound, StepFailed, Unavailable
from sandlot.engine.core.model import LayerResult, NetworkPolicy, NewMachine, PauseMode, StepRun, Template
from sandlot.engine.core.ports import Output
from sandlot.engine.node import confined, processes, trees
from sandlot.engine.node.boot import captures_memory
from sandlot.engine.node.envd import start_command
from sandlot.engine.node.envd.commands import CommandClient, EnvdAddress
from sandlot.engine.node.images import layer_editor
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.step_cache import StepCache
from sandlot.engine.node.machines import MachineFactory

T = TypeVar("T")
EDIT_TIMEOUT_S = 3600
COPY_TIMEOUT_S = 3600
FULL = 0.9  # of a disk: the rest is what the file system itself takes, or keeps
BUILD_FILES = "/run/sandlot-build"  # what only the build sees; it never gets into a layer
SYSTEM_CAS = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))


class LocalBuildRunner:
    def __init__(self, *, machines: MachineFactory, layers: Layers, commands: CommandClient, steps_dir: Path) -> None:
        self._machines, self._layers, self._commands = machines, layers, commands
        self._step_cache = StepCache(steps_dir, layers)

    def cached_step(self, key: str) -> LayerResult | None:
        return self._step_cache.get(key)

    def cache_step(self, key: str, result: LayerResult) -> None:
        self._step_cache.put(key, result)

    async def edit_files(
        self, layers: Sequence[str], acts: Sequence[Mapping[str, object]], disk_mb: int
    ) -> LayerResult:
        name = _new_layer()
        home: str | None = None

        async def fill(upper: Path) -> None:
            nonlocal home
            home = await self._edit_files(layers, acts, disk_mb, upper)

        await self._layers.publish(name, fill)
        return LayerResult(layer=await self._unless_empty(name), home=home)

    async def _edit_files(
        self, layers: Sequence[str], acts: Sequence[Mapping[str, object]], disk_mb: int, upper: Path
    ) -> str | None:
        scratch = self._layers.directory / f".editing-{secrets.token_hex(4)}"
        work, root = scratch / "work", scratch / "root"
        for directory in (scratch, work, root):
            directory.mkdir(mode=0o700)
        files: list[int] = []
        try:
            given = []
            for act in acts:
                if "archive" in act:
                    files.append(os.open(str(act["archive"]), os.O_RDONLY | os.O_CLOEXEC))
                    act = {**act, "fd": files[-1], "limit": disk_mb << 20}
                given.append(act)
            job = {
                "directory": str(self._layers.directory),
                "layers": list(layers),
                "upper": str(upper),
                "work": str(work),
                "root": str(root),
                "acts": given,
            }
            # By path: as a module of the package it would need the package, and with it half a second.
            done = await confined.run(
                *(sys.executable, "-I", "-S", layer_editor.__file__),
                allowance=confined.Allowance(file_bytes=disk_mb << 20, timeout_s=EDIT_TIMEOUT_S),
                input=json.dumps(job).encode(),
                pass_fds=files,
            )
        except confined.OverLimit as error:
            raise StepFailed(f"0:the uploaded files cannot be used: {error}") from error
        except processes.CommandFailed as error:
            raise MachineFailed(f"files of a build could not be put in place: {error.output.strip()[-300:]}") from error
        finally:
            for fd in files:
                os.close(fd)
            with contextlib.suppress(OSError):  # swept later
                trees.remove(scratch)
        answer = json.loads(done.stdout)
        if "refused" in answer:
            raise StepFailed(f"{answer['number']}:{answer['refused']}")
        home = answer.get("home")
        return str(home) if home else None

    async def join(self, layers: Sequence[str]) -> LayerResult:
        name = _new_layer()

        async def fill(target: Path) -> None:
            with tempfile.TemporaryDirectory(prefix=".joining-", dir=self._layers.directory) as root:
                job = {
                    "directory": str(self._layers.directory),
                    "layers": list(layers),
                    "root": root,
                    "target": str(target),
                }
                await processes.run(
                    *(sys.executable, "-I", "-S", layer_editor.__file__),
                    input=json.dumps(job).encode(),
                    timeout_s=COPY_TIMEOUT_S,
                    env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                )

        try:
            await self._layers.publish(name, fill)
        except processes.CommandFailed as error:
            raise Unavailable(f"layers could not be joined into one: {error.output.strip()[-200:]}") from error
        return LayerResult(layer=name)

    async def run(self, machine_id: str, step: StepRun, output: Output) -> LayerResult:
        machine = await self._start(machine_id, step.runtime, _stub(machine_id, step), step.network, writes_layer=True)
        try:
            env = {**await self._trust(machine), **step.env}
            line = start_command.command(step.user, step.workdir, env, step.command)
            run = self._commands.run(machine, line, output, timeout_s=step.timeout_s)
            status = await self._while_it_lives(machine_id, run)
            if status != 0:
                raise StepFailed(f"exit status {status}{await self._limits_met(machine_id)}")
            return await self._keep(machine_id)
        finally:
            await processes.to_the_end(self._machines.stop(machine_id))

    async def _while_it_lives(self, machine_id: str, work: Coroutine[Any, Any, T]) -> T:
        """Do something with a machine. Raises `StepFailed` at once if it ends meanwhile: nobody would answer any more."""
        watcher = self._machines.table.known(machine_id).watcher
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, watcher} if watcher else {task}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StepFailed(f"the machine that it ran in ended{await self._limits_met(machine_id)}")
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _limits_met(self, machine_id: str) -> str:
        """What a failed step ran into, as seen from outside: programs often cannot tell."""
        met: list[str] = []
        with contextlib.suppress(NotFound):
            met += await self._machines.limits_hit(machine_id)
            usage = await self._machines.usage(machine_id)
            if usage.disk_used > FULL * usage.disk_total:
                met.append(f"the disk of the build, {usage.disk_total >> 20} MiB, is full (SANDLOT_BUILD_DISK_MB)")
        return "".join(f"; {each}" for each in met)

    async def _trust(self, machine: EnvdAddress) -> dict[str, str]:
        """Have the build trust the authorities that this host trusts, for as long as it runs: many networks have their own."""
        bundle = next((path for path in SYSTEM_CAS if path.is_file()), None)
        if bundle is None:
            return {}
        path = f"{BUILD_FILES}/ca.pem"
        await self._commands.upload(machine, path, bundle)
        names = (
            "SSL_CERT_FILE",
            "CURL_CA_BUNDLE",
            "REQUESTS_CA_BUNDLE",
            "PIP_CERT",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
        )
        return dict.fromkeys(names, path)

    async def _keep(self, machine_id: str) -> LayerResult:
        """Turn what the machine wrote into a layer."""
        name = _new_layer()

        async def fill(target: Path) -> None:
            async def take(upper: Path) -> None:
                await processes.run("cp", "-a", "--reflink=auto", f"{upper}/.", str(target), timeout_s=COPY_TIMEOUT_S)

            await self._machines.export_files(machine_id, take)
            await asyncio.to_thread(trees.remove_below, target, BUILD_FILES)

        try:
            await self._layers.publish(name, fill)
        except processes.CommandFailed as error:
            raise Unavailable(f"what the step wrote could not be kept: {error.output.strip()[-200:]}") from error
        return LayerResult(layer=await self._unless_empty(name))

    async def _unless_empty(self, name: str) -> str | None:
        if not trees.is_empty(self._layers.path(name), but_for="run"):
            return name
        await self._layers.remove(name)
        return None

    async def finish(
        self,
        machine_id: str,
        template: Template,
        runtime: str,
        network: NetworkPolicy,
        checkpoint: str,
        output: Output,
        *,
        ready_s: float,
    ) -> str | None:
        quiet = _without_commands(template)
        machine = await self._start(machine_id, runtime, quiet, network)
        try:
            up = start_command.bring_up(self._commands, machine, template, output, ready_s=ready_s)
            await self._while_it_lives(machine_id, up)
            if not captures_memory(self._machines.runtime(runtime)):
                return None
            async with self._machines.table.alone(machine_id):
                live = self._machines.table.known(machine_id)
                await self._machines.save(live, checkpoint, PauseMode.FULL, final=False)
            return checkpoint
        finally:
            await processes.to_the_end(self._machines.stop(machine_id))

    async def _start(
        self, machine_id: str, runtime: str, template: Template, network: NetworkPolicy, *, writes_layer: bool = False
    ) -> EnvdAddress:
        token = secrets.token_hex(32)
        live = await self._machines.start(
            NewMachine(
                sandbox_id=machine_id,
                runtime=runtime,
                template=template,
                resources=template.resources,
                network=network,
                envd_token=token,
                writes_layer=writes_layer,
            )
        )
        return EnvdAddress(live.machine.address, token)


def _new_layer() -> str:
    return f"s{secrets.token_hex(10)}"


def _stub(machine_id: str, step: StepRun) -> Template:
    """The part of a template that a machine needs."""
    now = datetime.now(UTC)
    return Template(
        id=machine_id,
        team_id=None,
        name=machine_id,
        layers=step.layers,
        build_id="",
        created_at=now,
        updated_at=now,
        resources=step.resources,
        default_user="root",
        default_workdir="/",
    )


def _without_commands(template: Template) -> Template:
    return replace(template, start_cmd=None, ready_cmd=None, checkpoint=None)
