"""Third-party clients of E2B, unmodified and in environments of their own, pointed at a server by `./sandlot env` alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.packages import kept
from tests.compat.clients import install_node, install_python
from tests.e2e.conftest import new_server
from tests.e2e.server import Server, clean_environment

HERE = Path(__file__).parent
CLIENTS = tomllib.loads((HERE / "clients.toml").read_text())
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory, "gvisor", "--with", "interpreter")
    server.cli("up", "--detach", *server.options, timeout=1500)
    yield server
    server.down()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_others_computes_the_answer_in_a_sandbox(server: Server, name: str, tmp_path: Path) -> None:
    wanted = CLIENTS[name]

    def install(home: Path) -> None:
        if "python" in wanted:
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            install_python(home / "bin" / "python", *wanted["python"])
        else:
            install_node(home, *wanted["npm"])

    home = kept(f"client-{name}-{hashlib.sha256(str(wanted).encode()).hexdigest()[:8]}", install)
    script = tmp_path / f"{name}_client.py"  # under a name that is no package's
    if "python" in wanted:
        script.write_text((HERE / f"{name}.py").read_text())
        argv = [str(home / "bin" / "python"), str(script)]
    else:
        argv = ["node", str(HERE / f"{name}.mjs")]
    environment = {**clean_environment(), **server.env, **QUIET}
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    answers = [line for line in done.stdout.splitlines() if "42" in line]
    assert done.returncode == 0 and answers, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
