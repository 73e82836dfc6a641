"""Where this server listens, for its own parts that use it as anybody would: over HTTP, with a key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sandlot.recipes.connection import Connection
from sandlot.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningAt:
    url: str
    domain: str
    key: str = field(repr=False)
    is_public: bool  # others reach sandboxes at this address, too


class OwnAddress:
    """Known once the server listens; whoever asks before waits."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: asyncio.Future[ListeningAt] = asyncio.get_running_loop().create_future()

    def listening(self, port: int, *, is_public: bool) -> None:
        """Plain HTTP answers at this port from now on; on loopback only, unless it is public."""
        host = self._settings.host if is_public and self._settings.host not in ("0.0.0.0", "::") else "127.0.0.1"
        key = (self._settings.data_dir / "keys" / "default").read_text().strip()
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if not self._found.done():
            self._found.set_result(ListeningAt(url=url, domain=f"localhost:{port}", key=key, is_public=is_public))

    async def get(self) -> ListeningAt:
        return await asyncio.shield(self._found)

    async def connection(self) -> Connection:
        """For building templates with the SDK."""
        at = await self.get()
        return Connection(api_url=at.url, sandbox_url=at.url, domain=at.domain, api_key=at.key)
