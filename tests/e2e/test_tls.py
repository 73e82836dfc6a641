"""A server with a domain: TLS by its own authority, one host name per sandbox port, clients that trust it by `env`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, clean_environment

DOMAIN = "sandlot.localhost"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, "container", "--domain", DOMAIN) as server:
        yield server


def python(server: Server, code: str) -> str:
    """Run a program with nothing but what `./sandlot env` says."""
    environment = {**clean_environment(), **server.env}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_env_tells_what_clients_need(server: Server) -> None:
    env = server.env
    assert env["E2B_API_URL"] == f"https://{DOMAIN}:{server.port}" and env["E2B_DOMAIN"] == f"{DOMAIN}:{server.port}"
    assert "E2B_SANDBOX_URL" not in env
    assert env["SSL_CERT_FILE"] == env["REQUESTS_CA_BUNDLE"] == env["NODE_EXTRA_CA_CERTS"]


def test_the_sdk_works_over_tls(server: Server) -> None:
    code = """
import asyncio
from e2b import AsyncSandbox, Sandbox
s = Sandbox.create(timeout=60)
assert s.is_running()
s.files.write("x", "content")
assert s.files.read("x") == "content"
print(s.commands.run("cat x").stdout)
async def main():
    box = await AsyncSandbox.connect(s.sandbox_id)
    print((await box.commands.run("echo async")).stdout)
asyncio.run(main())
print(s.kill())
"""
    assert python(server, code).split() == ["content", "async", "True"]


FETCH = {
    "httpx": "import httpx; print(httpx.get(url).text)",
    "urllib": "import urllib.request; print(urllib.request.urlopen(url).read().decode())",
    "requests": "import requests; print(requests.get(url).text)",
}


@pytest.mark.parametrize("client", FETCH)
def test_a_port_has_an_https_address_of_its_own(server: Server, client: str) -> None:
    code = f"""
import time
from e2b import Sandbox
s = Sandbox.create(timeout=60)
try:
    s.files.write("/tmp/site/index.html", "hello from inside")
    s.commands.run("cd /tmp/site && python3 -m http.server 8000", background=True, timeout=0)
    for _ in range(100):
        if s.commands.run("grep -c :1F40 /proc/net/tcp || true").stdout.strip() != "0": break
        time.sleep(0.05)
    url = f"https://{{s.get_host(8000)}}/"
    {FETCH[client]}
    url = s.download_url("/tmp/site/index.html")
    {FETCH[client]}
finally:
    s.kill()
"""
    assert python(server, code).splitlines() == ["hello from inside", "hello from inside"]


def test_without_the_authority_nobody_is_trusted(server: Server) -> None:
    code = f"""
import httpx
try:
    httpx.get("https://{DOMAIN}:{server.port}/health")
except httpx.ConnectError as error:
    print("refused" if "CERTIFICATE_VERIFY_FAILED" in str(error) else error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True, timeout=30
    )
    assert done.stdout.strip() == "refused", done.stderr


def test_the_command_line_works_over_tls(server: Server) -> None:
    assert server.cli("run", "--", "echo", "over tls").stdout == "over tls\n"
    assert json.loads(server.cli("status", "--json").stdout)["healthy"] is True
