"""The repository in a task's sandbox: cloned through the tunnel, on the task's branch, committed, rebased, and handed in."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sandlot.platform.core.errors import Conflict, Unavailable
from sandlot.platform.git.records import Prepared
from sandlot.platform.git.service import result_ref
from sandlot.platform.tasks.boxes import TIMED_OUT, Ran, TaskBox

HOME = "/home/user"
SERVER = "http://127.0.0.1:6070/git/"
CLONE_S, PUSH_S, GIT_S = 900.0, 900.0, 120.0
MAX_LISTED = 200
SETUP, HAS_SETUP = ".sandlot/setup.sh", "has-setup"
WORK = "refs/sandlot/saved"  # in the checkout: what the agent left at the end of its turn
BYPRODUCTS = ("__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".venv/", "node_modules/")
SAVED = "sandlot: work in progress"  # the subject of a commit that is none of the branch's own
NOT_SAVED = 96
_SENTENCE = re.compile(r"remote: sandlot: (.+)")
_NETWORK = re.compile(
    r"unable to access|Could not resolve|Connection (?:refused|reset)|early EOF|hung up|HTTP (?:5\d\d|408|429)|"
    r"returned error: (?:5\d\d|408|429)|RPC failed|timed out",
    re.IGNORECASE,
)
# Another command is at work in the same checkout: one that a platform which ended had started.
_BUSY = re.compile(r"\.lock': File exists|cannot lock ref|Directory not empty|another git process", re.IGNORECASE)
ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "LC_ALL": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who commits."""

    name: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What was saved of the checkout: the subjects of the commits since the base, and whether there is more than they hold."""

    subjects: tuple[str, ...]
    paths: tuple[str, ...]  # that differ from the base in what was saved
    is_dirty: bool
    is_unfinished: bool  # a merge or a rebase is half done
    is_behind: bool  # the base has commits that it lacks

    @property
    def has_changes(self) -> bool:
        return bool(self.paths)


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

    async def clone(self) -> None:
        """A whole clone, put in its place when it is complete, on the task's branch. Nothing happens if it is there."""
        new = f"{HOME}/.sandlot/clone"
        basic = base64.b64encode(f"task:{self._prepared.credential}".encode()).decode()
        header = f"http.{SERVER}.extraHeader=Authorization: Basic {basic}"
        options = f"--quiet --no-checkout --config {_q(header)} --branch {_q(self._prepared.base)}"
        ran = await self._well(
            f"""
            if [ ! -e {_q(self.directory)}/.git/sandlot-cloned ]; then
                # A platform that ended may have left a clone at work here: each has a place of its own, the first one counts.
                mkdir -p {_q(HOME)}/.sandlot && rm -rf {_q(self.directory)} && new=$(mktemp -d {_q(new)}.XXXXXX) &&
                git clone {options} {" ".join(map(_config, self._configuration))} {_q(self._url)} "$new" &&
                touch "$new/.git/sandlot-cloned" && mv -T "$new" {_q(self.directory)} 2>/dev/null ||
                    [ -e {_q(self.directory)}/.git/sandlot-cloned ] || exit 1
                rm -rf "$new"
            fi
            cd {_q(self.directory)} || exit 1
            {self._begin_branch()}
            """,
            "clone the repository into the sandbox",
            timeout_s=CLONE_S,
            at=HOME,
        )
        self._is_on_branch = True
        self.has_setup = ran.stdout.strip().endswith(HAS_SETUP)

    async def branch(self) -> None:
        """On the task's branch: at what the attempt handed in before its sandbox was lost, else at the base."""
        if not self._is_on_branch:
            ran = await self._well(self._begin_branch(), "make the task's branch", timeout_s=PUSH_S)
            self._is_on_branch = True
            self.has_setup = ran.stdout.strip().endswith(HAS_SETUP)

    @property
    def _configuration(self) -> tuple[tuple[str, str], ...]:
        who = (("user.name", self._person.name), ("user.email", self._person.email))
        return (*who, ("push.default", "nothing"), ("advice.detachedHead", "false"))

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

    async def standing(self) -> Standing:
        """Counted from where the branch left its base, which is fetched if it has moved."""
        base = self._prepared.base
        ran = await self._well(
            f"""
            git cat-file -e {_q(self.base_sha)} 2>/dev/null ||
                git fetch --quiet origin +refs/heads/{base}:refs/remotes/origin/{base} || exit 1
            base=$(git merge-base HEAD {_q(self.base_sha)} || echo {_q(self.base_sha)})
            echo "$base"
            [ -d .git/rebase-merge ] || [ -d .git/rebase-apply ] || [ -e .git/MERGE_HEAD ] && echo unfinished || echo whole
            [ "$(git rev-parse 'HEAD^{{tree}}')" = "$(git rev-parse '{WORK}^{{tree}}')" ] && echo clean || echo dirty
            git merge-base --is-ancestor {_q(self.base_sha)} HEAD && echo level || echo behind
            printf '\\036'
            git log --max-count={MAX_LISTED} --format=%s "$base"..HEAD | head -c 100000
            printf '\\036'
            git diff --name-only -z --no-renames "$base" {WORK} | head -c 200000
            """,
            "look at the checkout",
            timeout_s=PUSH_S,
        )
        head, subjects, paths = [*ran.stdout.split("\x1e"), "", ""][:3]
        facts = [*head.split("\n"), "", "", "", ""]
        return Standing(
            subjects=tuple(line for line in subjects.split("\n") if line),
            paths=tuple(sorted({path for path in paths.split("\0") if path}))[: 10 * MAX_LISTED],
            is_dirty=facts[2].strip() != "clean",
            is_unfinished=facts[1].strip() == "unfinished",
            is_behind=facts[3].strip() == "behind",
        )

    async def commit(self, message: str, *, squash: bool) -> None:
        """Commit what was saved and is not in a commit; with `squash`, together with what is."""
        words = _q(message.replace("\0", ""))
        start = f'git reset --quiet --soft "$(git merge-base HEAD {_q(self.base_sha)})" &&' if squash else ""
        await self._well(
            f"""
            git checkout --quiet -B {self._prepared.branch} && {start} git read-tree {WORK} || exit 1
            git diff --cached --quiet || printf %s {words} | git commit --quiet --no-verify --no-gpg-sign --cleanup=verbatim -F -
            """,
            "commit the changes",
        )

    async def rebase(self) -> Sequence[str]:
        """Bring the branch onto the base's tip. Returns the files that conflict; then nothing has changed."""
        onto = self.base_sha
        ran = await self._run(
            f"""
            git merge-base --is-ancestor {_q(onto)} HEAD && exit 0
            git -c commit.gpgsign=false rebase --quiet --autostash {_q(onto)} && exit 0
            git diff --name-only --diff-filter=U | head -c 20000
            git rebase --abort
            exit 1
            """,
            GIT_S,
        )
        if ran.is_ok:
            return ()
        return tuple(line for line in ran.stdout.splitlines() if line)[:MAX_LISTED] or ("(unknown)",)

    async def hand_in(self) -> None:
        """Push what is committed to the git server as what this attempt came to. Raises `Refused`, `Unavailable`."""
        self._check_push(await self._run(self._push("HEAD"), PUSH_S))

    async def save(self) -> None:
        """Hand in the checkout as it is, committed or not, without touching it. Raises `Refused`, `Unavailable`.

        What is committed later is what was saved: not what the checks leave behind.
        """
        ran = await self._run(
            f"""
            export GIT_INDEX_FILE=.git/sandlot-index
            cp .git/index "$GIT_INDEX_FILE" 2>/dev/null
            git add --all && tree=$(git write-tree) || exit {NOT_SAVED}
            if [ "$tree" = "$(git rev-parse 'HEAD^{{tree}}')" ]; then saved=HEAD
            else saved=$(git commit-tree "$tree" -p HEAD -m {_q(SAVED)}) || exit {NOT_SAVED}; fi
            git update-ref {WORK} "$saved" || exit {NOT_SAVED}
            unset GIT_INDEX_FILE
            {self._push(WORK)}
            """,
            PUSH_S,
        )
        if ran.exit_code == NOT_SAVED:
            raise Conflict(f"could not save the work so far: {ran.words[-1000:] or 'git failed'}")
        self._check_push(ran)

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


def _config(pair: tuple[str, str]) -> str:
    return f"--config {_q('='.join(pair))}"


def person_of(user_id: str) -> Person:
    """Who asked, as git wants it: a user's name is all that is known of most."""
    email = user_id if re.fullmatch(r"[^@\s<>]+@[^@\s<>]+", user_id) else f"{_plain(user_id)}@users.sandlot.invalid"
    return Person(name=re.sub(r"[<>\n\r\0]", "", user_id)[:100] or "somebody", email=email)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-.") or "somebody"
