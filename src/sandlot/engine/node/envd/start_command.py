"""What a template starts by itself: runs its start command in a machine and waits until its ready command succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Mapping

from sandlot.engine.core.errors import StepFailed
from sandlot.engine.core.model import Template
from sandlot.engine.node.envd.commands import Command, CommandClient, EnvdAddress, Output

READY_EVERY_S = 2.0
WAIT_WITHOUT_READY_S = 20.0  # E2B's own, when there is a start command and nothing that says when it is ready
AT_CREATE_S = 15.0
_SLEEP = re.compile(r"\s*sleep\s+[\d.]+\s*")


def command(user: str, workdir: str | None, env: Mapping[str, str], line: str) -> Command:
    """A command as recipes mean it. Login shells set their own PATH, so one that the recipe sets is set again."""
    path = f"export PATH={shlex.quote(env['PATH'])}; " if "PATH" in env else ""
    return Command(user=user, line=path + line, cwd=workdir, env=env)


def of_template(template: Template, line: str) -> Command:
    return command(template.default_user, template.default_workdir, template.env, line)


async def bring_up(
    commands: CommandClient, envd: EnvdAddress, template: Template, output: Output, *, ready_s: float
) -> None:
    """Start the command, leave it running, and return when the template is ready. Raises `StepFailed`."""
    service = asyncio.create_task(_service(commands, envd, template, output))
    ready = asyncio.create_task(_until_ready(commands, envd, template, output, ready_s))
    try:
        await asyncio.wait({service, ready}, return_when=asyncio.FIRST_COMPLETED)
        if service.done() and not ready.done():
            await service
        await ready
        if service.done():
            await service
    finally:
        # Leaving the stream does not end the command; the state of a machine with open connections cannot be saved.
        for task in (service, ready):
            task.cancel()
        await asyncio.gather(service, ready, return_exceptions=True)


async def _service(commands: CommandClient, envd: EnvdAddress, template: Template, output: Output) -> None:
    if template.start_cmd is None:
        return
    try:
        status = await commands.follow(envd, of_template(template, template.start_cmd), output)
    except StepFailed as error:
        raise StepFailed(f"failed to run the start command: {error}") from error
    if status != 0:
        raise StepFailed(f"failed to run the start command: exit status {status}")


async def _until_ready(
    commands: CommandClient, envd: EnvdAddress, template: Template, output: Output, ready_s: float
) -> None:
    if template.ready_cmd is None:
        await asyncio.sleep(WAIT_WITHOUT_READY_S if template.start_cmd else 0)
        return
    try:
        async with asyncio.timeout(ready_s):
            await _poll(commands, envd, of_template(template, template.ready_cmd), output, READY_EVERY_S)
    except TimeoutError:
        raise StepFailed(
            f"the ready command {template.ready_cmd[:200]!r} did not succeed within {ready_s:g} s"
        ) from None


async def _poll(commands: CommandClient, envd: EnvdAddress, line: Command, output: Output, every_s: float) -> None:
    """Run a command again and again until it succeeds."""
    status = await commands.follow(envd, line, output)
    while status != 0:
        await asyncio.sleep(every_s)
        status = await commands.follow(envd, line, output)


async def begin(commands: CommandClient, envd: EnvdAddress, template: Template) -> None:
    """At the start of a sandbox: run the start command, and wait a little for it to be ready."""
    if template.start_cmd is None:
        return
    started = asyncio.Event()
    line = of_template(template, template.start_cmd)
    service = asyncio.create_task(commands.follow(envd, line, _silent, started))
    waiting = asyncio.create_task(started.wait())
    try:
        await asyncio.wait({service, waiting}, timeout=AT_CREATE_S, return_when=asyncio.FIRST_COMPLETED)
        if template.ready_cmd is None or _SLEEP.fullmatch(template.ready_cmd):
            return  # a fixed time is for builds: nobody wants to wait for it at every start
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AT_CREATE_S):
                await _poll(commands, envd, of_template(template, template.ready_cmd), _silent, 0.1)
    finally:
        for task in (service, waiting):
            task.cancel()
        await asyncio.gather(service, waiting, return_exceptions=True)


def _silent(line: str, level: str) -> None:
    pass
