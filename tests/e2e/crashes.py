"""Rounds of killing the server in the middle of a pause, a resume, a snapshot or a fork, and looking at what is left."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass, field

import httpx
from e2b import Sandbox
from tests.e2e.server import Server, until

COUNTER = """
import os, time
n = 0
while True:
    n += 1
    open("/home/user/count.new", "w").write(str(n)); os.rename("/home/user/count.new", "/home/user/count")
    time.sleep(0.02)
"""
SETUP = (
    "head -c 2000000 /dev/urandom > data && sha256sum data > sum && (setsid python3 counter.py >/dev/null 2>&1 &) && "
    "until [ -s count ]; do sleep 0.05; done"
)
ACTS = ("pause", "resume", "snapshots", "fork")


@dataclass
class Subject:
    """One sandbox, and what it is known to have."""

    sandbox: Sandbox
    writes: int = 0
    count: int = 0
    boot: str = ""


@dataclass
class Crashes:
    server: Server
    seed: int
    longest_s: float = 0.7  # an act that takes longer is cut short, one that is quicker is done
    subjects: list[Subject] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    def populate(self, count: int) -> None:
        for _ in range(count):
            sandbox = self.server.create(timeout=3600)
            sandbox.files.write("/home/user/counter.py", COUNTER)
            sandbox.commands.run(SETUP)
            self.subjects.append(Subject(sandbox, boot=_boot(sandbox)))

    def run(self, rounds: int) -> None:
        chance = random.Random(self.seed)
        for number in range(rounds):
            subject, act = chance.choice(self.subjects), ACTS[number % len(ACTS)]
            self._write(subject)
            self._cut(subject, act, chance.random() * self.longest_s)
            self._look(subject, act)
        for subject in self.subjects:
            self._check(subject)

    def _write(self, subject: Subject) -> None:
        subject.sandbox.connect(timeout=3600)
        subject.writes += 1
        subject.sandbox.files.write(f"/home/user/write-{subject.writes}", str(subject.writes))
        subject.count = int(subject.sandbox.files.read("/home/user/count"))

    def _cut(self, subject: Subject, act: str, delay_s: float) -> None:
        """Begin the act, kill the server at that moment, start it again."""
        identity = subject.sandbox.sandbox_id
        if act == "resume":
            subject.sandbox.pause()
        path = f"/v2/sandboxes/{identity}/connect" if act == "resume" else f"/sandboxes/{identity}/{act}"

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError), self.server.http() as client:
                client.post(path, json={"timeout": 3600} if act in ("resume", "fork") else {})

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(delay_s)
        self.server.kill_9()
        asking.join(60)
        self.server.up()

    def _look(self, subject: Subject, act: str) -> None:
        """Nobody may be missing; children of a fork may be there, and live."""
        known = {each.sandbox.sandbox_id for each in self.subjects}
        listed = self.server.running()
        assert len(listed) == len(set(listed)) and known <= set(listed), f"lost: {known - set(listed)}"
        state = subject.sandbox.get_info().state.value
        self.outcomes.append(f"{act} -> {state}")
        for child in set(listed) - known:
            assert act == "fork"
            child_sandbox = Sandbox.connect(child, timeout=60, **self.server.sdk)
            assert child_sandbox.commands.run("sha256sum -c sum", timeout=60).exit_code == 0
            child_sandbox.kill()
        self._check(subject)
        self._check_states()

    def _check(self, subject: Subject) -> None:
        sandbox = subject.sandbox
        sandbox.connect(timeout=3600)
        assert sandbox.commands.run("sha256sum -c sum", timeout=60).exit_code == 0
        for number in range(1, subject.writes + 1):
            assert sandbox.files.read(f"/home/user/write-{number}") == str(number)
        assert _boot(sandbox) == subject.boot
        before = int(sandbox.files.read("/home/user/count"))
        assert before >= subject.count, "it counted on from where it was"
        until(lambda: int(sandbox.files.read("/home/user/count")) > before, what="the count")

    def _check_states(self) -> None:
        """No state on the disk that nobody has."""
        with self.server.http() as client:
            snapshots = {
                row["snapshotID"].rpartition("/")[2].partition(":")[0] for row in client.get("/snapshots").json()
            }
        kept = (path.name for path in (self.server.data_dir / "checkpoints").iterdir())
        names = {name for name in kept if not name.startswith((".", "seed-"))}
        paused = {each.sandbox.sandbox_id for each in self.subjects}
        assert names <= snapshots | paused, f"nobody has {names - snapshots - paused}"


def _boot(sandbox: Sandbox) -> str:
    return sandbox.commands.run("cat /proc/sys/kernel/random/boot_id").stdout
