"""The embedded forge: repositories in the data directory, pull requests, comments and merges in our own store."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandlot.platform.core.errors import Conflict, InvalidRequest, NotFound, NothingToMerge
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.forges import (
    GitRemote,
    Issue,
    LocalPullRequest,
    PullComment,
    PullRequest,
    PullRequestChange,
    PullRequestSpec,
    PullRequestState,
    Repository,
    RepositoryFacts,
)
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.ports import CommentStore, PullRequestStore
from sandlot.platform.git import diffs
from sandlot.platform.git.commands import Git
from sandlot.platform.git.mirrors import Mirrors, resolve
from sandlot.platform.git.records import TaskDiff

TRIES = 8
MAX_TITLE, MAX_BODY = 500, 1 << 20
AUTHOR = {"GIT_AUTHOR_NAME": "Sandlot", "GIT_AUTHOR_EMAIL": "sandlot@localhost"}
COMMITTER = {"GIT_COMMITTER_NAME": "Sandlot", "GIT_COMMITTER_EMAIL": "sandlot@localhost"}


class LocalForge:
    name = "local"
    has_pull_requests = True

    def __init__(
        self,
        *,
        git: Git,
        mirrors: Mirrors,
        pulls: PullRequestStore,
        comments: CommentStore,
        events: EventLog,
        clock: Clock,
        console: str = "/console",
    ) -> None:
        """`console` is where people find pages about pull requests."""
        self._git, self._mirrors, self._pulls, self._comments = git, mirrors, pulls, comments
        self._events, self._clock, self._console = events, clock, console

    async def describe(self, repository: Repository) -> RepositoryFacts:
        path = await self._mirrors.refresh(repository)
        head = await resolve(self._git, path, repository.default_branch)
        return RepositoryFacts(default_branch=repository.default_branch if head else None)

    async def remote(self, repository: Repository, *, write: bool = False) -> GitRemote:
        return GitRemote(url=str(await self._mirrors.refresh(repository)))

    async def begin(self, repository: Repository, files: dict[str, str]) -> None:
        """Create its files on disk; with files, the first commit too."""
        path = await self._mirrors.create(repository)
        if not files or await resolve(self._git, path, repository.default_branch):
            return
        lines = []
        for name, content in sorted(files.items()):
            added = await self._git.run("hash-object", "-w", "--stdin", at=path, input=content.encode())
            lines.append(f"100644 blob {added.text.strip()}\t{name}\n")
        tree = (await self._git.run("mktree", at=path, input="".join(lines).encode())).text.strip()
        first = await self._commit(path, tree, (), "chore: begin the repository")
        await self._git.run("update-ref", f"refs/heads/{repository.default_branch}", first, at=path)

    async def open_pull_request(self, repository: Repository, spec: PullRequestSpec) -> PullRequest:
        path = self._mirrors.path(repository)
        base, head = [await self._tip(path, name) for name in (spec.base, spec.head)]
        if await self._is_ancestor(path, head, base):
            raise NothingToMerge(f"{spec.head} has no commit that {spec.base} lacks")
        for _ in range(TRIES):
            existing = await self._open(repository, spec)
            if existing is not None:
                return await self._shown(repository, existing)
            number = await self._pulls.next_number(repository.id)
            made = self._new(repository, spec, number)
            try:
                await self._pulls.add(made, self._event(repository, made, "pull.opened"))
            except Conflict:
                continue  # the number, or this head, was taken meanwhile
            self._events.changed()
            return await self._shown(repository, made)
        raise Conflict("many pull requests are being opened at once; try again")

    def _new(self, repository: Repository, spec: PullRequestSpec, number: int) -> LocalPullRequest:
        now = self._clock()
        return LocalPullRequest(
            id=f"pr_{secrets.token_hex(8)}",
            repository_id=repository.id,
            number=number,
            title=_text(spec.title, MAX_TITLE),
            state=PullRequestState.OPEN,
            head=spec.head,
            base=spec.base,
            created_at=now,
            updated_at=now,
            body=_text(spec.body, MAX_BODY),
            draft=spec.draft,
            author=_text(spec.author, 200),
            labels=spec.labels[:50],
            reviewers=spec.reviewers[:50],
        )

    async def _open(self, repository: Repository, spec: PullRequestSpec) -> LocalPullRequest | None:
        found = await self._pulls.query(repository.id, state=PullRequestState.OPEN, head=spec.head)
        return next((each for each in found if each.base == spec.base), None)

    async def pull_request(self, repository: Repository, number: int) -> PullRequest:
        return await self._shown(repository, await self._get(repository, number))

    async def pull_requests(
        self, repository: Repository, state: PullRequestState | None = None, *, head: str | None = None
    ) -> Sequence[PullRequest]:
        found = await self._pulls.query(repository.id, state=state, head=head)
        return [self._pull_request(repository, each, each.head_sha) for each in found]

    async def update(self, repository: Repository, number: int, change: PullRequestChange) -> PullRequest:
        for _ in range(TRIES):
            old = await self._get(repository, number)
            new = replace(
                old,
                title=old.title if change.title is None else _text(change.title, MAX_TITLE),
                body=old.body if change.body is None else _text(change.body, MAX_BODY),
                draft=old.draft if change.draft is None else change.draft,
                labels=old.labels if change.labels is None else change.labels[:50],
                checks=old.checks if change.checks is None else change.checks[:50],
                updated_at=self._clock(),
            )
            events = []
            if change.state is not None and change.state is not old.state:
                new = await self._moved(repository, new, change.state)
                events = [self._event(repository, new, "pull.closed" if new.open_key is None else "pull.reopened")]
            try:
                new = await self._pulls.swap(old, new, *events)
            except Conflict:
                continue
            self._events.changed()
            return await self._shown(repository, new)
        raise Conflict("many requests change this pull request at once; try again")

    async def _moved(self, repository: Repository, pull: LocalPullRequest, to: PullRequestState) -> LocalPullRequest:
        if pull.state is PullRequestState.MERGED or to is PullRequestState.MERGED:
            raise Conflict(f"pull request {pull.number} is {pull.state.value}, so it cannot become {to.value}")
        if to is PullRequestState.OPEN:
            return replace(pull, state=to, base_sha=None, head_sha=None)
        path = self._mirrors.path(repository)
        base, head = [await resolve(self._git, path, name) for name in (pull.base, pull.head)]
        return replace(pull, state=to, base_sha=base, head_sha=head)

    async def comment(
        self,
        repository: Repository,
        number: int,
        body: str,
        *,
        marker: str | None = None,
        author: str = "",
        path: str | None = None,
        line: int | None = None,
    ) -> PullComment:
        pull = await self._get(repository, number)
        made = PullComment(
            id=0,
            author=_text(author, 200),
            body=_text(body, MAX_BODY),
            created_at=self._clock(),
            path=path,
            line=line,
            marker=marker,
        )
        event = self._event(repository, pull, "pull.commented", author=made.author, path=path, line=line)
        added = await self._comments.put(pull.id, made, event)
        self._events.changed()
        return added

    async def merge(self, repository: Repository, number: int, *, sha: str | None = None) -> PullRequest:
        """A merge commit: made without a work tree, and put on the base if nobody moved it meanwhile."""
        async with self._mirrors.turn(repository):
            pull = await self._get(repository, number)
            if pull.state is PullRequestState.MERGED:
                return await self._shown(repository, pull)
            if pull.state is PullRequestState.CLOSED:
                raise Conflict(f"pull request {number} is closed")
            if pull.draft:
                raise Conflict(f"pull request {number} is a draft; mark it as ready first")
            path = self._mirrors.path(repository)
            base, head = [await self._tip(path, name) for name in (pull.base, pull.head)]
            if sha is not None and sha != head:
                raise Conflict(f"{pull.head} has moved since you looked: it is at {head[:12]} now")
            merged = await self._merge_commit(path, pull, base, head)
            await self._git.run("update-ref", f"refs/heads/{pull.base}", merged, base, at=path)
            done = {"merged_at": self._clock(), "merge_sha": merged, "base_sha": base, "head_sha": head}
            new = replace(pull, state=PullRequestState.MERGED, updated_at=self._clock(), **done)  # type: ignore[arg-type]
            new = await self._pulls.swap(pull, new, self._event(repository, new, "pull.merged", sha=merged))
        self._events.changed()
        return await self._shown(repository, new)

    async def _merge_commit(self, path: Path, pull: LocalPullRequest, base: str, head: str) -> str:
        if await self._is_ancestor(path, head, base):
            return base  # a merge that was not written down before a crash
        tree = await self._git.run("merge-tree", "--write-tree", base, head, at=path, check=False)
        if tree.status != 0:
            raise Conflict(f"{pull.head} conflicts with {pull.base}; bring it up to date first")
        words = f"Merge pull request #{pull.number} from {pull.head}\n\n{pull.title}\n"
        return await self._commit(path, tree.text.split("\n", 1)[0].strip(), (base, head), words)

    async def issue(self, repository: Repository, number: int) -> Issue:
        raise InvalidRequest(f"repository {repository.name!r} is hosted here, where there are no issues")

    async def diff(self, repository: Repository, number: int) -> TaskDiff:
        """What it changes, or changed."""
        path, base, head = await self._span(repository, number)
        return await diffs.diff(self._git, path, base, head)

    async def patch(self, repository: Repository, number: int) -> bytes:
        path, base, head = await self._span(repository, number)
        return await diffs.patch(self._git, path, base, head)

    async def _span(self, repository: Repository, number: int) -> tuple[Path, str, str]:
        pull, path = await self._get(repository, number), self._mirrors.path(repository)
        base = pull.base_sha or await self._tip(path, pull.base)
        head = pull.head_sha or await self._tip(path, pull.head)
        fork = await self._git.run("merge-base", base, head, at=path, check=False)
        return path, fork.text.strip() or base, head

    async def _shown(self, repository: Repository, pull: LocalPullRequest) -> PullRequest:
        path = self._mirrors.path(repository)
        head = pull.head_sha or await resolve(self._git, path, pull.head)
        shown = self._pull_request(repository, pull, head)
        mergeable: bool | None = None
        if pull.state is PullRequestState.OPEN and head is not None:
            base = await resolve(self._git, path, pull.base)
            tried = await self._git.run("merge-tree", "--write-tree", base or "", head, at=path, check=False)
            mergeable = base is not None and tried.status == 0
        return replace(shown, mergeable=mergeable, comments=tuple(await self._comments.of(pull.id)))

    async def _get(self, repository: Repository, number: int) -> LocalPullRequest:
        found = await self._pulls.by_number(repository.id, number)
        if found is None:
            raise NotFound(f"repository {repository.name!r} has no pull request {number}")
        return found

    async def _tip(self, path: Path, branch: str) -> str:
        found = await resolve(self._git, path, branch)
        if found is None:
            raise InvalidRequest(f"there is no branch {branch[:200]!r}")
        return found

    async def _is_ancestor(self, path: Path, old: str, new: str) -> bool:
        return (await self._git.run("merge-base", "--is-ancestor", old, new, at=path, check=False)).status == 0

    async def _commit(self, path: Path, tree: str, parents: Sequence[str], message: str) -> str:
        flags = [word for parent in parents for word in ("-p", parent)]
        env = self._git.environment(None, **AUTHOR, **COMMITTER)
        made = await self._git.run("commit-tree", *flags, "-F", "-", tree, at=path, input=message.encode(), env=env)
        return made.text.strip()

    def _pull_request(self, repository: Repository, pull: LocalPullRequest, head_sha: str | None) -> PullRequest:
        return PullRequest(
            number=pull.number,
            title=pull.title,
            state=pull.state,
            head=pull.head,
            base=pull.base,
            url=f"{self._console}/repositories/{repository.name}/pulls/{pull.number}",
            created_at=pull.created_at,
            body=pull.body,
            draft=pull.draft,
            author=pull.author,
            labels=pull.labels,
            head_sha=head_sha,
            merged_at=pull.merged_at,
            merge_sha=pull.merge_sha,
            checks=pull.checks,
        )

    def _event(self, repository: Repository, pull: LocalPullRequest, type: str, **data: object) -> Event:
        found = {"repository": repository.name, "number": pull.number, "head": pull.head, "title": pull.title, **data}
        return Event(
            type=type,
            at=self._clock(),
            user_id=repository.user_id or "",
            subject=Subject("pull", f"{repository.name}#{pull.number}"),
            data={name: value for name, value in found.items() if value is not None},
        )


def _text(text: str, most: int) -> str:
    return text.replace("\0", "")[:most]
