"""The platform started alone from the command line, against a provider elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.server import Server, clean_environment, free_port, until

from sandlot.client import Client, ClientError

CONFIGURATION = """
[providers.other]
kind = "url"
api_url = "http://127.0.0.1:{port}"
sandbox_url = "http://127.0.0.1:{port}"
domain = "localhost:{port}"
key_env = "KEY_OF_THE_OTHER"

[providers.wrong]
kind = "url"
api_url = "http://127.0.0.1:{port}"
key_file = "{wrong}"
"""


class Alone:
    def __init__(self, place: Path, engine: Server) -> None:
        self.place, self.port = place, free_port()
        (place / "wrong").write_text("e2b_wrong")
        (place / "sandlot.toml").write_text(CONFIGURATION.format(port=engine.port, wrong=place / "wrong"))
        self.environment = {
            **clean_environment(),
            "SANDLOT_DATA_DIR": str(place),
            "SANDLOT_PORT": str(self.port),
            "KEY_OF_THE_OTHER": engine.key,
            "E2B_API_URL": "http://127.0.0.1:9",  # what a shell may still hold must not count
            "E2B_SANDBOX_URL": "http://127.0.0.1:9",
        }

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "sandlot", "platform", *arguments]

    def key(self, user: str) -> str:
        argv = self.argv("key", "create", "--user", user)
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=True).stdout.strip()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/platform/health", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def alone(tmp_path: Path, engine: Server) -> Iterator[Alone]:
    made = Alone(tmp_path, engine)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(made.argv("serve"), env=made.environment, stdout=log, stderr=log)
    try:
        until(made.answers, what="the platform's start")
        yield made
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)


async def test_it_serves_users_with_sandboxes_from_elsewhere(alone: Alone, engine: Server) -> None:
    async with Client(alone.url, alone.key("ada")) as client:
        sandbox = await client.create(session_id="far")
        assert (await sandbox.run("echo from afar")).stdout == "from afar\n"
        assert len(engine.running()) >= 1
        await sandbox.delete()
        with pytest.raises(ClientError, match="refuses this platform's key") as refused:
            await client.create(provider="wrong")
        assert refused.value.code == 502
    assert engine.key not in (alone.place / "log").read_text()
