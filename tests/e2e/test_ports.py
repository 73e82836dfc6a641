"""Ports of sandboxes, reached from outside through the server's one port."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import websockets
from e2b import Sandbox
from tests.e2e.server import Server, until

Fresh = Callable[..., Sandbox]
WEB, WEBSOCKET, LOCAL = 8000, 8001, 8002

# Only what Python itself brings: the base template has no web framework.
SERVICE = """
import base64, hashlib, http.server, json, struct, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body, kind="application/json", status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.websocket()
        if self.path == "/events":
            return self.events()
        if self.path == "/large":
            self.send_response(200)
            self.send_header("Content-Length", str(60 << 20))
            self.end_headers()
            for n in range(60):
                self.wfile.write(bytes([n]) * (1 << 20))
            return
        self.answer(json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode())
    def do_POST(self):
        digest, size = hashlib.sha256(), 0
        for part in self.body():
            digest.update(part)
            size += len(part)
        self.answer(json.dumps({"size": size, "sha256": digest.hexdigest()}).encode())
    do_PUT = do_POST
    def body(self):
        left = self.headers.get("Content-Length")
        if left is not None:
            left = int(left)
            while left and (part := self.rfile.read(min(left, 65536))):
                left -= len(part)
                yield part
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for n in range(5):
            self.wfile.write(f"data: {n}\\n\\n".encode())
            self.wfile.flush()
            time.sleep(0.15)
        self.close_connection = True
    def websocket(self):
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        self.wfile.flush()
        self.close_connection = True
        while head := self.rfile.read(2):
            kind, size = head[0], head[1] & 127
            if size == 126: size = struct.unpack("!H", self.rfile.read(2))[0]
            elif size == 127: size = struct.unpack("!Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            data = self.rfile.read(size)
            key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
            data = (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")
            length = bytes([size]) if size < 126 else b"\\x7e" + struct.pack("!H", size) if size < 65536 else b"\\x7f" + struct.pack("!Q", size)
            self.wfile.write(bytes([kind]) + length + data)
            self.wfile.flush()
            if kind & 15 == 8: return
    def log_message(self, *args): pass

for argument in sys.argv[1:]:
    host, port = argument.split(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever).start()
"""


def serve(sandbox: Sandbox, *addresses: str) -> None:
    sandbox.files.write("/tmp/service.py", SERVICE)
    sandbox.commands.run(f"python3 /tmp/service.py {' '.join(addresses)}", background=True, timeout=0)
    ports = "".join(f"grep -q :{int(address.split(':')[1]):04X} /proc/net/tcp && " for address in addresses)
    until(lambda: sandbox.commands.run(f"{ports} echo yes || true").stdout == "yes\n", what="the service")


@pytest.fixture(scope="module")
def service(sandbox: Sandbox) -> Sandbox:
    serve(sandbox, f"0.0.0.0:{WEB}", f"127.0.0.1:{LOCAL}")
    return sandbox


@pytest.fixture
def client(server: Server, service: Sandbox) -> Iterator[httpx.Client]:
    with to_port(server, service, WEB) as client:
        yield client


def to_port(server: Server, sandbox: Sandbox, port: int, **headers: str) -> httpx.Client:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port), **headers}
    return httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=60, trust_env=False)


def test_a_port_is_reached_by_headers(client: httpx.Client) -> None:
    answer = client.get("/a/b%20c?x=1&y=%2F", headers={"X-Own": "kept"})
    assert answer.status_code == 200 and answer.json()["path"] == "/a/b%20c?x=1&y=%2F"
    assert answer.json()["headers"]["x-own"] == "kept"


def test_a_port_is_reached_by_host_name(server: Server, service: Sandbox) -> None:
    host = service.get_host(WEB)
    assert host == f"{WEB}-{service.sandbox_id}.localhost:{server.port}"
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        answer = client.get("/", headers={"Host": host})
        assert answer.status_code == 200 and answer.json()["headers"]["host"] == host


def test_a_service_on_loopback_only_is_reached_too(server: Server, service: Sandbox) -> None:
    with to_port(server, service, LOCAL) as client:
        for _ in range(3):
            assert client.get("/local").json()["path"] == "/local"
        body = random.Random(1).randbytes(3 << 20)
        assert client.post("/", content=body).json()["sha256"] == hashlib.sha256(body).hexdigest()


def test_localhost_inside_is_also_that_of_ipv6(server: Server, fresh: Fresh) -> None:
    """Servers of Node that are to listen on `localhost` listen there alone."""
    sandbox = fresh()
    sandbox.commands.run("python3 -m http.server 8003 --bind ::1", background=True, timeout=0)
    sandbox.commands.run("curl -fsS --retry 60 --retry-delay 1 --retry-connrefused http://localhost:8003/", timeout=90)
    with to_port(server, sandbox, 8003) as client:
        assert client.get("/").status_code == 200


def test_a_closed_port_is_told_from_a_missing_sandbox(server: Server, service: Sandbox) -> None:
    with to_port(server, service, 9) as client:
        answer = client.get("/")
        assert answer.status_code == 502 and "port is not open" in answer.json()["message"]
        assert answer.json()["sandboxId"] == service.sandbox_id and answer.json()["port"] == 9
        answer = client.get("/", headers={"E2b-Sandbox-Id": "i" + "0" * 19})
        assert answer.status_code == 502 and "was not found" in answer.json()["message"]
        page = client.get("/", headers={"User-Agent": "Mozilla/5.0", "Accept": "text/html"})
        assert page.status_code == 502 and page.headers["content-type"].startswith("text/html")


def test_a_port_that_opens_later_is_reached_at_once(server: Server, fresh: Fresh) -> None:
    sandbox = fresh()
    with to_port(server, sandbox, 8100) as client:
        assert client.get("/").status_code == 502
        serve(sandbox, "0.0.0.0:8100")
        assert client.get("/").status_code == 200


def test_events_arrive_as_they_happen(client: httpx.Client) -> None:
    times: list[float] = []
    with client.stream("GET", "/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        times = [time.monotonic() for line in answer.iter_lines() if line.startswith("data:")]
    assert len(times) == 5 and times[-1] - times[0] > 0.4


def test_large_bodies_pass_both_ways(client: httpx.Client) -> None:
    digest, size = hashlib.sha256(), 0
    with client.stream("GET", "/large") as answer:
        for part in answer.iter_raw():
            digest.update(part)
            size += len(part)
    assert size == 60 << 20
    block = random.Random(3).randbytes(1 << 20)
    expected = hashlib.sha256(block * 40).hexdigest()
    plain = client.post("/", content=block * 40)
    chunked = client.put("/", content=(block for _ in range(40)))
    assert plain.json() == chunked.json() == {"size": 40 << 20, "sha256": expected}


@pytest.mark.parametrize("by", ["headers", "host"])
async def test_websockets_echo(server: Server, service: Sandbox, by: str) -> None:
    headers = {"E2b-Sandbox-Id": service.sandbox_id, "E2b-Sandbox-Port": str(WEB)}
    uri = f"ws://127.0.0.1:{server.port}/ws" if by == "headers" else f"ws://{service.get_host(WEB)}/ws"
    async with websockets.connect(
        uri, additional_headers=headers if by == "headers" else None, host="127.0.0.1", port=server.port,
        max_size=None, compression=None, proxy=None,
    ) as wire:  # fmt: skip
        for message in ("hello ä", b"\x00\xff" * 10, "x" * 500_000):
            await wire.send(message)
            assert await asyncio.wait_for(wire.recv(), 20) == message


def test_private_ports_need_the_traffic_token(server: Server, fresh: Fresh) -> None:
    sandbox = fresh(network={"allow_public_traffic": False})
    serve(sandbox, "0.0.0.0:8000")
    token = sandbox.traffic_access_token
    assert token
    with to_port(server, sandbox, 8000) as client:
        assert client.get("/").status_code == 403
        assert client.get("/", headers={"E2B-Traffic-Access-Token": "wrong"}).status_code == 403
        answer = client.get("/", headers={"E2B-Traffic-Access-Token": token})
        assert answer.status_code == 200 and token not in answer.text


def test_services_see_the_host_name_they_were_given(server: Server, fresh: Fresh) -> None:
    sandbox = fresh(network={"mask_request_host": "app.example.com:${PORT}"})
    serve(sandbox, "0.0.0.0:8000")
    with to_port(server, sandbox, 8000) as client:
        assert client.get("/").json()["headers"]["host"] == "app.example.com:8000"


def test_one_sandbox_is_not_another(server: Server, service: Sandbox, fresh: Fresh) -> None:
    other = fresh()
    with to_port(server, other, WEB) as client:
        assert client.get("/").status_code == 502
    with to_port(server, other, 49983, **{"X-Access-Token": service._envd_access_token or ""}) as client:
        assert client.post("/process.Process/List", json={}).status_code == 401
