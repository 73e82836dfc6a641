"""The HTTP transport of webhooks, with a timeout. Response bodies are not read."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import httpx

from sandlot.platform.core.errors import Unavailable

TIMEOUT_S = 10.0


class HttpWebhookTransport:
    def __init__(self) -> None:
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            async with self._client.stream("POST", url, content=body, headers=dict(headers)) as answer:
                status = answer.status_code  # the body could be of any size
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unavailable(f"the webhook could not be reached ({type(error).__name__})") from error
        if not 200 <= status < 300:
            raise Unavailable(f"the webhook answered {status}")

    async def __aenter__(self) -> HttpWebhookTransport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()
