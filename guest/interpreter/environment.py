"""The variables of the sandbox, as its daemon knows them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import aiohttp

log = logging.getLogger(__name__)
TIMEOUT = aiohttp.ClientTimeout(total=5)


class SandboxEnvironment:
    """Asks envd, which answers whoever shows the sandbox's token; callers pass theirs on."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/envs"

    async def read(self, token: str | None) -> Mapping[str, str] | None:
        """The variables; None when envd cannot be asked now."""
        headers = {"X-Access-Token": token} if token else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=TIMEOUT) as session,
                session.get(self._url, headers=headers) as reply,
            ):
                if reply.status != 200:
                    log.warning("envd did not give the sandbox's variables: status %s", reply.status)
                    return None
                found = await reply.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            log.warning("envd could not be asked for the sandbox's variables: %s", error)
            return None
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else None
