"""Generated and hand-made bad input against a live server with real sandboxes: a clear refusal, never a 5xx, never a hang."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from e2b import Sandbox
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until

from sandlot.engine.api.app import build_app
from sandlot.engine.api.deps import Deps

ENVD = 49983
# The description depends on the routes alone, not on the services behind them.
DEPS = Deps(**{**dict.fromkeys(Deps.__dataclass_fields__), "version": "0"})  # type: ignore[arg-type]
schema = schemathesis.openapi.from_dict(build_app(DEPS).openapi())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Few sandboxes at once: most creates of the generator are refused for that, after they were found valid."""
    with in_pristine(tmp_path_factory, "container", max_sandboxes="3", max_body_mb="1") as server:
        yield server


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    made = server.create(timeout=900)
    yield made
    made.kill()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


@schema.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_generated_request_breaks_the_server(case: Any, server: Server) -> None:
    address = f"http://127.0.0.1:{server.port}"
    response = case.call(base_url=address, headers={"X-API-KEY": server.key}, timeout=120)
    case.validate_response(response, checks=[not_a_server_error])


# -- the control plane ---------------------------------------------------------------------------------------------

BODIES: dict[str, bytes] = {
    "no json": b"{",
    "not an object": b"[]",
    "null": b"null",
    "a number": b"7",
    "a wrong type": b'{"templateID": 7}',
    "text for a number": b'{"templateID": "base", "timeout": "300"}',
    "a negative timeout": b'{"templateID": "base", "timeout": -1}',
    "a huge timeout": b'{"templateID": "base", "timeout": 99999999999999999999}',
    "not a number": b'{"templateID": "base", "timeout": NaN}',
    "nested metadata": b'{"templateID": "base", "metadata": {"a": {"b": "c"}}}',
    "broken UTF-8": b'{"templateID": "\xff\xfe"}',
    "a lone surrogate": b'{"templateID": "base", "metadata": {"a": "\\ud800"}}',
    "a null character": b'{"templateID": "base", "envVars": {"A": "\\u0000"}}',
    "a bad variable name": b'{"templateID": "base", "envVars": {"": "x"}}',
    "an unknown template": b'{"templateID": "nothing-like-it"}',
    "a path as template": b'{"templateID": "../../etc/passwd"}',
    "deep nesting": b'{"templateID": "base", "metadata": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "too many bytes": b'{"templateID": "base", "metadata": {"a": "' + b"x" * (2 << 20) + b'"}}',
    "a bad network": b'{"templateID": "base", "network": {"denyOut": ["not an address"]}}',
    "a bad volume": b'{"templateID": "base", "volumeMounts": [{"name": "../x", "path": "relative"}]}',
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v2/sandboxes", "/sandboxes"])
@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_refused(http: httpx.Client, path: str, name: str) -> None:
    answer = http.post(path, content=BODIES[name], headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["code"] == answer.status_code and answer.json()["message"]


@pytest.mark.parametrize(
    "sandbox_id",
    ["inothing0", "..%2f..%2fetc", "%00", "i%ff", "a" * 5000, "i'; drop table sandboxes;--", "{}", "%2e%2e"],
)
def test_an_unknown_id_is_refused_everywhere(http: httpx.Client, sandbox_id: str) -> None:
    for method, path, body in (
        ("GET", "/sandboxes/{}", None), ("DELETE", "/sandboxes/{}", None), ("POST", "/sandboxes/{}/timeout", {"timeout": 1}),
        ("POST", "/v2/sandboxes/{}/connect", {"timeout": 1}), ("GET", "/sandboxes/{}/metrics", None),
        ("GET", "/v2/sandboxes/{}/logs", None), ("PUT", "/sandboxes/{}/network", {}), ("POST", "/sandboxes/{}/refreshes", {}),
    ):  # fmt: skip
        answer = http.request(method, path.replace("{}", sandbox_id), json=body)
        assert 400 <= answer.status_code < 500, f"{method} {path}: {answer.status_code} {answer.text}"


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=x", "limit=9999999999999999999999", "nextToken=%ff%00", "nextToken=AAAA", "state=running,flying",
     "order=sideways", "startedAfter=yesterday", "metadata=%ff%fe", "metadata=" + "a%3Db%26" * 900, "template=%00"],
)  # fmt: skip
def test_a_bad_query_is_refused_or_finds_nothing(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/v2/sandboxes?{query}")
    assert answer.status_code in (200, 400, 414, 422), answer.text


# -- the sandbox's daemon, through the gateway ------------------------------------------------------------------------


@pytest.fixture
def envd(server: Server, sandbox: Sandbox) -> Iterator[httpx.Client]:
    headers = {
        "E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(ENVD),
        "X-Access-Token": sandbox._envd_access_token or "",
    }  # fmt: skip
    address = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=address, headers=headers, timeout=20, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    ["/init", "//init", "/./init", "/x/../init", "/%69nit", "/%2e/init", "/INIT", "/init/", "/init;x", "/init?x=1", "/relay",
     "/freeze", "/logs", "/..%2finit", "/%2finit", "\\init"],
)  # fmt: skip
def test_internal_routes_are_closed_however_they_are_spelled(
    server: Server, sandbox: Sandbox, envd: httpx.Client, path: str
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nE2b-Sandbox-Id: {sandbox.sandbox_id}\r\n"
        f"E2b-Sandbox-Port: {ENVD}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    status, _ = exchange(server, head.encode())
    assert 400 <= status < 500, status
    assert sandbox.commands.run("echo same").stdout == "same\n"


FRAMES: dict[str, bytes] = {
    "nothing": b"",
    "half a head": b"\0\0",
    "a head and no body": b"\0" + struct.pack("!I", 100),
    "less than promised": b"\0" + struct.pack("!I", 100) + b"{}",
    "gigabytes promised": b"\0" + struct.pack("!I", 0xFFFFFFFF) + b"{}",
    "unknown flags": b"\xff" + struct.pack("!I", 2) + b"{}",
    "compressed without saying how": b"\x01" + struct.pack("!I", 2) + b"{}",
    "no json": b"\0" + struct.pack("!I", 3) + b"{{{",
    "broken UTF-8": b"\0" + struct.pack("!I", 4) + b'"\xff\xfe"',
    "a wrong type": b"\0" + struct.pack("!I", 22) + b'{"process":7,"path":7}',
    "two messages": (b"\0" + struct.pack("!I", 2) + b"{}") * 2,
    "random bytes": bytes(range(256)) * 40,
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("kind", ["application/connect+json", "application/connect+proto"])
@pytest.mark.parametrize(
    "method", ["process.Process/Start", "process.Process/Connect", "filesystem.Filesystem/WatchDir"]
)
def test_a_bad_frame_gets_an_error_of_connect(envd: httpx.Client, name: str, kind: str, method: str) -> None:
    answer = envd.post(
        f"/{method}", content=FRAMES[name], headers={"Content-Type": kind, "Connect-Protocol-Version": "1"}
    )
    assert answer.status_code in (200, 400, 413, 415), answer.text
    if answer.status_code == 200:
        flags, size = struct.unpack("!BI", answer.content[:5])
        end = json.loads(answer.content[5 : 5 + size])
        assert flags == 2 and end["error"]["code"] not in ("internal", "unknown"), answer.content
    else:
        assert answer.json()["code"]


UNARY: dict[str, tuple[str, bytes]] = {
    "no json": ("application/json", b"{"),
    "a list": ("application/json", b"[]"),
    "a wrong type": ("application/json", b'{"path": {}}'),
    "broken UTF-8": ("application/json", b'{"path": "\xff"}'),
    "a null character": ("application/json", b'{"path": "/tmp/\\u0000"}'),
    "no proto": ("application/proto", b"\xff\xff\xff\xff"),
    "a very long path": ("application/json", b'{"path": "/' + b"a" * 100_000 + b'"}'),
    "a kind of its own": ("text/plain", b"hello"),
    "deep nesting": ("application/json", b"[" * 100_000),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_bad_call_gets_an_error_of_connect(envd: httpx.Client, name: str) -> None:
    kind, body = UNARY[name]
    answer = envd.post("/filesystem.Filesystem/Stat", content=body, headers={"Content-Type": kind})
    assert 400 <= answer.status_code < 500, f"{answer.status_code} {answer.text}"


def test_unknown_methods_and_services_are_told(envd: httpx.Client) -> None:
    for path in ("/process.Process/Fly", "/no.Service/Start", "/process.Process", "/process.Process/Start/more"):
        answer = envd.post(path, json={})
        assert 400 <= answer.status_code < 502 and answer.status_code != 500, f"{path}: {answer.status_code}"
    assert envd.get("/process.Process/List").status_code in (404, 405)


@pytest.mark.parametrize(
    "query",
    ["", "path=", "path=%00", "path=%ff%fe", "path=/proc/self/mem", "path=/dev/zero%00", "path=" + "a/" * 3000,
     "path=~nobody-here/x", "path=/etc/passwd&username=nobody-here", "path=/home/user", "path=/etc/passwd/x"],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_told(envd: httpx.Client, query: str) -> None:
    with envd.stream("GET", f"/files?{query}") as answer:
        assert 400 <= answer.status_code < 500, answer.status_code


@pytest.mark.parametrize(
    ("kind", "body"),
    [("multipart/form-data", b"x"), ("multipart/form-data; boundary=b", b"--b\r\nnonsense"),
     ("multipart/form-data; boundary=b", b"--c\r\n\r\n--c--"), ("application/octet-stream; x=\xff".encode("latin-1").decode("latin-1"), b"x"),
     ("text/html", b"x"), ("multipart/form-data; boundary=" + "b" * 5000, b"x")],
)  # fmt: skip
def test_an_upload_that_makes_no_sense_is_refused(envd: httpx.Client, kind: str, body: bytes) -> None:
    answer = envd.post("/files?path=/etc/shadow/x", content=body, headers={b"Content-Type": kind.encode("latin-1")})
    assert 400 <= answer.status_code < 500, f"{answer.status_code} {answer.text}"


# -- the wire itself -----------------------------------------------------------------------------------------------


def exchange(server: Server, request: bytes, *, half_close: bool = False, seconds: float = 60) -> tuple[int, bytes]:
    """Send raw bytes; the status of the answer (0: closed without one) and all of it. A hang is a failure."""
    with socket.create_connection(("127.0.0.1", server.port), 60) as wire:
        wire.settimeout(seconds)
        wire.sendall(request)
        if half_close:
            wire.shutdown(socket.SHUT_WR)
        answer = b""
        deadline = time.monotonic() + seconds
        while b"\r\n\r\n" not in answer or half_close:
            assert time.monotonic() < deadline
            try:
                part = wire.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            answer += part
    return (int(answer.split(None, 2)[1]) if answer.startswith(b"HTTP/") else 0), answer


RAW: dict[str, bytes] = {
    "no HTTP": b"hello\r\n\r\n",
    "no TLS, though it begins like it": b"\x16\x03\x01\x00\x20" + b"\0" * 32,
    "two lengths": b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a length and chunks": b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "bad chunks": b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a null in the path": b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "no host": b"GET /v2/sandboxes HTTP/1.1\r\nConnection: close\r\n\r\n",
    "an absolute address": b"GET http://127.0.0.1/v2/sandboxes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "another's address": b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
    "one header of two": b"GET / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: iabc\r\nConnection: close\r\n\r\n",
    "a bad port": b"GET / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: iabc\r\nE2b-Sandbox-Port: 99999\r\nConnection: close\r\n\r\n",
    "a bad id": b"GET / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: ../x\r\nE2b-Sandbox-Port: 80\r\nConnection: close\r\n\r\n",
    "a bad websocket": b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
    "a very long header": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000 + b"\r\nConnection: close\r\n\r\n",
    "very many headers": b"GET / HTTP/1.1\r\nHost: x\r\n"
    + b"".join(b"X%d: 1\r\n" % n for n in range(20_000))
    + b"Connection: close\r\n\r\n",
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_request_are_refused(server: Server, name: str) -> None:
    status, answer = exchange(server, RAW[name])
    assert status == 0 or 400 <= status < 500, answer[:500]


@pytest.mark.parametrize(
    "path", ["/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/docs/..%2f..%2fx", "/\\..\\x"]
)
def test_paths_lead_nowhere(server: Server, path: str) -> None:
    status, answer = exchange(server, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert 400 <= status < 500 and b"root:" not in answer


def test_a_half_closed_connection_is_answered_and_ended(server: Server, sandbox: Sandbox) -> None:
    status, _ = exchange(server, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", half_close=True)
    assert status in (0, 200, 204)
    part = b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    status, _ = exchange(server, part, half_close=True)
    assert status == 0 or 400 <= status < 500
    status, _ = exchange(
        server,
        f"POST /files?path=/tmp/half HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {sandbox.sandbox_id}\r\nE2b-Sandbox-Port: {ENVD}\r\n"
        f"X-Access-Token: {sandbox._envd_access_token}\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\nabc".encode(),
        half_close=True,
    )  # fmt: skip
    assert status == 0 or 400 <= status < 500
    assert not sandbox.files.exists("/tmp/half") or sandbox.files.read("/tmp/half") in ("", "abc")


def test_slow_and_silent_clients_hold_nobody_up(server: Server, sandbox: Sandbox) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(200)]
    try:
        for wire in silent[:100]:
            wire.sendall(b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert sandbox.commands.run("echo quick").stdout == "quick\n"
    finally:
        for wire in silent:
            wire.close()


def test_after_all_that_the_server_is_as_before(server: Server, http: httpx.Client, sandbox: Sandbox) -> None:
    assert http.get("/health").status_code < 300
    assert sandbox.commands.run("echo well").stdout == "well\n"
    for sandbox_id in server.running():
        if sandbox_id != sandbox.sandbox_id:
            http.delete(f"/sandboxes/{sandbox_id}")
    until(lambda: server.running() == [sandbox.sandbox_id])
    for line in server.log.splitlines():
        assert "Traceback" not in line, line
