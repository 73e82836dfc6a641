"""The host's side of envd's process service: runs a command in a machine and hands its output on, line by line.

What comes back was written next to hostile code: frames, lines and times are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from sandlot import bounded_json
from sandlot.engine.core.errors import GuestUnresponsive, MachineFailed, StepFailed
from sandlot.engine.core.model import ENVD_PORT

FRAME_LIMIT = 1 << 20
LINE_LIMIT = 4096
UPLOAD_S = 60
END_OF_STREAM = 0x02
Output = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    user: str
    line: str  # for a login shell
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EnvdAddress:
    """How a machine's daemon is reached."""

    address: str
    token: str | None


class CommandClient:
    """Speaks to the envd of any machine of this host. A stream that is left does not end the command."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=10),
            read_bufsize=1 << 20,
            auto_decompress=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def run(self, envd: EnvdAddress, command: Command, output: Output, *, timeout_s: float) -> int:
        """Run a command to its end and return its status. Raises `StepFailed` if it cannot be started or takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.follow(envd, command, output)
        except TimeoutError as error:
            raise StepFailed(f"it did not end within {timeout_s:g} s") from error

    async def follow(
        self, envd: EnvdAddress, command: Command, output: Output, started: asyncio.Event | None = None
    ) -> int:
        """The same without a limit; `started` is set when the command runs."""
        lines = {"stdout": _Lines(output, "info"), "stderr": _Lines(output, "warn")}
        async for event in self._events(envd, command):
            if started is not None and "start" in event:
                started.set()
            for name, data in _data(event):
                lines[name].feed(data)
            end = event.get("end")
            if isinstance(end, dict):
                for each in lines.values():
                    each.close()
                status = end.get("exitCode", 0)
                return status if isinstance(status, int) else -1
        raise MachineFailed("the machine of the build ended before the command did; its memory or processes ran out")

    async def _events(self, envd: EnvdAddress, command: Command) -> AsyncIterator[dict[str, Any]]:
        assert self._session is not None, "open() first"
        message = {
            "process": {
                "cmd": "/bin/bash",
                "args": ["-l", "-c", command.line],
                "envs": dict(command.env),
                **({"cwd": command.cwd} if command.cwd else {}),
            },
            "stdin": False,
        }
        body = json.dumps(message).encode()
        headers = {
            **_identity(envd, command.user),
            "Content-Type": "application/connect+json",
            "Connect-Protocol-Version": "1",
            "Keepalive-Ping-Interval": "30",
        }
        url = f"http://{envd.address}:{ENVD_PORT}/process.Process/Start"
        try:
            async with self._session.post(
                url, data=b"\0" + len(body).to_bytes(4, "big") + body, headers=headers, allow_redirects=False
            ) as reply:
                if reply.status != 200:
                    raise GuestUnresponsive(f"the daemon of the machine answered {reply.status} to a command")
                async for event in _frames(reply.content):
                    yield event
        except (aiohttp.ClientError, OSError) as error:
            raise MachineFailed(
                f"the machine of the build did not survive the command ({type(error).__name__}); "
                "its memory or processes may have run out"
            ) from error

    async def upload(self, envd: EnvdAddress, path: str, content: Path | bytes) -> None:
        """Write a file as root. Raises `GuestUnresponsive`."""
        assert self._session is not None, "open() first"
        headers = {**_identity(envd, "root"), "Content-Type": "application/octet-stream"}
        url = f"http://{envd.address}:{ENVD_PORT}/files"
        data = content if isinstance(content, bytes) else content.read_bytes()
        try:
            async with self._session.post(
                url,
                params={"path": path, "username": "root"},
                data=data,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=UPLOAD_S),
            ) as reply:
                problem = "" if reply.status == 200 else f"it answered {reply.status}"
        except (aiohttp.ClientError, OSError) as error:
            problem = str(error) or type(error).__name__
        if problem:
            raise GuestUnresponsive(f"the daemon of the machine did not take a file: {problem[:200]}")


def _identity(envd: EnvdAddress, user: str) -> dict[str, str]:
    basic = base64.b64encode(f"{user}:".encode()).decode()
    return {"Authorization": f"Basic {basic}", **({"X-Access-Token": envd.token} if envd.token else {})}


async def _frames(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    while True:
        try:
            head = await content.readexactly(5)
            size = int.from_bytes(head[1:], "big")
            if size > FRAME_LIMIT:
                raise MachineFailed("the daemon of the machine sent a message that is too large")
            value = bounded_json.loads(await content.readexactly(size), most_bytes=FRAME_LIMIT)
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise MachineFailed("the machine of the build ended before the command did") from error
        if not isinstance(value, dict):
            raise MachineFailed("the daemon of the machine sent what is no message")
        if head[0] & END_OF_STREAM:
            problem = value.get("error")
            if isinstance(problem, dict):
                raise StepFailed(
                    f"command failed: {bounded_json.text(problem.get('code'), 40)}: {bounded_json.text(problem.get('message'), 500)}"
                )
            return
        event = value.get("event")
        if isinstance(event, dict):
            yield event


def _data(event: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    data = event.get("data")
    found = []
    for name in ("stdout", "stderr"):
        text = data.get(name) if isinstance(data, dict) else None
        if isinstance(text, str):
            try:
                found.append((name, base64.b64decode(text)))
            except binascii.Error:
                continue
    return found


class _Lines:
    """Cuts a stream of bytes into lines; a carriage return begins a line again, as on a terminal."""

    def __init__(self, output: Output, level: str) -> None:
        self._output, self._level = output, level
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + self._decode(data)).split("\n")
        for line in whole:
            self._tell(line)
        if len(self._rest) > LINE_LIMIT:
            self._tell(self._rest)
            self._rest = ""

    def close(self) -> None:
        if self._rest:
            self._tell(self._rest)

    def _tell(self, line: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]
        self._output(shown[:LINE_LIMIT].replace("\0", ""), self._level)
