"""A forge at the emulated GitHub, with a repository and whoever speaks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.git.world import repository
from tests.github.emulator import Emulator, running
from tests.github.state import App, EmulatedRepository

from sandlot.platform.core.forges import ForgeKind, PullRequestSpec, Repository
from sandlot.platform.core.ports import Clock
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import GitHubAccounts, GitHubApp
from sandlot.platform.forges.github_api import GitHubTiming
from sandlot.wiring.clock import now

SPEC = PullRequestSpec(title="Add a file", head="topic", base="main")
TIMING = GitHubTiming(request_s=5, patience_s=3, pause_s=0.01)
PERMISSIONS = {
    "contents": "write",
    "metadata": "read",
    "pull_requests": "write",
    "issues": "write",
    "checks": "write",
    "statuses": "write",
    "actions": "read",
}


def rsa_pair() -> tuple[str, str]:
    """A private key as GitHub gives it, and its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return private.decode(), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@dataclass
class GitHubTestWorld:
    emulator: Emulator
    there: EmulatedRepository
    repository: Repository
    forge: GitHubForge
    token: str

    def branch(self, name: str = "topic", **files: str) -> str:
        return self.emulator.commit(self.there, name, files or {"file.txt": "new\n"})

    @property
    def pulls(self) -> int:
        return len(self.there.pulls())


@asynccontextmanager
async def github_world(place: Path, timing: GitHubTiming = TIMING) -> AsyncIterator[GitHubTestWorld]:
    with running(place / "github") as emulator:
        there = emulator.repository("ada/app", robot="write", bob="read")
        token = emulator.token("robot")
        added = repository("app", url=f"{emulator.url}/ada/app", forge=ForgeKind.GITHUB, token=token)
        forge = GitHubForge(GitHubAccounts(app=None, clock=now, timing=timing))
        try:
            yield GitHubTestWorld(emulator, there, added, forge, token)
        finally:
            await forge.close()


@asynccontextmanager
async def app_world(place: Path, clock: Clock = now, **permissions: str) -> AsyncIterator[tuple[GitHubTestWorld, App]]:
    """The same, where a GitHub App speaks for the repository."""
    private, public = rsa_pair()
    with running(place / "github") as emulator:
        there = emulator.repository("ada/app")
        app = emulator.app("sandlot-bot", public, **(permissions or PERMISSIONS))
        app.installations["ada"] = 4711
        added = repository("app", url=f"{emulator.url}/ada/app", forge=ForgeKind.GITHUB, github_app=True)
        own = GitHubApp(id=str(app.id), private_key=private, url=emulator.url)
        forge = GitHubForge(GitHubAccounts(app=own, clock=clock, timing=TIMING))
        try:
            yield GitHubTestWorld(emulator, there, added, forge, ""), app
        finally:
            await forge.close()
