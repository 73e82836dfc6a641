"""The MCP tools inside a sandbox: registers the session's token there, and returns their address."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import shlex
from dataclasses import dataclass, field

from sandlot.platform.core.errors import Conflict, PlatformError, Unavailable
from sandlot.platform.core.model import Session
from sandlot.platform.core.ports import Box, Channel
from sandlot.platform.sessions.service import Sessions, SessionTarget

PORT, PATH = 6060, "/mcp"
ASK_S = 30.0
MAX_WORDS = 500
NO_SUCH_COMMAND = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsAddress:
    url: str
    token: str = field(repr=False)


class SandboxTools:
    def __init__(self, *, sessions: Sessions, secret: str) -> None:
        self._sessions, self._secret = sessions, secret.encode()

    async def open(self, target: SessionTarget) -> ToolsAddress:
        """The address of the tools and a token. Raises `Conflict` if the sandbox has none."""
        async with self._sessions.using(target) as handle:
            token, address = self._token(handle.session), handle.box.url(PORT)
            # The sandbox is given only the token's hash, every time: it may be a new one.
            digest = hashlib.sha256(token.encode()).hexdigest()
            exit_code, said = await _ask(handle.box, handle.session, f"admit {digest} --url {shlex.quote(address)}")
            if exit_code:
                raise _refusal(handle.session, exit_code, said)
            return ToolsAddress(url=f"{address}{PATH}", token=token)

    async def unused_s(self, session: Session) -> float | None:
        """For how long nobody has used the tools, as the sandbox says; None if it has none.

        Only the sandbox knows: who was told the token once uses it past us, and may have been told by an earlier process.
        """
        try:
            exit_code, said = await _ask(await self._sessions.open_box(session), session, "idle")
            unused_s = float(said)
        except (PlatformError, ValueError):
            return None
        return max(0.0, unused_s) if exit_code == 0 and math.isfinite(unused_s) else None

    def _token(self, session: Session) -> str:
        """The session's token: derived from the secret, so it is stored nowhere and survives restarts."""
        made = hmac.digest(self._secret, f"tools {session.id}".encode(), "sha256")
        return f"slt_{base64.urlsafe_b64encode(made).decode().rstrip('=')}"


async def _ask(box: Box, session: Session, words: str) -> tuple[int, str]:
    """Run the tools' command in the sandbox: its exit code, and the beginning of its output."""
    said: list[str] = []

    async def listen(_: Channel, text: str) -> None:
        if sum(map(len, said)) < MAX_WORDS:
            said.append(text[:MAX_WORDS])

    running = await box.commands.start(f"sandlot-tools {words}", cwd=None, envs={}, user=None, on_output=listen)
    try:
        exit_code = await asyncio.wait_for(running.wait(), ASK_S)
    except TimeoutError:
        await running.kill()
        raise Unavailable(f"the tools in sandbox {session.id!r} do not answer; try again") from None
    return exit_code, "".join(said)[:MAX_WORDS]


def _refusal(session: Session, exit_code: int, said: str) -> PlatformError:
    if exit_code == NO_SUCH_COMMAND:
        made_from = f"template {session.template_id!r}" if session.template_id else "the provider's usual template"
        return Conflict(f"sandbox {session.id!r} has no tools: {made_from} has none; use one that has, such as 'agent'")
    return Conflict(
        f"the tools in sandbox {session.id!r} admit nobody (exit code {exit_code}): {said[:MAX_WORDS].strip()}"
    )
