"""Puts repositories, forges and the git service together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandlot.platform.config.github import GitHubConfig
from sandlot.platform.core.forges import ForgeKind, GitRemote, Repository
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import GitHubAccounts, GitHubApp
from sandlot.platform.forges.local import LocalForge
from sandlot.platform.forges.ports import Forge
from sandlot.platform.forges.remote import RemoteForge
from sandlot.platform.forges.repositories import Repositories
from sandlot.platform.git.service import GitService
from sandlot.platform.store import Database, SqlPullComments, SqlPullRequests, SqlRepositories
from sandlot.platform.store.events import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeParts:
    """What forges stand on."""

    root: Path  # a directory of their own
    secret: str
    database: Database
    route: Route
    events: EventLog
    clock: Clock
    github: GitHubConfig | None = None
    console: str = "/console"  # where people reach the console


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltForges:
    git: GitService
    repositories: Repositories
    local: LocalForge
    github: GitHubForge


async def build_forges(parts: ForgeParts) -> BuiltForges:
    forges: dict[ForgeKind, Forge] = {}

    async def remote(repository: Repository, write: bool) -> GitRemote:
        return await forges[repository.forge].remote(repository, write=write)

    git = GitService(root=parts.root, secret=parts.secret, remotes=remote)
    await git.open()
    local = LocalForge(
        git=git.git,
        mirrors=git.mirrors,
        pulls=SqlPullRequests(parts.database, parts.route),
        comments=SqlPullComments(parts.database, parts.route),
        events=parts.events,
        clock=parts.clock,
        console=parts.console,
    )
    forges[ForgeKind.LOCAL] = local
    forges[ForgeKind.REMOTE] = RemoteForge(git.git)
    forges[ForgeKind.GITHUB] = github = GitHubForge(GitHubAccounts(app=_app(parts.github), clock=parts.clock))
    repositories = Repositories(
        store=SqlRepositories(parts.database, parts.route),
        forges=forges,
        local=local,
        mirrors=git.mirrors,
        events=parts.events,
        clock=parts.clock,
    )
    return BuiltForges(git=git, repositories=repositories, local=local, github=github)


def _app(config: GitHubConfig | None) -> GitHubApp | None:
    if config is None or config.app_id is None or config.private_key is None:
        return None
    return GitHubApp(id=config.app_id, private_key=config.private_key, url=config.url)
