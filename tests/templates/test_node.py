"""The example of E2B's documentation: a Node image, packages from npm, a server that is up when a sandbox begins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
from e2b import Template, wait_for_port
from tests.e2e import leaks
from tests.e2e.server import Server
from tests.templates.conftest import Lines

from sandlot.recipes import stock

PACKAGE = {"name": "app", "version": "1.0.0", "private": True, "dependencies": {"ws": "^8.0.0"}}
SERVER = """
const http = require('node:http')
const { WebSocketServer } = require('ws')
const server = http.createServer((request, response) => response.end(`Hello from ${request.url}`))
new WebSocketServer({ server }).on('connection', (socket) =>
  socket.on('message', (data) => socket.send(`echo: ${data}`)))
server.listen(3000)
"""


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Server]:
    """A server whose builds have room for Node.js itself."""
    with in_pristine(tmp_path_factory.mktemp("roomy"), cache_dir) as server:
        yield server


@contextlib.contextmanager
def in_pristine(directory: Path, cache_dir: Path, *options: str) -> Iterator[Server]:
    settings = {"SANDLOT_CACHE_DIR": str(cache_dir), "SANDLOT_WARM_SLOTS": "2", "SANDLOT_POOL_SIZE": "0"}
    with Server(data_dir=directory / "data", settings=settings, options=("--no-hello", *options)) as server:
        yield server
    assert not leaks.owned(server.data_dir)


@pytest.mark.timeout(600)  # it fetches Node.js and packages, from wherever those come here
def test_a_node_server_is_built_from_its_image_and_answers_over_http_and_websocket(
    roomy: Server, tmp_path: Path
) -> None:
    """The first build upon `node` waits for the stock template that stands in for the image, and says so."""
    (tmp_path / "package.json").write_text(json.dumps(PACKAGE))
    (tmp_path / "server.js").write_text(SERVER)
    template = (
        Template(file_context_path=str(tmp_path))
        .from_node_image("24")
        .set_workdir("/home/user/app")
        .copy("package.json", ".")
        .npm_install()
        .copy("server.js", ".")
        .set_start_cmd("node server.js", wait_for_port(3000))
    )
    name, lines = f"node-{uuid.uuid4().hex[:8]}", Lines()
    Template.build(template, name, cpu_count=1, memory_mb=512, on_build_logs=lines, **roomy.sdk)
    assert lines.has("stock template 'node' is being built for its first use") and lines.has("'node' is ready")
    assert stock.StockNotes(roomy.data_dir).get("node") == stock.digest("node")
    sandbox = roomy.create(name)
    try:
        host = sandbox.get_host(3000)
        address = f"http://127.0.0.1:{roomy.port}/page"
        assert httpx.get(address, headers={"Host": host}, trust_env=False).text == "Hello from /page"
        assert asyncio.run(_echo(address, host)) == "echo: hi"
    finally:
        sandbox.kill()


@pytest.mark.timeout(600)
def test_a_second_data_directory_has_a_stock_template_from_the_layers_of_the_first(
    roomy: Server, tmp_path: Path, cache_dir: Path
) -> None:
    """`up --with` says ready when it is there; a build that is asked for again is followed, and comes from the cache."""
    assert "node is ready" in roomy.cli("template", "build", "--stock", "node", timeout=500).stderr
    layers = set((cache_dir / "layers").iterdir())
    with in_pristine(tmp_path, cache_dir, "--with", "node") as second:
        assert stock.StockNotes(second.data_dir).get("node") == stock.digest("node")
        assert set((cache_dir / "layers").iterdir()) == layers
        again = second.cli("template", "build", "--stock", "node")
        assert "] CACHED RUN" in again.stderr and "smoke commands passed" in again.stderr
        unknown = second.cli("template", "build", "--stock", "no-such", check=False)
        assert unknown.returncode == 1 and "there are: agent, " in unknown.stderr and ", node, " in unknown.stderr
        with second.http() as client:
            rows = {row["name"]: row["state"] for row in client.get("/stock-templates").json()}
        assert rows["node"] == "ready" and rows["agent"] == "absent"
        sandbox = second.create("node")
        assert sandbox.commands.run("node -p 6*7").stdout == "42\n"
        sandbox.kill()


async def _echo(address: str, host: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, headers={"Host": host}) as socket,
    ):
        await socket.send_str("hi")
        return await socket.receive_str(timeout=30)
