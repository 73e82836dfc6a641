"""Requests to one account of a GitHub server: by gidgethub, bounded, paced, with rate limits kept and answers remembered by ETag."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import gidgethub
from gidgethub import abc as gidgethub_abc

from sandlot.platform.core.errors import Conflict, ForgeRefused, InvalidRequest, NotFound, PlatformError, Unavailable
from sandlot.platform.git.commands import cleaned

REQUESTER = "sandlot"
API_VERSION = "2022-11-28"
MAX_ANSWER = 8 << 20
MAX_LOG = 256 << 20
MAX_REMEMBERED = 256 << 10  # larger answers are asked for again
REMEMBERED = 128
REQUEST_S = 30.0
PATIENCE_S = 15.0  # a longer wait is the caller's business
TRIES = 3
UNTOLD_LIMIT_S = 60.0  # when GitHub says "slow down" and not for how long
BURST, PER_SECOND = 20, 1.0  # of writes: GitHub takes about 80 a minute

Remembered = tuple[str | None, str | None, Any, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubTiming:
    """How patient requests are; tests are less so."""

    request_s: float = REQUEST_S
    patience_s: float = PATIENCE_S
    pause_s: float = 0.5  # before a second try; doubled for the next


class RememberedAnswers(MutableMapping[str, Remembered]):
    """The last answers by URL, for conditional requests: one that is still right costs nothing of the rate limit."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._found: OrderedDict[str, Remembered] = OrderedDict()

    def __getitem__(self, url: str) -> Remembered:
        self._found.move_to_end(url)
        return self._found[url]

    def __setitem__(self, url: str, answer: Remembered) -> None:
        self._found[url] = answer
        self._found.move_to_end(url)
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def __delitem__(self, url: str) -> None:
        del self._found[url]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Elsewhere(ForgeRefused):
    """A redirect to another host. Whoever expects one goes on there, without the token."""

    def __init__(self, url: str) -> None:
        super().__init__(f"GitHub points to {urlsplit(url).netloc[:200]}, which gets no token")
        self.url = url


class GitHubApi(gidgethub_abc.GitHubAPI):
    """`oauth_token` may be replaced by a newer one of the same account at any time."""

    def __init__(
        self, session: aiohttp.ClientSession, base_url: str, timing: GitHubTiming | None = None, **account: Any
    ) -> None:
        super().__init__(REQUESTER, base_url=base_url, cache=RememberedAnswers(), **account)
        self._session, self._timing = session, timing or GitHubTiming()
        self._writing = asyncio.Lock()
        self._credit, self._credited_at = float(BURST), time.monotonic()
        self._blocked_until = 0.0
        self._untold = 0

    @property
    def graphql_url(self) -> str:
        return self.base_url.removesuffix("/v3") + "/graphql"

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent = {**headers, "x-github-api-version": API_VERSION}
        if method == "GET":
            return await self._exchange(method, url, sent, body)
        async with self._writing:  # GitHub wants the writes of an account one after the other
            await self._pace()
            return await self._exchange(method, url, sent, body)

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        tries = TRIES if method == "GET" else 1
        for number in range(1, tries + 1):
            try:
                return await self._once(method, url, headers, body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if number == tries:
                    what = type(error).__name__
                    raise Unavailable(f"GitHub at {urlsplit(url).netloc} does not answer ({what})") from error
                await self.sleep(self._pause(number))
        raise AssertionError("unreachable")

    async def _once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        for _ in range(4):
            self._check(url)
            timeout = aiohttp.ClientTimeout(total=self._timing.request_s)
            options: dict[str, Any] = {"allow_redirects": False, "timeout": timeout, "proxy": proxy_for(url)}
            async with self._session.request(method, url, headers=headers, data=body or None, **options) as answer:
                content = await _bounded(answer)
                place = answer.headers.get("location")
                is_kept = answer.status in (307, 308) or (answer.status in (301, 302) and method == "GET")
                if place is None or not is_kept:
                    return answer.status, _headers(answer.headers, len(content)), content
                url = urljoin(url, place)
                if answer.status == 302 and not self._is_own(url):
                    raise _Elsewhere(url)
        raise ForgeRefused("GitHub redirects in a circle")

    async def text_behind(self, url: str, values: Mapping[str, str], most: int) -> str:
        """The last `most` bytes of what an address leads to: another host gets the request without the token."""
        try:
            found = await self.getitem(url, dict(values))
            return str(found or "")[-most:]
        except _Elsewhere as elsewhere:
            place = elsewhere.url
        timeout = aiohttp.ClientTimeout(total=self._timing.request_s)
        options: dict[str, Any] = {"allow_redirects": False, "timeout": timeout, "proxy": proxy_for(place)}
        try:
            async with self._session.get(place, headers={"user-agent": REQUESTER}, **options) as answer:
                if answer.status != 200:
                    raise NotFound(f"the log is not to be had any more ({answer.status})")
                return (await _end_of(answer, most)).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the log could not be read ({type(error).__name__})") from error

    def _check(self, url: str) -> None:
        """The token goes to its own server only, whatever a link or a redirect of an answer says."""
        if not self._is_own(url):
            own, found = urlsplit(self.base_url).netloc, urlsplit(url).netloc
            raise ForgeRefused(f"GitHub at {own} points to {found[:200]}, which gets no token")

    def _is_own(self, url: str) -> bool:
        found, own = urlsplit(url), urlsplit(self.base_url)
        return (found.scheme, found.netloc) == (own.scheme, own.netloc)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _pause(self, number: int) -> float:
        return float(self._timing.pause_s * 2 ** (number - 1) * random.uniform(0.5, 1.0))

    async def _pace(self) -> None:
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._credited_at) * PER_SECOND)
        self._credited_at = now
        if self._credit < 1:
            await self.sleep((1 - self._credit) / PER_SECOND)
        self._credit -= 1

    async def manage_rate_limit(self, *, method: str, url: str) -> None:
        wait = self._blocked_until - time.monotonic()
        if wait <= 0:
            return
        if wait > self._timing.patience_s:
            raise _limited(wait)
        await self.sleep(wait)

    async def handle_rate_limit_error(
        self, *, method: str, url: str, exception: gidgethub.HTTPException, attempt: int
    ) -> bool:
        """Whether to try once more. A refused request had no effect; a broken one may have had, unless it was a GET."""
        wait = self._limit_of(exception)
        if wait is not None:
            self._blocked_until = time.monotonic() + wait
            return wait <= self._timing.patience_s and attempt < TRIES  # `manage_rate_limit` waits
        self._untold = 0
        if isinstance(exception, gidgethub.GitHubBroken) and method == "GET" and attempt < TRIES:
            await self.sleep(self._pause(attempt))
            return True
        return False

    def _limit_of(self, exception: gidgethub.HTTPException) -> float | None:
        """How long GitHub wants us to wait; None if the error is another one."""
        if exception.status_code not in (HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS):
            return None
        after, left = exception.headers.get("retry-after", ""), exception.headers.get("x-ratelimit-remaining")
        if after.isdecimal():
            return float(min(int(after), 3600))
        reset = exception.headers.get("x-ratelimit-reset", "")
        if left == "0" and reset.isdecimal():
            return max(1.0, min(float(reset) - time.time(), 3700.0))
        told = "rate limit" in str(exception).lower() or "abuse" in str(exception).lower()
        if not told and exception.status_code is not HTTPStatus.TOO_MANY_REQUESTS:
            return None
        self._untold += 1
        return float(UNTOLD_LIMIT_S * 2 ** min(self._untold - 1, 5))

    def waits_s(self) -> float:
        """How long GitHub still wants this account to wait."""
        return max(0.0, self._blocked_until - time.monotonic())

    @contextmanager
    def asked(self, doing: str) -> Iterator[None]:
        """Turns what GitHub and gidgethub raise into our errors."""
        with translated(doing, self.waits_s):
            yield


