"""The sandboxes that browsers run in: made, reached, ended, and what is done in them by commands."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence

from sandlot.platform.core.browsers import Browser, BrowserLimits
from sandlot.platform.core.errors import SandboxGone, Unavailable
from sandlot.platform.core.model import PortAddress, ProviderSandbox, SandboxNetwork, SandboxSpec
from sandlot.platform.core.ports import Box, Channel, Clock
from sandlot.platform.providers.health import ProviderRegistry

MARGIN_S = 300  # how long the sandbox outlives the browser's time, if this platform is not there to end it
MAX_SAID = 4000
BORROWED_S = 1200
HERE = "/opt/sandlot-browser"


class BrowserBoxes:
    def __init__(self, *, providers: ProviderRegistry, limits: BrowserLimits, clock: Clock) -> None:
        self._providers, self._limits, self._clock = providers, limits, clock

    async def make(self, browser: Browser) -> str:
        """Its sandbox, of which nothing can be reached from outside but by us."""
        spec = SandboxSpec(
            session=browser.id,
            template=self._limits.template,
            timeout_s=browser.timeout_s + MARGIN_S,
            envs={},
            metadata={},
            network=SandboxNetwork(is_private=True),
            is_kept=False,
        )
        async with self._providers.calling(browser.provider) as provider:
            return await provider.create(spec)

    async def reach(self, browser: Browser) -> Box:
        """Raises `SandboxGone`."""
        if browser.provider_sandbox_id is None:
            raise SandboxGone(f"browser {browser.id!r} has no sandbox")
        left = int((browser.expires_at - self._clock()).total_seconds())
        async with self._providers.calling(browser.provider) as provider:
            return await provider.connect(browser.provider_sandbox_id, max(60, left) + MARGIN_S)

    async def address(self, browser: Browser, port: int) -> PortAddress:
        return (await self.reach(browser)).address(port)

    async def end(self, provider_name: str, sandbox_id: str) -> None:
        """Nothing happens if it has ended."""
        async with self._providers.calling(provider_name) as provider:
            with contextlib.suppress(SandboxGone):
                await provider.kill(sandbox_id)

    @contextlib.asynccontextmanager
    async def borrowed(self, name: str) -> AsyncIterator[Box]:
        """A sandbox for a while, that belongs to no browser."""
        spec = SandboxSpec(
            session=name,
            template=self._limits.template,
            timeout_s=BORROWED_S,
            envs={},
            metadata={},
            network=SandboxNetwork(is_private=True),
            is_kept=False,
        )
        async with self._providers.calling(self._limits.provider) as provider:
            sandbox_id = await provider.create(spec)
        try:
            async with self._providers.calling(self._limits.provider) as provider:
                box = await provider.connect(sandbox_id, BORROWED_S)
            yield box
        finally:
            await self.end(self._limits.provider, sandbox_id)

    async def found(self) -> Mapping[str, Sequence[ProviderSandbox]]:
        """All sandboxes of browsers that providers have; only those that answer are named."""
        found: dict[str, Sequence[ProviderSandbox]] = {}
        for name in self._providers.all:
            with contextlib.suppress(Unavailable):
                async with self._providers.calling(name) as provider:
                    found[name] = await provider.inventory()
        return found


async def run_in(box: Box, *command: str) -> str:
    """Run a program in the sandbox to its end; returns the beginning of what it said. Raises `Unavailable` if it fails."""
    said: list[str] = []

    async def listen(_: Channel, text: str) -> None:
        if sum(map(len, said)) < MAX_SAID:
            said.append(text[:MAX_SAID])

    running = await box.commands.start(shlex.join(command), cwd=None, envs={}, user="user", on_output=listen)
    code = await running.wait()
    if code != 0:
        words = "".join(said).strip()[-300:]
        raise Unavailable(
            f"{command[0].rsplit('/', 1)[-1]} failed in the browser's sandbox with exit code {code}: {words}"
        )
    return "".join(said)
