"""What a person would type in place of a task: `docker run`, `git clone`, a change, a check, `git commit`, `git push`."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.clock import timed
from bench.dockerd import Docker

MOUNT = "/srv/repository.git"
_WHO = "git config user.name bench && git config user.email bench@localhost"


@dataclass
class ByHand:
    """Docker beside a bare repository that is mounted into every container: the fastest remote there is, without a password."""

    docker: Docker
    image: str
    repository: Path
    count: int = 0

    def steps(self, change: str, check: str) -> float:
        """A container to go on with, and a command for each step, as one works when one looks at what comes. In ms."""
        self.count += 1
        branch, name = f"by-hand-{self.count}", f"by-hand-{self.count}"

        def work() -> None:
            volume = ("--volume", f"{self.repository}:{MOUNT}")
            self.docker.run(
                "run", "--detach", "--network", "none", "--name", name, *volume, self.image, "sleep", "infinity"
            )
            self._exec(name, f"git config --global --add safe.directory '*' && git clone -q {MOUNT} /home/user/work")
            self._exec(name, f"cd /home/user/work && git checkout -qb {branch} && {_WHO}")
            self._exec(name, f"cd /home/user/work && {change}")
            self._exec(name, f"cd /home/user/work && {check}")
            self._exec(name, "cd /home/user/work && git add -A && git commit -qm 'chore: change'")
            self._exec(name, f"cd /home/user/work && git push -q origin {branch}")

        took = timed(work)
        self.docker.run("rm", "--force", name)
        return took

    def at_once(self, change: str, check: str) -> float:
        """All of it in one command of one container, which is gone at the end. In ms."""
        self.count += 1
        branch = f"by-hand-{self.count}"
        script = " && ".join(
            (
                "git config --global --add safe.directory '*'",
                f"git clone -q {MOUNT} /home/user/work && cd /home/user/work && git checkout -qb {branch} && {_WHO}",
                f"{change} && {check} && git add -A && git commit -qm 'chore: change' && git push -q origin {branch}",
            )
        )
        volume = ("--volume", f"{self.repository}:{MOUNT}")
        return timed(lambda: self._run("run", "--rm", "--network", "none", *volume, self.image, "bash", "-c", script))

    def clone(self) -> float:
        """The clone alone, in a container that is there. In ms."""
        self.count += 1
        name = f"by-hand-{self.count}"
        volume = ("--volume", f"{self.repository}:{MOUNT}")
        self.docker.run(
            "run", "--detach", "--network", "none", "--name", name, *volume, self.image, "sleep", "infinity"
        )
        try:
            self._exec(name, "git config --global --add safe.directory '*'")
            # `file://` copies objects as a remote would have them sent; a plain path would only link them.
            return timed(lambda: self._exec(name, f"git clone -q file://{MOUNT} /home/user/work"))
        finally:
            self.docker.run("rm", "--force", name)

    def _exec(self, name: str, script: str) -> None:
        self._run("exec", name, "bash", "-c", script)

    def _run(self, *words: str) -> None:
        self.docker.run(*words)


@contextlib.contextmanager
def bare_repository(megabytes: int = 0) -> Iterator[Path]:
    """A repository with a few files, and one of that size that does not compress."""
    place = Path(tempfile.mkdtemp(prefix="sandlot-bench-git-", dir="/var/tmp"))
    try:
        work, bare = place / "work", place / "repository.git"
        work.mkdir()
        _git(work, "init", "-q", "-b", "main")
        (work / "README.md").write_text("# Bench\n")
        (work / "app.py").write_text("print('hello')\n")
        for number in range(megabytes):
            with Path("/dev/urandom").open("rb") as noise:
                (work / f"noise-{number}").write_bytes(noise.read(1 << 20))
        _git(work, "add", "-A")
        _git(work, "commit", "-qm", "first")
        _git(place, "clone", "-q", "--bare", str(work), str(bare))
        yield bare
    finally:
        shutil.rmtree(place, ignore_errors=True)


def push_to(bare: Path, url: str, key: str) -> None:
    """Send its main branch to a repository that a server hosts."""
    import base64

    token = base64.b64encode(f"x:{key}".encode()).decode()
    header = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {token}",
    }
    _git(bare, "push", "-q", url, "main:refs/heads/main", environment=header)


def _git(directory: Path, *words: str, environment: dict[str, str] | None = None) -> None:
    who = {"GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@localhost"}
    committer = {"GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@localhost"}
    subprocess.run(
        ["git", *words],
        cwd=directory,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory), **who, **committer, **(environment or {})},
        check=True,
        capture_output=True,
        timeout=600,
    )
