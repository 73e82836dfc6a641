"""Runs git on the host: a clean environment, no configuration but ours, bounded time and output, no token in an argument."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sandlot.platform.core.errors import ForgeRefused, NotFound, PlatformError, Unavailable
from sandlot.platform.core.forges import GitRemote
from sandlot.platform.git.child import PIECE, Child

TIMEOUT_S = 60.0
TRANSFER_S = 900.0
OUTPUT = 16 << 20
ZERO = "0" * 40
_PASSED = ("https_proxy", "http_proxy", "no_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")
_SECRET = re.compile(
    r"(?i)(authorization: *\w+ +)\S+|\b(gh[a-z]_\w{8})[\w.-]+|\b(github_pat_\w{4})\w+|(://)[^/@\s]*:[^/@\s]*@"
)

CONFIG = """\
# Written by Sandlot at each start: the only configuration that git on the host reads besides the repositories' own.
[safe]
	directory = *
[core]
	hooksPath = /dev/null
	fsmonitor = false
	bigFileThreshold = 32m
[gc]
	auto = 0
	autoDetach = false
[maintenance]
	auto = false
[receive]
	autogc = false
[fetch]
	fsckObjects = true
	writeCommitGraph = false
[fetch "fsck"]
	badTimezone = ignore
	missingSpaceBeforeDate = ignore
	zeroPaddedFilemode = ignore
[receive "fsck"]
	badTimezone = ignore
	missingSpaceBeforeDate = ignore
	zeroPaddedFilemode = ignore
[transfer]
	credentialsInUrl = die
[http]
	followRedirects = false
	lowSpeedLimit = 1
	lowSpeedTime = 60
[credential]
	helper =
[protocol]
	version = 2
[user]
	useConfigOnly = false
[diff]
	renameLimit = 2000
"""


class GitFailed(PlatformError):
    """Git ended with an error. `output` is what it said, without secrets."""

    def __init__(self, doing: str, status: int, output: str) -> None:
        self.status, self.output = status, cleaned(output)
        super().__init__(f"could not {doing}: {_last_words(self.output) or f'git ended with status {status}'}")


@dataclass(frozen=True, slots=True)
class GitResult:
    status: int
    stdout: bytes
    stderr: str
    truncated: bool = False

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


class Git:
    """`home` is a directory of ours, where git's configuration is."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._config = home / "gitconfig"

    def open(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._config.with_suffix(".new")
        temporary.write_text(CONFIG)
        temporary.replace(self._config)

    def environment(self, remote: GitRemote | None = None, **more: str) -> dict[str, str]:
        """What git gets. A token goes into the environment of this one process, as configuration for this one host."""
        found = {
            "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self._config),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ADVICE": "0",
            "GIT_ALLOW_PROTOCOL": "none",
            **more,
        }
        if remote is not None:
            found |= _reaching(remote)
        return found

    async def run(
        self,
        *arguments: str,
        at: Path | None = None,
        doing: str = "",
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        limit: int = OUTPUT,
        check: bool = True,
    ) -> GitResult:
        """Raises `GitFailed` on a status other than 0 (unless `check` is false), `Unavailable` when the time is up."""
        what = doing or f"run git {arguments[0]}"
        argv = ["git", *(("--git-dir", str(at)) if at is not None else ()), *arguments]
        child = await Child.start(argv, env=env or self.environment(), has_input=input is not None)
        try:
            async with asyncio.timeout(timeout_s):
                feeding = asyncio.ensure_future(_feed(child, input))
                try:
                    output, truncated = await _collect(child.stdout, limit)
                    if truncated:
                        child.kill()
                    status = await child.wait()
                finally:
                    feeding.cancel()
        except TimeoutError:
            raise Unavailable(f"could not {what}: no end after {timeout_s:g} s") from None
        finally:
            await child.close()
        result = GitResult(0 if truncated else status, output, cleaned(child.stderr), truncated)
        if check and result.status != 0:
            raise GitFailed(what, status, result.stderr or result.text)
        return result

    async def transfer(self, *arguments: str, at: Path | None, remote: GitRemote, doing: str) -> GitResult:
        """Run a command that talks to a remote. Raises `Unavailable`, `ForgeRefused`, `NotFound`."""
        env = self.environment(remote)
        result = await self.run(*arguments, at=at, doing=doing, env=env, timeout_s=TRANSFER_S, check=False)
        if result.status != 0:
            raise transfer_error(doing, result.stderr + "\n" + result.text)
        return result


def transfer_error(doing: str, output: str) -> PlatformError:
    """What git said about a remote, as an error that tells whether it is worth another try."""
    text = output.lower()
    words = _last_words(cleaned(output))
    if "authentication failed" in text or "could not read username" in text or "error: 401" in text:
        return ForgeRefused(f"could not {doing}: the repository wants a token, or refuses the one it was given")
    if "error: 403" in text or "permission to" in text or "write access to repository not granted" in text:
        return ForgeRefused(f"could not {doing}: the token may not do this ({words})")
    if "error: 404" in text or "repository not found" in text or "does not appear to be a git repository" in text:
        return NotFound(f"could not {doing}: there is no such repository, or the token may not see it")
    if "error: 30" in text or "redirect" in text:
        return ForgeRefused(f"could not {doing}: the repository has moved; add it under its new address")
    if "[remote rejected]" in text or "[rejected]" in text or "hook declined" in text or "gh0" in text:
        return ForgeRefused(f"could not {doing}: the remote repository refuses it ({words})")
    return Unavailable(f"could not {doing}: {words or 'the remote does not answer'}")


def cleaned(text: str) -> str:
    """Without anything that looks like a secret."""
    return _SECRET.sub(lambda found: next(filter(None, found.groups()), "") + "[hidden]", text)


def _last_words(output: str) -> str:
    """The line that says most: the last error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(?i)(fatal|error|remote: error|! \[)", line)]
    return (telling or lines or [""])[-1][:400]


def _reaching(remote: GitRemote) -> dict[str, str]:
    if remote.is_here:
        return {"GIT_ALLOW_PROTOCOL": "file"}
    parts = urlsplit(remote.url)
    found = {"GIT_ALLOW_PROTOCOL": parts.scheme}
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        found |= {name: os.environ[name] for name in _PASSED if name in os.environ}
    if remote.authorization is not None:
        found |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{parts.scheme}://{parts.netloc}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: {remote.authorization}",
        }
    return found


async def _feed(child: Child, content: bytes | None) -> None:
    if child.stdin is None:
        return
    with contextlib.suppress(OSError):
        for start in range(0, len(content or b""), PIECE):
            child.stdin.write((content or b"")[start : start + PIECE])
            await child.stdin.drain()
        child.stdin.close()


async def _collect(reader: asyncio.StreamReader, limit: int) -> tuple[bytes, bool]:
    found = bytearray()
    while piece := await reader.read(PIECE):
        found += piece
        if len(found) > limit:
            return bytes(found[:limit]), True
    return bytes(found), False
