"""Asks the endpoints of models. What a sandbox sends goes out with the host's key, and without anything of its own that could identify."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType

import aiohttp

from sandlot.platform.core.models import ModelEndpoint
from sandlot.platform.models.dialects import key_header

CONNECT_S = 10.0
SILENCE_S = 300.0  # a model may think for minutes before its first word
CHUNK = 64 << 10
# Keys, and what names whoever pays; what only holds for one connection; what we say ourselves.
_KEPT_BACK = frozenset(
    {
        *("authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"),
        *("openai-organization", "openai-project", "x-goog-user-project", "forwarded", "via"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "proxy-connection"),
        *("host", "content-length", "content-encoding", "accept-encoding"),
    }
)
_ANSWERED = ("anthropic-", "openai-", "x-ratelimit-", "x-goog-", "retry-after", "request-id", "x-request-id")


class EndpointFailed(Exception):
    """An endpoint did not answer: a status and a sentence for the caller."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Upstream:
    """One pool of connections to all endpoints."""

    def __init__(self, *, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Upstream:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self._silence_s)
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            timeout=timeout, connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def ask(
        self,
        endpoint: ModelEndpoint,
        method: str,
        path: str,
        *,
        query: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Raises `EndpointFailed` where nothing comes back. An answer that is an error is an answer."""
        assert self._session is not None
        sent = {name: value for name, value in headers.items() if _is_passed_on(name)}
        sent["accept-encoding"] = "identity"
        if endpoint.key is not None:
            name, value = key_header(endpoint.api, endpoint.key)
            sent[name] = value
        try:
            async with self._session.request(
                method, _address(endpoint, path, query), headers=sent, data=body or None, allow_redirects=False
            ) as answer:
                yield answer
        except TimeoutError as error:  # of aiohttp as well
            raise EndpointFailed(504, f"the model endpoint {endpoint.name!r} did not answer in time") from error
        except aiohttp.ClientError as error:
            raise EndpointFailed(
                502, f"the model endpoint {endpoint.name!r} cannot be reached ({type(error).__name__})"
            ) from error


def answer_headers(answer: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """What a caller may see of an answer's headers."""
    return [
        (name.lower().encode(), value.encode("latin-1", "replace"))
        for name, value in answer.headers.items()
        if name.lower() == "content-type" or name.lower().startswith(_ANSWERED)
    ]


def _is_passed_on(name: str) -> bool:
    return name not in _KEPT_BACK and not name.startswith("x-forwarded-")


def _address(endpoint: ModelEndpoint, path: str, query: str) -> str:
    base = endpoint.url.rstrip("/")
    version = "/" + path.split("/", 2)[1]
    if base.endswith(version):  # the form in which OpenAI-compatible servers give their address
        base = base.removesuffix(version)
    return f"{base}{path}" + (f"?{query}" if query else "")
