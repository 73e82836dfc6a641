"""Browsers as a service, in both runtimes: released clients of Browserbase, Playwright, Puppeteer and Selenium against a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.agents.packages import kept
from tests.compat.clients import install_node, install_python
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, clean_environment, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
HERE = Path(__file__).parent / "browser_clients"
PYTHON = ("browserbase==1.22.0", "playwright==1.65.0", "selenium", "e2b")
NODE = ("@browserbasehq/sdk@2.21.0", "playwright-core@1.65.0", "puppeteer-core", "selenium-webdriver")
BUILD_S, SCENARIO_S = 900, 900
SCENARIOS = (
    "basic",
    "keep_alive",
    "contexts",
    "files",
    "limits",
    "proxies",
    "extensions",
    "live",
    "films",
    "selenium",
    "alone",
    "many",
    "churn",
)


@pytest.fixture(scope="module", params=["container", "gvisor"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """When it is down, nothing of all these browsers may be left on the host."""
    with in_pristine(tmp_path_factory, str(request.param)) as server:
        server.cli("template", "build", "--stock", "chromium", timeout=BUILD_S)
        yield server


@pytest.fixture(scope="module")
def python() -> Path:
    def install(home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install_python(home / "bin" / "python", *PYTHON)

    return kept("browsers-python-1", install) / "bin" / "python"


@pytest.fixture(scope="module")
def node() -> Path:
    return kept("browsers-node-1", lambda home: install_node(home, *NODE))


def run(server: Server, argv: list[str], cwd: Path) -> None:
    address = f"http://127.0.0.1:{server.port}"
    environment = {
        **clean_environment(),
        "BROWSERBASE_API_KEY": server.key,
        "BROWSERBASE_BASE_URL": f"{address}/browserbase",
        "E2B_API_KEY": server.key,
        "E2B_API_URL": address,
        "CHROMIUM": shutil.which("chromium") or "chromium",
    }
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SCENARIO_S)
    assert done.returncode == 0 and done.stdout.strip().endswith("well"), (
        f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )


def browsers(server: Server) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}/browserbase/v1",
        headers={"X-BB-API-Key": server.key},
        timeout=120,
        trust_env=False,
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_released_python_clients_work(server: Server, python: Path, scenario: str) -> None:
    run(server, [str(python), "scenario.py", scenario], HERE)


@pytest.mark.parametrize("scenario", ["playwright", "puppeteer", "selenium"])
def test_the_released_javascript_clients_work(server: Server, node: Path, scenario: str) -> None:
    run(server, ["node", str(HERE / "scenario.mjs"), scenario], node)


def test_a_killed_server_leaves_browsers_usable_or_ended_with_a_reason(server: Server, python: Path) -> None:
    with browsers(server) as client:
        kept_one = client.post("/sessions", json={"keepAlive": True}).json()
        lost = client.post("/sessions", json={"keepAlive": True}).json()
        server.kill_9()
        server.up()
        with server.http() as engine:
            rows = engine.get("/v2/sandboxes").json()
            sandbox = next(row["sandboxID"] for row in rows if row["metadata"].get("sandlot-session") == lost["id"])
            engine.delete(f"/sandboxes/{sandbox}").raise_for_status()
        connect = (
            "import sys; from playwright.sync_api import sync_playwright as p\n"
            "with p() as q: print(q.chromium.connect_over_cdp(sys.argv[1]).contexts[0].pages[0].url); print('well')"
        )
        run(server, [str(python), "-c", connect, kept_one["connectUrl"]], HERE)
        until(lambda: client.get(f"/sessions/{lost['id']}").json()["status"] == "ERROR", 90)
        assert "no more" in client.get(f"/sessions/{lost['id']}").json()["problem"]
        ended = client.post(f"/sessions/{kept_one['id']}", json={"status": "REQUEST_RELEASE"}).json()
        assert ended["status"] == "COMPLETED"


def test_a_browser_ends_when_its_time_is_over(server: Server) -> None:
    with browsers(server) as client:
        made = client.post("/sessions", json={"keepAlive": True, "timeout": 60}).json()
        began = time.monotonic()
        until(lambda: client.get(f"/sessions/{made['id']}").json()["status"] == "TIMED_OUT", 120)
        assert time.monotonic() - began > 50, "it ended before its time"
        assert client.get(f"/sessions/{made['id']}").json()["problem"] == "its time was over"


def test_the_debugging_port_is_not_public(server: Server) -> None:
    with browsers(server) as client:
        made = client.post("/sessions", json={"keepAlive": True}).json()
        with server.http() as engine:
            rows = engine.get("/v2/sandboxes").json()
            sandbox = next(row["sandboxID"] for row in rows if row["metadata"].get("sandlot-session") == made["id"])
        route = {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "9222"}
        answer = httpx.get(f"http://127.0.0.1:{server.port}/json/version", headers=route, trust_env=False)
        assert answer.status_code in (401, 403), answer.text
        assert "webSocketDebuggerUrl" not in json.dumps(answer.text)
        client.post(f"/sessions/{made['id']}", json={"status": "REQUEST_RELEASE"}).raise_for_status()
