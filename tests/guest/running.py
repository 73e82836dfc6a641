"""Starts a real envd as a subprocess, with its own users and directories, and talks to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2b.connection_config import ConnectionConfig
from packaging.version import Version

GUEST = Path(__file__).parents[2] / "guest"
TOKEN = "secret-of-the-sandbox"


@dataclass(frozen=True)
class Envd:
    """Where a started envd listens, and what it was told."""

    port: int
    pid: int
    token: str
    home: Path
    run_dir: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def init(self, **body: object) -> int:
        return self.request("POST", "/init", json.dumps(body).encode())[0]

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """A plain HTTP request with the access token, unless the headers say otherwise."""
        given = {"X-Access-Token": self.token, **(headers or {})}
        request = urllib.request.Request(self.url + path, body, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()

    def raw(self, data: bytes, *, half_close: bool = False, timeout_s: float = 60) -> bytes:
        """Everything the server answers to these bytes, until it closes or (for keep-alive) goes quiet."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as client:
            client.sendall(data)
            if half_close:
                client.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while piece := client.recv(65536):
                    answer += piece
                    client.settimeout(1.5)
            except (TimeoutError, ConnectionResetError):
                pass
            return answer

    def options(self) -> dict[str, object]:
        headers = {"E2b-Sandbox-Id": "itest", "E2b-Sandbox-Port": "49983", "X-Access-Token": self.token}
        return {
            "sandbox_id": "itest",
            "sandbox_domain": None,
            "envd_version": Version("0.7.0"),
            "envd_access_token": self.token,
            "traffic_access_token": None,
            "connection_config": ConnectionConfig(
                sandbox_url=self.url, api_key="e2b_" + "0" * 40, extra_sandbox_headers=headers
            ),
        }


def start_envd(directory: Path, argv: list[str] | None = None) -> tuple[subprocess.Popen[bytes], Envd]:
    etc, home, run_dir = directory / "etc", directory / "home", directory / "run"
    for made in (etc, home):
        made.mkdir()
    directory.chmod(0o755)  # commands run as another user
    if os.getuid() == 0:
        os.chown(home, 1000, 1000)
    uid, gid = (1000, 1000) if os.getuid() == 0 else (os.getuid(), os.getgid())
    (etc / "passwd").write_text(f"root:x:0:0:root:/root:/bin/bash\nbroken line\nuser:x:{uid}:{gid}::{home}:/bin/bash\n")
    (etc / "group").write_text(f"root:x:0:\nuser:x:{gid}:\ncrew:x:4321:other,user\n")
    argv = argv or [sys.executable, "-S", "-B", "-m", "envd"]
    process = subprocess.Popen(
        [*argv, "--host", "127.0.0.1", "--port", "0", "--etc", str(etc), "--run", str(run_dir)],
        env={"PYTHONPATH": str(GUEST), "PATH": "/usr/bin:/bin", "LEAK": "must not reach commands"},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert "listens on" in line, line
    port = int(line.rsplit(":", 1)[1])
    envd = Envd(port, process.pid, TOKEN, home, run_dir)
    first = Envd(port, process.pid, "", home, run_dir)
    status = first.init(
        accessToken=TOKEN, defaultUser="user", sandboxId="itest", templateId="base", envVars={"GIVEN": "1"}
    )
    assert status == 204
    return process, envd


def eventually(check: Callable[[], object], timeout_s: float = 60) -> object:
    """Poll until `check()` is true; fail after the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
