"""The tools in real sandboxes of a template that has them and little else: built, saved with the server running, forked, paused."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest
from e2b import Sandbox, Template
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from tests.agents import packages
from tests.agents.running import Laptop
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.models.script import script
from tests.models.server import ScriptedModel
from tests.templates.conftest import cache_dir  # noqa: F401 - a fixture
from tests.tools.conftest import SOURCE, Caller

from sandlot.client import Client

pytestmark = pytest.mark.timeout(600)  # the first test's clock runs while the template is built
NAME, INSIDE = "tools-only", "/opt/sandlot-tools"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Server]:  # noqa: F811
    with in_pristine(tmp_path_factory, "gvisor", cache_dir=str(cache_dir)) as server:
        context = tmp_path_factory.mktemp("context")
        shutil.copytree(SOURCE, context / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        template = (
            Template(file_context_path=str(context))
            .from_base_image()
            .set_user("root")
            .copy(["tools/install.sh", "tools/installer.lock", "tools/server.lock"], f"{INSIDE}/locks/")
            .run_cmd(f"sh {INSIDE}/locks/install.sh libraries {INSIDE}/locks server.lock")
            .copy("tools", f"{INSIDE}/tools")
            .run_cmd(f"sh {INSIDE}/tools/install.sh server")
            .set_user("user")
            .set_workdir("/home/user")
            .set_start_cmd(f"{INSIDE}/tools/start.sh", "curl -fsS -o /dev/null http://localhost:6060/health")
        )
        Template.build(template, NAME, cpu_count=1, memory_mb=512, **server.sdk)
        yield server


@pytest.fixture
def sandboxes() -> Iterator[list[Sandbox]]:
    made: list[Sandbox] = []
    yield made
    for sandbox in made:
        sandbox.kill()


@asynccontextmanager
async def connected(server: Server, host: str, token: str) -> AsyncIterator[Caller]:
    """By the sandbox's name, whether or not this machine can look it up."""
    headers = {"Authorization": f"Bearer {token}", "Host": host}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=90, trust_env=False) as http,
        McpClient(streamable_http_client(f"http://127.0.0.1:{server.port}/mcp", http_client=http)) as client,
    ):
        yield Caller(client)


def refusal(server: Server, sandbox: Sandbox, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}", "Host": sandbox.get_host(6060)}
    address = f"http://127.0.0.1:{server.port}/mcp"
    answer = httpx.post(address, json={}, headers=headers, timeout=60, trust_env=False)
    assert answer.status_code == 401, answer.text
    return str(answer.json()["error"])


def token_of(sandbox: Sandbox) -> str:
    return sandbox.commands.run("sandlot-tools token").stdout.strip()


async def test_tools_are_up_when_a_sandbox_is_and_each_wants_a_token_of_its_own(
    server: Server, sandboxes: list[Sandbox]
) -> None:
    for name in ("one", "two"):
        sandboxes.append(server.create(NAME, timeout=600, envs={"NAME": name}))
    one, two = sandboxes
    assert "admitted no token yet" in refusal(server, one, "guess")
    tokens = [token_of(sandbox) for sandbox in sandboxes]
    assert "not a token of this sandbox" in refusal(server, two, tokens[0])
    async with connected(server, one.get_host(6060), tokens[0]) as call:
        assert (await call.data("run_command", command="whoami; echo $NAME; pwd"))[
            "stdout"
        ] == "user\none\n/home/user\n"
        await call("write_file", path="made/by.txt", content="a tool")
        assert one.files.read("/home/user/made/by.txt") == "a tool"
        assert await call("expose_port", port=8000) == f"http://{one.get_host(8000)}"
        session = (await call.data("shell_start", command="python3 -m http.server 8000", wait=30))["session"]
        assert [entry["port"] for entry in (await call.data("list_ports"))["ports"]] == [8000]
        (child,) = one.fork(count=1, timeout=600)
        sandboxes.append(child)
        assert "admitted no token yet" in refusal(server, child, tokens[0]), "a fork has its parent's files"
        one.pause()
        one.connect(timeout=600)
        assert (await call.data("shell_view", session=session))["running"] is True, "the same client, the same session"
    async with connected(server, child.get_host(6060), token_of(child)) as call:
        assert "a tool" in await call("read_file", path="made/by.txt")
        assert (await call.data("shell_view", session=session))["running"] is True


async def test_the_platform_hands_out_the_way_to_the_tools(server: Server) -> None:
    async with Client(f"http://127.0.0.1:{server.port}", server.key) as client:
        sandbox = await client.create(user_id="ada", template_id=NAME, envs={"KEY": "for the agent"})
        plain = await client.create(user_id="ada", template_id="base")
        try:
            tools = await sandbox.tools()
            assert urlsplit(tools.url).path == "/mcp"
            async with connected(server, urlsplit(tools.url).netloc, tools.token) as call:
                assert (await call.data("run_command", command="echo $KEY"))["stdout"] == "for the agent\n"
                assert await call("expose_port", port=80) == await sandbox.expose_port(80)
            with pytest.raises(Exception, match="template 'base' has none"):
                await plain.tools()
        finally:
            await sandbox.delete()
            await plain.delete()


def test_claude_code_elsewhere_works_with_them(server: Server, sandboxes: list[Sandbox], tmp_path: Path) -> None:
    sandboxes.append(server.create(NAME, timeout=600, envs={"COUNT": "11"}))
    (sandbox,) = sandboxes
    names = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "6060"}  # where *.localhost does not resolve
    headers = {"Authorization": f"Bearer {token_of(sandbox)}", **names}
    program = "import sys\nprint(sum(n * n for n in range(int(sys.argv[1]))))\n"
    edit = {"path": "squares/sum.py", "old": "print(sum(", "new": "print('total', sum("}
    plan = script(
        {"calls": [{"tool": "write_file", "input": {"path": "squares/sum.py", "content": program}}]},
        {"calls": [{"tool": "edit_file", "input": edit}]},
        {"calls": [{"tool": "grep", "input": {"pattern": "total", "path": "squares"}}]},
        {"expect": "sum.py", "calls": [{"tool": "run_command", "input": {"command": "python3 squares/sum.py $COUNT"}}]},
        {"expect": "total 385", "capture": {"sum": r"total (\d+)"}, "say": "The sum is ${sum}."},
    )
    address = {"type": "http", "url": f"http://127.0.0.1:{server.port}/mcp", "headers": headers}
    with ScriptedModel(plan) as model:
        report = Laptop(packages.claude(), tmp_path).run(model, "Sum the first squares.", {"inside": address})
    assert (model.problems, report.servers) == ([], {"inside": "connected"})
    assert report.result == "The sum is 385."
    assert [result.text for result in model.results if result.failed] == []
    assert "print('total'" in sandbox.files.read("squares/sum.py"), "it was this sandbox that it worked in"