@contextmanager
def translated(doing: str, waits_s: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    try:
        yield
    except PlatformError as error:
        if str(error).startswith("could not "):
            raise
        if isinstance(error, Unavailable):
            raise Unavailable(f"could not {doing}: {error}", error.retry_after_s) from error
        kind = ForgeRefused if isinstance(error, _Elsewhere) else type(error)
        raise kind(f"could not {doing}: {error}") from error
    except gidgethub.HTTPException as error:
        raise _error(doing, error, waits_s()) from error
    except gidgethub.GraphQLException as error:
        raise ForgeRefused(f"could not {doing}: GitHub says {_words(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unavailable(f"could not {doing}: GitHub's answer cannot be understood") from error


def _error(doing: str, error: gidgethub.HTTPException, wait: float) -> PlatformError:
    status, words = int(error.status_code), _words(error)
    if wait > 0:
        return _limited(wait, doing)
    if status == 401:
        return ForgeRefused(f"could not {doing}: GitHub refuses the token; make a new one and add it again")
    if status in (404, 410):
        return NotFound(f"could not {doing}: GitHub has no such thing, or the token may not see it")
    if status == 403:
        return ForgeRefused(f"could not {doing}: the token may not do this ({words})")
    if status in (405, 409):
        return Conflict(f"could not {doing}: {words}")
    if status in (400, 422):
        return InvalidRequest(f"could not {doing}: GitHub says {words}")
    if status >= 500:
        return Unavailable(f"could not {doing}: GitHub answers {status}")
    return ForgeRefused(f"could not {doing}: GitHub answers {status} ({words})")


def _limited(wait: float, doing: str = "") -> Unavailable:
    seconds = int(wait) + 1
    text = f"GitHub's rate limit is used up; it may be asked again in {seconds} s"
    return Unavailable(f"could not {doing}: {text}" if doing else text, seconds)


def _words(error: Exception) -> str:
    text = " ".join(cleaned(str(error)).split())
    return f"“{text[:300]}”"


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names. aiohttp's own reading of it would send passwords from netrc, too."""
    parts, proxies = urlsplit(url), getproxies()
    if parts.hostname in ("127.0.0.1", "localhost", "::1") or proxy_bypass(parts.netloc, proxies):
        return None
    return proxies.get(parts.scheme)


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for piece in answer.content.iter_chunked(64 << 10):
        found += piece
        if len(found) > MAX_ANSWER:
            raise ForgeRefused("GitHub's answer is too large")
    return bytes(found)


async def _end_of(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Its last bytes, of however many."""
    found, seen = bytearray(), 0
    async for piece in answer.content.iter_chunked(64 << 10):
        seen += len(piece)
        if seen > MAX_LOG:
            break
        found += piece
        del found[:-most]
    return bytes(found)


def _headers(given: Mapping[str, str], size: int) -> dict[str, str]:
    """With small letters, as gidgethub wants them; without those that would have a large answer remembered."""
    found = {name.lower(): value for name, value in given.items()}
    if size > MAX_REMEMBERED:
        found.pop("etag", None)
        found.pop("last-modified", None)
    return found
