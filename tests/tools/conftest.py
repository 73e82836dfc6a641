"""A real server of the tools as a process of its own, and a real MCP client to it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.interpreter.environments import ROOT, python_with

SOURCE = ROOT / "guest" / "tools"
LOCKS = (SOURCE / "server.lock", SOURCE / "browser.lock")


def pytest_collection_finish(session: pytest.Session) -> None:
    """The environment is made before the clock of any test runs."""
    if not session.config.option.collectonly and any(
        Path(__file__).parent in item.path.parents for item in session.items
    ):
        python()


def python() -> Path:
    return python_with(*LOCKS, name="tools")


@dataclass
class Answer:
    """What a tool said."""

    text: str
    data: Any
    is_error: bool
    images: list[bytes]


class Caller:
    """An MCP client that is connected."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[tuple[float, float | None, str | None]] = []

    async def names(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def ask(self, name: str, /, **arguments: Any) -> Answer:
        import base64

        async def note(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append((progress, total, message))

        result = await self.client.call_tool(name, arguments, progress_callback=note)
        parts = [part for part in result.content if part.type == "text"]
        images = [base64.b64decode(part.data) for part in result.content if part.type == "image"]
        text = "".join(part.text for part in parts)
        return Answer(text, result.structured_content, bool(result.is_error), images)

    async def __call__(self, name: str, /, **arguments: Any) -> str:
        """The text of an answer that must be a good one."""
        answer = await self.ask(name, **arguments)
        assert not answer.is_error, answer.text
        return answer.text

    async def data(self, name: str, /, **arguments: Any) -> Any:
        answer = await self.ask(name, **arguments)
        assert not answer.is_error, answer.text
        return answer.data

    async def failure(self, name: str, /, **arguments: Any) -> str:
        answer = await self.ask(name, **arguments)
        assert answer.is_error, answer.text
        return answer.text


@asynccontextmanager
async def connected(url: str, token: str, mode: str = "auto") -> AsyncIterator[Caller]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=90, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Caller(client)


@dataclass
class Tools:
    """The server, and what it works on."""

    port: int
    home: Path
    state: Path
    identity: Path
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False)

    def command(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`sandlot-tools` as somebody runs it in the sandbox."""
        options = ["--state", str(self.state), "--identity", str(self.identity)]
        return subprocess.run(
            [str(python()), "-m", "tools", *options, *arguments],
            cwd=SOURCE.parent,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def token(self, **variables: str) -> str:
        made = self.command("token", **variables)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    @asynccontextmanager
    async def caller(self, mode: str = "auto") -> AsyncIterator[Caller]:
        async with connected(self.url, self.token(), mode) as caller:
            yield caller


@contextmanager
def running(place: Path, **variables: str) -> Iterator[Tools]:
    home, state, identity = place / "home", place / "state", place / "id"
    home.mkdir(exist_ok=True)
    identity.write_text("isandbox1\n")
    options = ["--state", str(state), "--identity", str(identity), "serve"]
    options += ["--host", "127.0.0.1", "--port", "0", "--home", str(home)]
    process = subprocess.Popen(
        [str(python()), "-m", "tools", *options],
        cwd=SOURCE.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), f"the server said {line!r} and ended with {process.poll()}"
        yield Tools(int(line.split()[-1]), home, state, identity, process)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """One for all tests that leave nothing behind in it."""
    with running(tmp_path_factory.mktemp("tools")) as tools:
        yield tools


Another = Callable[..., Any]


@pytest.fixture
def another(tmp_path: Path) -> Another:
    """Starts a server that a test has to itself."""
    return lambda **variables: running(tmp_path, **variables)
