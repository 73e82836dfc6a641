"""Who asks GitHub for a repository: a token of its own, or the server's GitHub App with a token for this one repository."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import aiohttp
import gidgethub

from sandlot.platform.core.errors import ForgeRefused, InvalidRequest, NotFound
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.ports import Clock
from sandlot.platform.forges.github_api import GitHubApi, GitHubTiming
from sandlot.platform.forges.remote import token_of

GITHUB = "github.com"
_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
MOST_ACCOUNTS = 256
EARLY = timedelta(minutes=5)  # a token that ends sooner is not used any more
READ: Mapping[str, str] = {"contents": "read", "metadata": "read"}
PUSH: Mapping[str, str] = {"contents": "write", "metadata": "read"}
API: Mapping[str, str] = {
    "contents": "write",
    "metadata": "read",
    "pull_requests": "write",
    "issues": "write",
    "checks": "write",
    "statuses": "write",
    "actions": "read",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubApp:
    """A GitHub App of this server. `id` is its client id, or its number."""

    id: str
    private_key: str = field(repr=False)
    url: str = f"https://{GITHUB}"


@dataclass(frozen=True, slots=True)
class GitHubPlace:
    """A repository at a GitHub server."""

    origin: str  # https://github.com
    owner: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def clone_url(self) -> str:
        return f"{self.origin}/{self.owner}/{self.name}.git"

    @property
    def api_url(self) -> str:
        return api_url(self.origin)


def api_url(origin: str) -> str:
    parts = urlsplit(origin)
    if parts.hostname == GITHUB or (parts.hostname or "").endswith(".ghe.com"):
        return f"{parts.scheme}://api.{parts.netloc}"
    return f"{parts.scheme}://{parts.netloc}/api/v3"


def place_of(url: str | None) -> GitHubPlace:
    """Raises `InvalidRequest` if it is no address of a repository at GitHub."""
    try:
        parts = urlsplit(url or "")
    except ValueError:
        raise InvalidRequest("the address of the repository cannot be read") from None
    steps = parts.path.strip("/").split("/")
    if len(steps) != 2 or not parts.netloc:
        raise InvalidRequest("a repository at GitHub has an address like https://github.com/owner/name")
    owner, name = steps[0], steps[1].removesuffix(".git")
    if not _OWNER.fullmatch(owner) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidRequest("the address names no owner and repository that GitHub could have")
    return GitHubPlace(origin_of(url or ""), owner, name)


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    netloc = parts.netloc.lower()
    return f"{parts.scheme}://{GITHUB if netloc == f'www.{GITHUB}' else netloc}"


@dataclass(slots=True)
class _Minted:
    token: str = field(repr=False)
    until: datetime
    permissions: Mapping[str, str]


class GitHubAccounts:
    """Tokens of the App are made for one repository and a purpose, and kept in memory until shortly before their end."""

    def __init__(self, *, app: GitHubApp | None, clock: Clock, timing: GitHubTiming | None = None) -> None:
        self.app, self._clock, self._timing = app, clock, timing
        self._session: aiohttp.ClientSession | None = None
        self._apis: OrderedDict[str, GitHubApi] = OrderedDict()
        self._minted: OrderedDict[tuple[str, str], _Minted] = OrderedDict()
        self._installations: dict[str, int] = {}
        self._logins: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self._session

    def is_github(self, url: str) -> bool:
        host = (urlsplit(url).hostname or "").removeprefix("www.")
        own = self.app is not None and origin_of(self.app.url) == origin_of(url)
        return own or host == GITHUB or host.endswith(".ghe.com")

    async def api(self, repository: Repository) -> GitHubApi:
        """What speaks for this repository, with a token that is good for a while."""
        place = place_of(repository.url)
        if repository.github_app:
            api = self._known(f"app {place.origin} {place.full_name}", place.api_url)
            api.oauth_token = (await self._installation_token(place, "api", API)).token
            return api
        token = token_of(repository)
        account = hashlib.sha256((token or "").encode()).hexdigest()
        return self._known(f"token {place.origin} {account}", place.api_url, token)

    async def git_token(self, repository: Repository, *, write: bool) -> str | None:
        if not repository.github_app:
            return token_of(repository)
        purpose, permissions = ("push", PUSH) if write else ("read", READ)
        return (await self._installation_token(place_of(repository.url), purpose, permissions)).token

    async def may_push(self, repository: Repository) -> bool:
        """What the App was allowed to, for a repository that it speaks for."""
        minted = await self._installation_token(place_of(repository.url), "api", API)
        return minted.permissions.get("contents") == "write"

    async def login(self, repository: Repository) -> str:
        """The name under which we write there."""
        place, api = place_of(repository.url), await self.api(repository)
        known = f"app {place.origin}" if repository.github_app else f"{place.origin} {api.oauth_token}"
        key = hashlib.sha256(known.encode()).hexdigest()
        if key not in self._logins:
            with api.asked("ask who the token belongs to"):
                if repository.github_app:
                    found = f"{(await self._as_app().getitem('/app'))['slug']}[bot]"
                else:
                    found = str((await api.getitem("/user"))["login"])
            if len(self._logins) >= MOST_ACCOUNTS:
                self._logins.clear()
            self._logins[key] = found
        return self._logins[key]

    def forget(self, repository: Repository) -> None:
        """A token was refused: the App may have been installed anew."""
        place = place_of(repository.url)
        self._installations.pop(place.full_name.lower(), None)
        for key in [key for key in self._minted if key[0] == place.full_name.lower()]:
            del self._minted[key]

    def _known(self, key: str, base_url: str, token: str | None = None) -> GitHubApi:
        found = self._apis.get(key)
        if found is None:
            found = self._apis[key] = GitHubApi(self.session(), base_url, self._timing, oauth_token=token)
        self._apis.move_to_end(key)
        while len(self._apis) > MOST_ACCOUNTS:
            self._apis.popitem(last=False)
        return found

    def _as_app(self) -> GitHubApi:
        if self.app is None:
            raise ForgeRefused("this server has no GitHub App any more; configure [github], or add a token")
        key, base = f"as app {self.app.id}", api_url(origin_of(self.app.url))
        if key not in self._apis:
            account = {"app_id": self.app.id, "private_key": self.app.private_key}
            self._apis[key] = GitHubApi(self.session(), base, self._timing, **account)
        self._apis.move_to_end(key)
        return self._apis[key]

    async def _installation_token(self, place: GitHubPlace, purpose: str, permissions: Mapping[str, str]) -> _Minted:
        key = (place.full_name.lower(), purpose)
        if len(self._locks) > MOST_ACCOUNTS * 4:
            self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        async with self._locks.setdefault("\n".join(key), asyncio.Lock()):
            known = self._minted.get(key)
            if known is not None and known.until - EARLY > self._clock():
                return known
            made = await self._mint(place, permissions)
            self._minted[key] = made
            self._minted.move_to_end(key)
            while len(self._minted) > MOST_ACCOUNTS * 4:
                self._minted.popitem(last=False)
            return made

    async def _mint(self, place: GitHubPlace, permissions: Mapping[str, str]) -> _Minted:
        api = self._as_app()
        if self.app is None or origin_of(self.app.url) != place.origin:
            raise ForgeRefused(f"the GitHub App of this server is not at {place.origin}")
        with api.asked(f"get a token of the GitHub App for {place.full_name}"):
            installation = await self._installation(api, place)
            body = {"repositories": [place.name], "permissions": dict(permissions)}
            url, values = "/app/installations{/id}/access_tokens", {"id": str(installation)}
            try:
                made = await api.post(url, values, data=body)
            except gidgethub.BadRequest as error:
                if int(error.status_code) == 404:
                    self._installations.pop(place.full_name.lower(), None)
                if int(error.status_code) != 422:
                    raise
                # The App was given fewer permissions than we use: take those it has, for this repository alone.
                made = await api.post(url, values, data={"repositories": [place.name]})
            until = datetime.fromisoformat(made["expires_at"].replace("Z", "+00:00"))
            return _Minted(str(made["token"]), until, dict(made.get("permissions") or {}))

    async def _installation(self, api: GitHubApi, place: GitHubPlace) -> int:
        name = place.full_name.lower()
        if name not in self._installations:
            try:
                values = {"owner": place.owner, "name": place.name}
                found = await api.getitem("/repos{/owner,name}/installation", values)
            except gidgethub.BadRequest as error:
                if int(error.status_code) != 404:
                    raise
                raise NotFound(f"the GitHub App is not installed for {place.full_name}; install it there") from error
            if len(self._installations) >= MOST_ACCOUNTS * 4:
                self._installations.clear()
            self._installations[name] = int(found["id"])
        return self._installations[name]
