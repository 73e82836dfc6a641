"""The repositories that users have added or host here: who may see them, which forge they are at, their names and tokens."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from sandlot.platform.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.forges import REPOSITORY_NAME, ForgeKind, GitRemote, Repository, is_branch_name
from sandlot.platform.core.model import Caller
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.local import LocalForge
from sandlot.platform.forges.ports import Forge, RepositoryStore, TellsAddresses
from sandlot.platform.git.mirrors import Mirrors
from sandlot.platform.git.records import Branch

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PUBLIC_HOSTS = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})
DEFAULT_BRANCH = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRepository:
    """A repository to add. Without a URL it is hosted here. `token_env` names a variable of the server."""

    name: str
    url: str | None = None
    forge: ForgeKind | None = None
    token_env: str | None = None
    token: str | None = field(default=None, repr=False)
    github_app: bool | None = None  # None: if an admin adds it without a token, and the server has one there
    default_branch: str | None = None
    empty: bool = False  # without a first commit, for a history of your own
    user_id: str | None = None


class Repositories:
    """`forges` has one adapter for each kind that this server can use."""

    def __init__(
        self,
        *,
        store: RepositoryStore,
        forges: Mapping[ForgeKind, Forge],
        local: LocalForge,
        mirrors: Mirrors,
        events: EventLog,
        clock: Clock,
    ) -> None:
        self._store, self._forges, self._local, self._mirrors = store, forges, local, mirrors
        self._events, self._clock = events, clock

    async def add(self, caller: Caller, new: NewRepository) -> Repository:
        """Raises `Conflict` if there is one of that name."""
        repository = self._checked(caller, new)
        if await self._store.by_name(repository.name) is not None:
            raise Conflict(f"there is a repository {repository.name!r} already")
        if repository.url is None:
            files = {} if new.empty else {"README.md": f"# {repository.name}\n"}
            await self._local.begin(repository, files)
        else:
            repository = await self._looked_at(repository, new.default_branch)
        try:
            await self._store.add(repository, self._event(repository, "repository.added"))
        except Conflict:
            await self._mirrors.remove(repository)
            raise Conflict(f"there is a repository {repository.name!r} already") from None
        self._events.changed()
        return repository

    async def _looked_at(self, repository: Repository, branch: str | None) -> Repository:
        """Ask the forge, so that a wrong address or token is told now and not by the first task."""
        facts = await self.forge(repository).describe(repository)
        found = branch or facts.default_branch
        if found is None:
            raise InvalidRequest(f"repository {repository.name!r} has no branch yet; push a first commit to it")
        problem = None if facts.may_push else "the token may read it, but not push"
        return replace(repository, default_branch=found, problem=problem)

    def _checked(self, caller: Caller, new: NewRepository) -> Repository:
        if not REPOSITORY_NAME.fullmatch(new.name):
            raise InvalidRequest(
                "a name has letters, digits, dots, dashes and underscores, at most 100, and no .git at its end"
            )
        if new.default_branch is not None and not is_branch_name(new.default_branch):
            raise InvalidRequest("default_branch is not the name of a branch")
        url = _checked_url(new.url) if new.url is not None else None
        self._check_trust(caller, new, url)
        kind = self._kind(url, new.forge)
        if kind not in self._forges:
            raise InvalidRequest(f"this server has no forge {kind.value!r}")
        return Repository(
            id=f"rp_{secrets.token_hex(8)}",
            name=new.name,
            forge=kind,
            url=url,
            default_branch=new.default_branch or DEFAULT_BRANCH,
            created_at=self._clock(),
            user_id=new.user_id if caller.is_admin else caller.user_id,
            token_env=new.token_env,
            token=new.token or None,
            github_app=self._uses_app(caller, new, url, kind),
        )

    def _kind(self, url: str | None, asked: ForgeKind | None) -> ForgeKind:
        if url is None:
            if asked not in (None, ForgeKind.LOCAL):
                raise InvalidRequest(f"a repository at {asked.value!r} needs its url")
            return ForgeKind.LOCAL
        if asked is ForgeKind.LOCAL:
            raise InvalidRequest("a repository that is hosted here has no url of its own")
        told = (kind for kind, forge in self._forges.items() if isinstance(forge, TellsAddresses) and forge.is_at(url))
        return asked or next(told, ForgeKind.REMOTE)

    def _uses_app(self, caller: Caller, new: NewRepository, url: str | None, kind: ForgeKind) -> bool:
        """The App may see more than a user who names a repository: only an admin lets it speak for one."""
        forge = self._forges[kind]
        has_app = url is not None and isinstance(forge, TellsAddresses) and forge.speaks_for(url)
        if new.github_app and not has_app:
            raise InvalidRequest("this server has no GitHub App for that address; configure [github], or give a token")
        if new.github_app and (new.token or new.token_env):
            raise InvalidRequest("give a token, or github_app, not both")
        if new.github_app is not None:
            return new.github_app
        return has_app and caller.is_admin and new.token is None and new.token_env is None

    def _check_trust(self, caller: Caller, new: NewRepository, url: str | None) -> None:
        """A user's address must not lead the server into its own network, nor its environment to that address."""
        if new.token_env is not None and new.token is not None:
            raise InvalidRequest("give token_env or token, not both")
        if new.token_env is not None and not _VARIABLE.fullmatch(new.token_env):
            raise InvalidRequest("token_env is not the name of an environment variable")
        if caller.is_admin:
            return
        if new.user_id not in (None, caller.user_id):
            raise Forbidden("this key belongs to another user than user_id names")
        if new.github_app:
            raise Forbidden("the GitHub App of the server is for its admin; give a token of your own")
        if new.token_env is not None:
            raise Forbidden("variables of the server are for its admin; give the token itself")
        if url is not None and (urlsplit(url).scheme != "https" or urlsplit(url).netloc.lower() not in PUBLIC_HOSTS):
            raise Forbidden(f"users add repositories of {', '.join(sorted(PUBLIC_HOSTS))}; ask an admin to add others")

    async def get(self, caller: Caller, name: str) -> Repository:
        found = await self._store.by_name(name)
        if found is None or not may_use(caller, found):
            raise NotFound(f"there is no repository {name[:100]!r}")
        return found

    async def by_id(self, id: str) -> Repository | None:
        return await self._store.get(id)

    async def list(self, caller: Caller) -> Sequence[Repository]:
        return [each for each in await self._store.all() if may_use(caller, each)]

    async def remove(self, caller: Caller, name: str) -> None:
        """Forget it. What is hosted here is deleted."""
        found = await self.get(caller, name)
        if not caller.is_admin and found.user_id != caller.user_id:
            raise Forbidden(f"repository {name!r} is everybody's; only an admin removes it")
        await self._store.remove(found, self._event(found, "repository.removed"))
        self._events.changed()
        await self._mirrors.remove(found)

    async def branches(self, caller: Caller, name: str) -> Sequence[Branch]:
        return await self._mirrors.branches(await self.get(caller, name))

    def forge(self, repository: Repository) -> Forge:
        found = self._forges.get(repository.forge)
        if found is None:
            raise InvalidRequest(f"this server has no forge {repository.forge.value!r}")
        return found

    async def remote(self, repository: Repository, write: bool) -> GitRemote:
        return await self.forge(repository).remote(repository, write=write)

    def _event(self, repository: Repository, type: str) -> Event:
        return Event(
            type=type,
            at=self._clock(),
            user_id=repository.user_id or "",
            subject=Subject("repository", repository.name),
            data={"forge": repository.forge.value, "url": repository.url or ""},
        )


def may_use(caller: Caller, repository: Repository) -> bool:
    return caller.is_admin or repository.user_id in (None, caller.user_id)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidRequest("the address of the repository cannot be read") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise InvalidRequest("a repository's address begins with https://; ssh and files are not supported")
    if parts.username or parts.password:
        raise InvalidRequest("leave the token out of the address; give it as token or token_env")
    if parts.query or parts.fragment or len(url) > 1000 or not re.fullmatch(r"[!-~]+", url) or port == 0:
        raise InvalidRequest("this is not the address of a git repository")
    return url.rstrip("/")
