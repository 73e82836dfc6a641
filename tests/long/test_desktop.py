"""The desktop template in both runtimes: every method of the released SDKs, windows over pauses and forks, the MCP tools, recordings."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import websockets
from e2b import Sandbox
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from tests.agents.packages import kept
from tests.compat.clients import install_node, install_python
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, clean_environment, until
from tests.tools.conftest import Caller

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
HERE = Path(__file__).parent / "desktop"
TEMPLATE, BUILD_S, SCENARIO_S = "desktop", 3000, 1500
PYTHON, NODE = "e2b-desktop==2.7.2", "@e2b/desktop@2.4.0"
Make = Callable[..., Sandbox]


@pytest.fixture(scope="module", params=["container", "gvisor"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, str(request.param)) as server:
        server.cli("template", "build", "--stock", TEMPLATE, timeout=BUILD_S)
        yield server


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    made: list[Sandbox] = []

    def make() -> Sandbox:
        made.append(server.create(TEMPLATE, envs={"DISPLAY": ":0"}))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.kill()


def run(sandbox: Sandbox, command: str) -> str:
    return str(sandbox.commands.run(command, timeout=120).stdout)


def titles(sandbox: Sandbox) -> str:
    return run(sandbox, "wmctrl -l || wmctrl -l")  # a window may close while it is looked at


def with_a_note(sandbox: Sandbox) -> Sandbox:
    sandbox.files.write("/home/user/plan.txt", "first\n")
    sandbox.commands.run("mousepad /home/user/plan.txt", background=True, timeout=0)
    until(lambda: "plan.txt" in titles(sandbox), what="the editor's window")
    return sandbox


def outcomes(server: Server, argv: list[str], home: Path) -> dict[str, Any]:
    environment = {**clean_environment(), **server.env}
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, text=True, timeout=SCENARIO_S)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["method"]: line for line in lines}


def test_every_method_of_the_python_sdk_works(server: Server) -> None:
    def install(home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install_python(home / "bin" / "python", PYTHON)

    home = kept(f"desktop-{PYTHON}", install)
    found = outcomes(server, [str(home / "bin" / "python"), str(HERE / "every_method.py")], home)
    assert "every method" in found and not [line for line in found.values() if not line["ok"]]


def test_every_method_of_the_javascript_sdk_works(server: Server) -> None:
    home = kept(f"desktop-{NODE.replace('/', '-')}", lambda home: install_node(home, NODE))
    script = home / "every_method.mjs"  # packages are looked for beside it
    script.write_text((HERE / "every_method.mjs").read_text())
    found = outcomes(server, ["node", str(script)], home)
    assert "every method" in found and not [line for line in found.values() if not line["ok"]]


def test_a_pause_keeps_windows_and_what_is_typed_into_them(server: Server, make: Make) -> None:
    sandbox = with_a_note(make())
    run(
        sandbox,
        "xdotool search --onlyvisible --class mousepad windowactivate --sync; xdotool type --delay 20 'not saved yet '",
    )
    until(lambda: "*" in titles(sandbox), what="the mark of an unsaved file")
    before = run(sandbox, "pgrep -x Xvfb; pgrep -x mousepad")
    sandbox.pause()
    sandbox.connect()
    assert run(sandbox, "pgrep -x Xvfb; pgrep -x mousepad") == before and "plan.txt" in titles(sandbox)
    run(sandbox, "xdotool search --onlyvisible --class mousepad windowactivate --sync; xdotool key ctrl+s")
    until(lambda: "not saved yet" in sandbox.files.read("/home/user/plan.txt"), what="the saved file")
    assert run(sandbox, "scrot --pointer /tmp/a.png && file /tmp/a.png").count("1024 x 768") == 1


def test_a_fork_has_windows_of_its_own(server: Server, make: Make) -> None:
    if server.settings.get("SANDLOT_RUNTIME") == "container":
        pytest.skip("a fork of a container has its files alone")
    sandbox = with_a_note(make())
    snapshot = sandbox.create_snapshot()
    fork = server.create(snapshot.snapshot_id, envs={"DISPLAY": ":0"})
    try:
        assert "plan.txt" in titles(fork)
        run(fork, "pkill -x mousepad; true")
        until(lambda: "plan.txt" not in titles(fork), what="the end of the fork's window")
        assert "plan.txt" in titles(sandbox)
    finally:
        fork.kill()


def test_the_screen_is_recorded(server: Server, make: Make) -> None:
    sandbox = make()
    for name, kind in (("a.mp4", "h264"), ("b.webm", "vp8")):
        assert name in run(sandbox, f"record-screen start /home/user/{name} 10")
        assert "under way" in run(sandbox, "record-screen start /home/user/other.mp4 2>&1 || true")
        run(sandbox, "for x in 100 200 300 400; do xdotool mousemove $x $x; sleep 0.5; done")
        assert run(sandbox, "record-screen stop").strip() == f"/home/user/{name}"
        shown = run(
            sandbox,
            f"ffprobe -v error -show_entries stream=codec_name,width,height:format=duration -of json {name}",
        )
        told = json.loads(shown)
        assert told["streams"][0] == {"codec_name": kind, "width": 1024, "height": 768}
        assert float(told["format"]["duration"]) > 1
    assert "must end with" in run(sandbox, "record-screen start /tmp/x.gif 2>&1 || true")
    assert "not recording" in run(sandbox, "record-screen status")


def test_the_clipboard_is_shared_with_programs(server: Server, make: Make) -> None:
    sandbox = make()
    run(sandbox, "echo -n 'Grüße' | timeout 20 xclip -selection clipboard -i >/dev/null 2>&1")
    assert run(sandbox, "timeout 20 xclip -selection clipboard -o") == "Grüße"


@asynccontextmanager
async def tools_of(server: Server, sandbox: Sandbox) -> AsyncIterator[Caller]:
    token = run(sandbox, "sandlot-tools token").strip()
    headers = {"Authorization": f"Bearer {token}", "Host": sandbox.get_host(6060)}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=90, trust_env=False) as http,
        McpClient(streamable_http_client(f"http://127.0.0.1:{server.port}/mcp", http_client=http)) as client,
    ):
        yield Caller(client)


async def test_an_agent_sees_clicks_and_types_with_the_tools(server: Server, make: Make) -> None:
    sandbox = make()
    async with tools_of(server, sandbox) as call:
        assert {"desktop_screenshot", "desktop_click", "desktop_record"} <= await call.names()
        picture = (await call.ask("desktop_screenshot")).images[0]
        assert picture.startswith(b"\x89PNG") and int.from_bytes(picture[16:20]) == 1024
        sandbox.files.write("/home/user/tools.txt", "")
        await call("desktop_open", target="tools.txt")
        until(lambda: "tools.txt" in titles(sandbox), what="the editor's window")
        window = next(line for line in (await call("desktop_windows")).splitlines() if "tools.txt" in line)
        number, _, place, _, size = window.split()[:5]
        await call("desktop_windows", action="activate", window=number)
        x, y = (int(at) + int(by) // 2 for at, by in zip(place.split(","), size.split("x"), strict=True))
        await call("desktop_click", x=x, y=y)
        await call("desktop_type", text="Grüße\nfrom an agent")
        await call("desktop_key", key="ctrl+s")
        until(lambda: sandbox.files.read("/home/user/tools.txt").strip() == "Grüße\nfrom an agent", what="the text")
        await call("desktop_scroll", x=x, y=y, direction="down")
        await call("desktop_drag", x=x, y=y, to_x=x + 30, to_y=y)
        assert "recording" in await call("desktop_record", action="start", file="seen.mp4")
        assert (await call("desktop_record", action="stop")).endswith("seen.mp4")
        assert "not on the screen" in await call.failure("desktop_click", x=5000, y=5)
        assert "is no key" in await call.failure("desktop_key", key="--window 1")
        await call("desktop_windows", action="close", window=number)
        until(lambda: "tools.txt" not in titles(sandbox), what="the end of the window")


async def looked(server: Server, sandbox: Sandbox, token: str) -> list[int]:
    """The greeting of the VNC server behind the tools' WebSocket: its kinds of security."""
    headers = {
        "Authorization": f"Bearer {token}",
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "6060",
    }
    address = f"ws://127.0.0.1:{server.port}/screen"
    async with websockets.connect(address, additional_headers=headers, proxy=None) as socket:
        data = await socket.recv()
        assert isinstance(data, bytes) and data.startswith(b"RFB 003.")
        await socket.send(b"RFB 003.008\n")
        kinds = b""
        while len(kinds) < 2:
            kinds += bytes(await socket.recv())  # type: ignore[arg-type]
        return list(kinds[1:])


async def test_a_viewer_is_let_in_once(server: Server, make: Make) -> None:
    sandbox, token = make(), secrets.token_urlsafe(32)
    run(sandbox, f"sandlot-tools admit-viewer {hashlib.sha256(token.encode()).hexdigest()}")
    assert await looked(server, sandbox, token) == [1]
    with pytest.raises(websockets.InvalidStatus):
        await looked(server, sandbox, token)
    with pytest.raises(websockets.InvalidStatus):
        await looked(server, sandbox, secrets.token_urlsafe(32))
    assert run(sandbox, "pgrep -x x11vnc || echo none") == "none\n", "the stream of the SDKs does not find it"
    assert "64 hexadecimal" in run(sandbox, "sandlot-tools admit-viewer nonsense 2>&1 || true")
