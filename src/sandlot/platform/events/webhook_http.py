"""The HTTP transport of webhooks, with a timeout. Response bodies are not read; names inside the network are not followed unasked."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from sandlot.addresses import is_public
from sandlot.platform.core.errors import Unavailable
from sandlot.platform.core.model import Webhook

TIMEOUT_S = 10.0


class PrivateAddress(OSError):
    """The name leads inside, and the configuration does not say that it may."""


class PublicNames(AbstractResolver):
    """Resolves names to public addresses, which are then connected to. An address in a URL is the operator's own choice."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        public = [each for each in found if is_public(each["host"])]
        if not public:
            raise PrivateAddress(f"{host} is at a private address")
        return public

    async def close(self) -> None:
        await self._resolver.close()


class HttpWebhookTransport:
    def __init__(self) -> None:
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def send(self, webhook: Webhook, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            session = self._session(webhook.private)
            async with session.post(webhook.url, data=body, headers=dict(headers), allow_redirects=False) as answer:
                status = answer.status  # the body could be of any size
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error.__cause__ or error, PrivateAddress) or "private address" in str(error):
                raise Unavailable(
                    "the webhook's name leads to a private address; if it should, say `private = true` in its table"
                ) from error
            raise Unavailable(f"the webhook could not be reached ({type(error).__name__})") from error
        if not 200 <= status < 300:
            raise Unavailable(f"the webhook answered {status}")

    def _session(self, private: bool) -> aiohttp.ClientSession:
        if private not in self._sessions:
            options: dict[str, Any] = {} if private else {"resolver": PublicNames()}
            self._sessions[private] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(**options),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                trust_env=False,
            )
        return self._sessions[private]

    async def __aenter__(self) -> HttpWebhookTransport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions.values():
            await session.close()
