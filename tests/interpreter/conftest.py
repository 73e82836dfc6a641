"""A real interpreter server with real kernels, and an envd that knows nothing but variables."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from tests.interpreter.cells import Cells
from tests.interpreter.environments import KERNEL_LOCK, ROOT, SERVER_LOCK, python_with

TOKEN = "the-token-of-the-sandbox"
SANDBOX_VARIABLES = {"FROM_SANDBOX": 'it\'s "quoted" $HOME\nand broken', "PLAIN": "sandbox"}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Environments are made before the clock of any test runs."""
    if not session.config.option.collectonly and any(
        Path(__file__).parent in item.path.parents for item in session.items
    ):
        python_with(SERVER_LOCK)
        python_with(KERNEL_LOCK)


class Envd(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.path == "/envs" and self.headers.get("X-Access-Token") == TOKEN
        body = json.dumps(SANDBOX_VARIABLES).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session")
def envd() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Envd) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@dataclass
class Interpreter(Cells):
    process: subprocess.Popen[str]
    workdir: Path


@contextlib.contextmanager
def running(envd: str, workdir: Path, boot: str = "python") -> Iterator[Interpreter]:
    server = [str(python_with(SERVER_LOCK)), "-m", "interpreter", "--host", "127.0.0.1", "--port", "0"]
    options = ["--workdir", str(workdir), "--state", str(workdir / ".state"), "--envd", envd, "--boot", boot]
    environment = {"PATH": os.environ["PATH"], "HOME": str(workdir), "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        [*server, *options, "--python", str(python_with(KERNEL_LOCK))],
        cwd=ROOT / "guest",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # comes when the kernels are up
        assert line.startswith("listening on "), f"the server said {line!r} and ended with {process.poll()}"
        url, headers = f"http://127.0.0.1:{line.split()[-1]}", {"X-Access-Token": TOKEN}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            yield Interpreter(client, process, workdir)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ends(pid: int) -> None:
    """Wait until the process is gone, or is nothing but a status that nobody has asked for."""
    deadline = time.monotonic() + 60
    while not _is_gone(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"
        time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="session")
def interpreter(envd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    with running(envd, tmp_path_factory.mktemp("interpreter")) as interpreter:
        yield interpreter


@pytest.fixture
def context(interpreter: Interpreter) -> Iterator[str]:
    """A Python context that a test has to itself."""
    made = interpreter.context()
    yield made
    interpreter.client.delete(f"/contexts/{made}")


@pytest.fixture
def another(envd: str, tmp_path: Path) -> Callable[[], contextlib.AbstractContextManager[Interpreter]]:
    """Starts a server that a test has to itself."""
    return lambda: running(envd, tmp_path)
