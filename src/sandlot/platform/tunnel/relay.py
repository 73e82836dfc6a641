"""The relay in a sandbox: written there, started, and told the token of the next connection, all through its provider."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import shlex

from sandlot.data_files import data_files
from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.ports import Box, Channel
from sandlot.platform.tunnel.connection import Connection, RelayRefused
from sandlot.platform.tunnel.limits import TunnelLimits
from sandlot.platform.tunnel.streams import Speaker

LOCAL_PORT, TUNNEL_PORT = 6070, 6071
HOME = "/tmp/.sandlot-relay"
MAX_WORDS = 500
NO_PYTHON = 127
WRITE = f"""
mkdir -p {HOME} && printf %s {{program}} >{HOME}/relay.py.$$ && mv {HOME}/relay.py.$$ {HOME}/relay.py &&
printf %s {{token}} >{HOME}/token || exit 1
"""
# Where the image has no Python, the one of our engine's envd will do.
START = f"""
if command -v python3 >/dev/null 2>&1; then exec python3 -I -S {HOME}/relay.py; fi
for loader in /.sandlot/lib/ld-*; do
  if [ -x "$loader" ]; then
    exec "$loader" --inhibit-cache --library-path /.sandlot/lib /.sandlot/bin/python3 -I -S -B -X utf8 {HOME}/relay.py
  fi
done
exit {NO_PYTHON}
"""


async def connect_relay(box: Box, speaker: Speaker, limits: TunnelLimits, *, has_relay: bool = True) -> Connection:
    """A connection to the relay that runs there; it is started if none does. Raises `PlatformError`."""
    # The sandbox is given only the token's hash, and the token is good for one connection.
    token = secrets.token_urlsafe(32)
    if has_relay:
        await box.files.write(f"{HOME}/token", _hash(token))
        with contextlib.suppress(RelayRefused):
            return await _connect(box, token, speaker, limits)
    await _start(box, _hash(token), limits)
    return await _connect(box, token, speaker, limits)


async def _connect(box: Box, token: str, speaker: Speaker, limits: TunnelLimits) -> Connection:
    connection = Connection(box.address(TUNNEL_PORT), token, speaker, limits)
    await connection.open()
    return connection


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).hexdigest().encode()


async def _start(box: Box, token: bytes, limits: TunnelLimits) -> None:
    """Write it there with its first token, and start it, in one command. Raises `Conflict` if it cannot run there."""
    said: list[str] = []

    async def listen(_: Channel, text: str) -> None:
        if sum(map(len, said)) < MAX_WORDS:
            said.append(text[:MAX_WORDS])

    program = (data_files("guest") / "relay" / "relay.py").read_text()
    command = WRITE.format(program=shlex.quote(program), token=token.decode()) + START
    running = await box.commands.start(command, cwd="/", envs={}, user=None, on_output=listen)
    try:
        exit_code = await asyncio.wait_for(running.wait(), limits.start_s)
    except TimeoutError:
        await running.kill()
        raise RelayRefused("the relay in the sandbox does not start") from None
    if exit_code == NO_PYTHON:
        raise Conflict("the sandbox has no Python for the relay of the tunnel; use a template that has python3")
    if exit_code:
        words = "".join(said)[:MAX_WORDS].strip()
        raise Conflict(f"the relay of the tunnel does not start in the sandbox (exit code {exit_code}): {words}")
