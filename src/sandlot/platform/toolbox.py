"""The tools inside a session's sandbox: has it admit the session's token, and says where they are."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import shlex
from dataclasses import dataclass, field

from sandlot.platform.errors import Conflict, PlatformError, Unavailable
from sandlot.platform.model import Session
from sandlot.platform.ports import Channel
from sandlot.platform.sessions import Sessions, Target, Use

PORT, PATH = 6060, "/mcp"
ADMIT_S = 30.0
MOST_WORDS = 500
NO_SUCH_COMMAND = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    url: str
    token: str = field(repr=False)


class Toolbox:
    def __init__(self, *, sessions: Sessions, secret: str) -> None:
        self._sessions, self._secret = sessions, secret.encode()

    async def open(self, target: Target) -> Tools:
        """A way to the tools. Raises `Conflict` if the sandbox has none."""
        async with self._sessions.using(target) as use:
            token, address = self._token(use.session), use.box.url(PORT)
            await _admit(use, token, address)
            return Tools(url=f"{address}{PATH}", token=token)

    def _token(self, session: Session) -> str:
        """The same for as long as the session lives, and kept nowhere."""
        made = hmac.digest(self._secret, f"tools {session.id}".encode(), "sha256")
        return f"slt_{base64.urlsafe_b64encode(made).decode().rstrip('=')}"


async def _admit(use: Use, token: str, address: str) -> None:
    """The sandbox is told the token's hash only. It is told again every time: it may have been made anew since."""
    said: list[str] = []

    async def listen(_: Channel, text: str) -> None:
        if sum(map(len, said)) < MOST_WORDS:
            said.append(text[:MOST_WORDS])

    digest = hashlib.sha256(token.encode()).hexdigest()
    command = f"sandlot-tools admit {digest} --url {shlex.quote(address)}"
    running = await use.box.start(command, cwd=None, envs={}, user=None, on_output=listen)
    try:
        exit_code = await asyncio.wait_for(running.wait(), ADMIT_S)
    except TimeoutError:
        await running.kill()
        raise Unavailable(f"the tools in sandbox {use.session.id!r} do not answer; try again") from None
    if exit_code:
        raise _refusal(use.session, exit_code, "".join(said))


def _refusal(session: Session, exit_code: int, said: str) -> PlatformError:
    if exit_code == NO_SUCH_COMMAND:
        made_from = f"template {session.template_id!r}" if session.template_id else "the provider's usual template"
        return Conflict(f"sandbox {session.id!r} has no tools: {made_from} has none; use one that has, such as 'agent'")
    return Conflict(
        f"the tools in sandbox {session.id!r} admit nobody (exit code {exit_code}): {said[:MOST_WORDS].strip()}"
    )
