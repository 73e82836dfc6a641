"""The repository in a task's sandbox: cloned through the tunnel, on the task's branch, committed, rebased, and handed in."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import shlex
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandlot.platform.core.errors import Conflict, Unavailable
from sandlot.platform.git.base_packs import BasePack
from sandlot.platform.git.records import Prepared
from sandlot.platform.git.service import result_ref
from sandlot.platform.git.submissions import SAVED
from sandlot.platform.tasks.boxes import TIMED_OUT, Ran, TaskBox

HOME = "/home/user"
SERVER = "http://127.0.0.1:6070/git/"
CLONE_S, PUSH_S, GIT_S = 900.0, 900.0, 120.0
MAX_LISTED = 200
SETUP, HAS_SETUP = ".sandlot/setup.sh", "has-setup"
SAVED_TREE, HALF_DONE = "sandlot-saved", "half-done"  # in .git: the tree that was saved last
BYPRODUCTS = ("__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".venv/", "node_modules/")
NOT_SAVED = 96
CARRIED = 256 << 10  # bytes of a pack that need no push of their own
_SENTENCE = re.compile(r"remote: sandlot: (.+)")
_NETWORK = re.compile(
    r"unable to access|Could not resolve|Connection (?:refused|reset)|early EOF|hung up|HTTP (?:5\d\d|408|429)|"
    r"returned error: (?:5\d\d|408|429)|RPC failed|timed out",
    re.IGNORECASE,
)
# Another command is at work in the same checkout: one that a platform which ended had started.
_BUSY = re.compile(r"\.lock': File exists|cannot lock ref|Directory not empty|another git process", re.IGNORECASE)
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "LC_ALL": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0",
    # A task's repository has a few refs: to be told all of them at once saves a question.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.version",
    "GIT_CONFIG_VALUE_0": "0",
}
PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who commits."""

    name: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a checkout was when it was saved. `pack` holds what the git server lacks of it; it is empty if nothing has to be taken there."""

    sha: str
    is_half_done: bool  # a merge or a rebase
    pack: bytes = b""


class Refused(Exception):
    """The git server took a push not. The words are a sentence for whoever made the commits."""


class Checkout:
    """One attempt's checkout. What it says of itself is the guest's word; what counts is what the git server took."""

    def __init__(
        self,
        box: TaskBox,
        *,
        repository: str,
        prepared: Prepared,
        attempt: int,
        person: Person,
        has_saved: bool = True,
    ) -> None:
        """`has_saved`: the attempt may have handed in something before."""
        self._box, self._prepared, self._attempt, self._person = box, prepared, attempt, person
        self._has_saved, self._is_on_branch = has_saved, False
        self.has_setup: bool | None = None  # whether the repository has a script that sets it up; None: not known
        self.base_sha = prepared.base_sha  # where the base is, as far as we know
        self.directory = f"{HOME}/{repository}"
        self._url = f"{SERVER}{repository}.git"

    async def clone(self, pack: BasePack | None = None) -> None:
        """A whole clone, put in its place when it is complete, on the task's branch. Nothing happens if it is there.

        It begins with a base pack, if there is one: then only what is newer comes through the tunnel.
        """
        # A platform that ended may have left a clone at work here: each has a place of its own, the first one counts.
        new = f"{HOME}/.sandlot/clone.{secrets.token_hex(6)}"
        if pack is not None:
            await self._put_pack(pack, f"{new}/.git/objects/pack/pack-{pack.name}")
        ran = await self._well(
            f"""
            new={_q(new)}
            if [ ! -e {_q(self.directory)}/.git/sandlot-cloned ]; then
                {self._cloned() if pack is None else self._grown(pack)} &&
                : >"$new/.git/sandlot-cloned" && {{ [ ! -e {_q(self.directory)} ] || rm -rf {_q(self.directory)}; }} &&
                mv -T "$new" {_q(self.directory)} 2>/dev/null ||
                    [ -e {_q(self.directory)}/.git/sandlot-cloned ] || exit 1
            fi
            [ ! -e "$new" ] || rm -rf "$new"
            cd {_q(self.directory)} || exit 1
            {self._begin_branch()}
            """,
            "clone the repository into the sandbox",
            timeout_s=CLONE_S,
            at=HOME,
        )
        self._is_on_branch = True
        self.has_setup = ran.stdout.strip().endswith(HAS_SETUP)

    async def is_there(self) -> bool:
        """Whether it was cloned before."""
        return (await self._run(f"test -e {_q(self.directory)}/.git/sandlot-cloned", GIT_S, HOME)).is_ok

    async def _put_pack(self, pack: BasePack, place: str) -> None:
        try:
            await asyncio.gather(
                self._box.write(f"{place}.pack", _pieces(pack.pack)),
                self._box.write(f"{place}.idx", _pieces(pack.index)),
            )
        except FileNotFoundError:
            raise Unavailable("the repository was packed anew meanwhile") from None

    def _cloned(self) -> str:
        options = f"--quiet --no-checkout --branch {_q(self._prepared.base)}"
        configured = " ".join(f"--config {_q('='.join(pair))}" for pair in self._configuration)
        return f'git clone {options} {configured} {_q(self._url)} "$new"'

    def _grown(self, pack: BasePack) -> str:
        """A repository around a pack: what `git clone` would write, without its processes."""
        base = self._prepared.base
        refs = "".join(f"{pack.sha} refs/{where}/{base}\n" for where in ("heads", "remotes/origin"))
        files = {"HEAD": f"ref: refs/heads/{base}\n", "packed-refs": refs, "config": self._config()}
        written = " && ".join(f'printf %s {_q(text)} >"$new/.git/{name}"' for name, text in files.items())
        wanted = _q(f"+refs/heads/{base}:refs/remotes/origin/{base}")
        fetched = "" if pack.sha == self.base_sha else f' && git -C "$new" fetch --quiet origin {wanted}'
        return f'mkdir -p "$new/.git/refs/heads" "$new/.git/objects/info" "$new/.git/info" && {written}{fetched}'

    def _config(self) -> str:
        base = _quoted(self._prepared.base)
        lines = [
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true",
            f'[remote "origin"]\n\turl = {_quoted(self._url)}\n\tfetch = +refs/heads/*:refs/remotes/origin/*',
            f"[branch {base}]\n\tremote = origin\n\tmerge = {_quoted(f'refs/heads/{self._prepared.base}')}",
        ]
        for key, value in self._configuration:
            section, _, name = key.rpartition(".")
            first, _, second = section.partition(".")
            lines.append(f"[{first}{' ' + _quoted(second) if second else ''}]\n\t{name} = {_quoted(value)}")
        return "\n".join(lines) + "\n"

    async def branch(self) -> None:
        """On the task's branch: at what the attempt handed in before its sandbox was lost, else at the base."""
        if not self._is_on_branch:
            ran = await self._well(self._begin_branch(), "make the task's branch", timeout_s=PUSH_S)
            self._is_on_branch = True
            self.has_setup = ran.stdout.strip().endswith(HAS_SETUP)

    @property
    def _configuration(self) -> tuple[tuple[str, str], ...]:
        basic = base64.b64encode(f"task:{self._prepared.credential}".encode()).decode()
        return (
            ("user.name", self._person.name),
            ("user.email", self._person.email),
            ("push.default", "nothing"),
            ("advice.detachedHead", "false"),
            (f"http.{SERVER}.extraHeader", f"Authorization: Basic {basic}"),
        )

    def _begin_branch(self) -> str:
        branch, saved = self._prepared.branch, result_ref(self._attempt)
        fetched = f"git fetch --quiet origin +{saved}:{saved} 2>/dev/null && start={saved}" if self._has_saved else ""
        return f"""
            if ! git rev-parse --verify --quiet refs/heads/{branch} >/dev/null; then
                printf '%s\n' {" ".join(map(_q, BYPRODUCTS))} >.git/info/exclude
                start={_q(self.base_sha)}
                {fetched}
                git checkout --quiet -b {branch} "$start" || exit 1
                {self._undone() if self._has_saved else ""}
            fi
            [ ! -f {SETUP} ] || echo {HAS_SETUP}
            """

    @staticmethod
    def _undone() -> str:
        """What was not committed is not committed again."""
        return f'[ "$(git log -1 --format=%s)" != {_q(SAVED)} ] || git reset --quiet HEAD~1'

    async def catch_up(self, head: str) -> None:
        """Be at what was committed of it on the git server, if that is what was saved here; files stay as they are."""
        await self._well(
            f"""
            git merge-base --is-ancestor {_q(head)} HEAD 2>/dev/null && exit 0
            git fetch --quiet origin {result_ref(self._attempt)} || exit 1
            [ "$(git rev-parse {_q(head + "^{tree}")})" = "$(cat .git/{SAVED_TREE})" ] || exit 0
            git checkout --quiet -B {self._prepared.branch} && git reset --quiet {_q(head)}
            """,
            "bring the checkout to what was committed",
        )

    async def rebase(self) -> Sequence[str]:
        """Bring the branch onto the base's tip. Returns the files that conflict; then nothing has changed."""
        onto, base = self.base_sha, self._prepared.base
        ran = await self._run(
            f"""
            git cat-file -e {_q(onto)} 2>/dev/null ||
                git fetch --quiet origin {_q(f"+refs/heads/{base}:refs/remotes/origin/{base}")} || exit 1
            git merge-base --is-ancestor {_q(onto)} HEAD && exit 0
            git -c commit.gpgsign=false rebase --quiet --autostash {_q(onto)} && exit 0
            git diff --name-only --diff-filter=U | head -c 20000
            git rebase --abort
            exit 1
            """,
            PUSH_S,
        )
        if ran.is_ok:
            return ()
        return tuple(line for line in ran.stdout.splitlines() if line)[:MAX_LISTED] or ("(unknown)",)

    async def hand_in(self) -> None:
        """Push what is committed to the git server as what this attempt came to. Raises `Refused`, `Unavailable`."""
        self._check_push(await self._run(self._push("HEAD"), PUSH_S))

    async def save(self, known: str) -> Saved:
        """Hand in the checkout as it is, committed or not, without touching it: it is committed as it was now, on the git server.

        `known` is a commit that need not be handed in. What is small comes back to be handed in by the caller; the rest is pushed.
        Raises `Refused`, `Unavailable`.
        """
        ran = await self._run(
            f"""
            export GIT_INDEX_FILE=.git/sandlot-index
            cp .git/index "$GIT_INDEX_FILE" 2>/dev/null
            git add --all && tree=$(git write-tree) && set -- $(git rev-parse HEAD 'HEAD^{{tree}}') || exit {NOT_SAVED}
            saved=$1
            [ "$tree" = "$2" ] || saved=$(git commit-tree "$tree" -p "$1" -m {_q(SAVED)}) || exit {NOT_SAVED}
            echo "$tree" >.git/{SAVED_TREE} || exit {NOT_SAVED}
            unset GIT_INDEX_FILE
            half=
            [ ! -d .git/rebase-merge ] && [ ! -d .git/rebase-apply ] && [ ! -e .git/MERGE_HEAD ] || half={HALF_DONE}
            echo "$saved $half"
            [ "$saved" != {_q(known)} ] || exit 0
            pack=.git/sandlot-pack.$$
            trap 'rm -f $pack' EXIT
            printf '%s\n' "$saved" {_q(f"^origin/{self._prepared.base}")} |
                git pack-objects --quiet --revs --thin --stdout >$pack 2>/dev/null &&
                [ "$(stat -c %s $pack)" -le {CARRIED} ] && base64 -w0 $pack && exit 0
            {self._push('"$saved"')}
            """,
            PUSH_S,
        )
        if ran.exit_code == NOT_SAVED:
            raise Conflict(f"could not save the work so far: {ran.words[-1000:] or 'git failed'}")
        self._check_push(ran)
        head, _, pack = ran.stdout.partition("\n")
        try:
            carried = base64.b64decode(pack.strip(), validate=True)
        except ValueError:
            raise Unavailable("the sandbox does not tell what it saved: this is no base64") from None
        return Saved(sha=head.split(" ")[0], is_half_done=HALF_DONE in head, pack=carried)

    def _push(self, commit: str) -> str:
        return f"git push --quiet --force origin {commit}:{result_ref(self._attempt)}"

    def _check_push(self, ran: Ran) -> None:
        if ran.is_ok:
            return
        said = _SENTENCE.search(ran.stderr)
        if said is not None:
            raise Refused(said.group(1).strip()[:2000])
        if ran.exit_code == TIMED_OUT or _NETWORK.search(ran.stderr):
            raise Unavailable(f"could not push from the sandbox: {ran.words[-500:]}")
        raise Refused(f"git could not push the changes: {ran.words[-1000:]}")

    async def _run(self, script: str, timeout_s: float, at: str | None = None) -> Ran:
        return await self._box.run(script, timeout_s=timeout_s, cwd=at or self.directory, envs=ENVIRONMENT)

    async def _well(self, script: str, doing: str, *, timeout_s: float = GIT_S, at: str | None = None) -> Ran:
        ran = await self._run(script, timeout_s, at)
        if ran.is_ok:
            return ran
        if _BUSY.search(ran.stderr):  # a lock that nobody holds any more goes, so that a later try succeeds
            await self._run("find .git -maxdepth 1 -name '*.lock' -mmin +1 -delete", GIT_S)
        words = ran.words[-1000:] or f"exit code {ran.exit_code}"
        if ran.exit_code == TIMED_OUT or _NETWORK.search(ran.stderr) or _BUSY.search(ran.stderr):
            raise Unavailable(f"could not {doing}: {words}")
        raise Conflict(f"could not {doing}: {words}")


def _q(text: str) -> str:
    return shlex.quote(text)


def _quoted(text: str) -> str:
    """As a value in a file of git's configuration."""
    plain = re.sub(r"[\0\r\n]", " ", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


def person_of(user_id: str) -> Person:
    """Who asked, as git wants it: a user's name is all that is known of most."""
    email = user_id if re.fullmatch(r"[^@\s<>]+@[^@\s<>]+", user_id) else f"{_plain(user_id)}@users.sandlot.invalid"
    return Person(name=re.sub(r"[<>\n\r\0]", "", user_id)[:100] or "somebody", email=email)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-.") or "somebody"
