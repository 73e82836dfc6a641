"""The outside world of the network tests: a namespace with web servers, TLS and DNS, and ways to act inside a slot.

Nothing here leaves the machine: every address that a test dials belongs to a namespace that the tests made.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandlot.engine.core.model import Slot
from sandlot.engine.node.network import dnswire

T = TypeVar("T")
NAME, LINK = "sl-testworld", "sl-world"
HOST = "198.51.100.1"  # the host's address towards the world
WEB, OTHER, FAR, DNS = "198.51.100.10", "198.51.100.20", "198.51.100.200", "198.51.100.53"
LAN = "10.199.0.10"  # a private address beyond the host
TWICE = b"answer again a little later"
METADATA = "169.254.169.254"
ZONE = {
    "www.example.com": [WEB],
    "example.com": [WEB],
    "api.example.com": [OTHER],
    "inside.example.com": [LAN],
    "host.example.com": [HOST],
    "loop.example.com": ["127.0.0.1"],
    "elsewhere.test": [OTHER],
}
CERTIFIED = ("www.example.com", "example.com", "api.example.com")  # what the world's certificate is good for
_libc = ctypes.CDLL(None, use_errno=True)


def inside(namespace: Path | str, act: Callable[[], T]) -> Future[T]:
    """Run something in a network namespace, in a thread of its own. Threads that it starts are there too."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            with Path(namespace).open() as pin:
                if _libc.setns(pin.fileno(), 0x40000000) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            result.set_result(act())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


class Web(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, dict[str, str]]]] = []  # what was asked for below /quiet, and with which headers

    def do_GET(self) -> None:
        if self.path.startswith("/quiet"):
            self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
            return
        if self.path == "/echo" and self.headers["Upgrade"] == "websocket":
            self.send_response(101)
            self.end_headers()
            self.wfile.write(self.rfile.readline())
            self.close_connection = True
            return
        sni = getattr(self.connection, "asked_name", None)
        body = json.dumps(
            {
                "to": self.connection.getsockname()[0],
                "from": self.client_address[0],
                "host": self.headers["Host"],
                "path": self.path,
                "tls": sni,
                "headers": dict(self.headers),
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        size = 0
        length = int(self.headers["Content-Length"])
        while size < length and (part := self.rfile.read(min(65536, length - size))):
            size += len(part)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, format: str, *args: Any) -> None: ...


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class TlsServer(Server):
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(10)
        with self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)


class NamedSocket(ssl.SSLSocket):
    asked_name: str | None = None


class World:
    def __init__(self, directory: Path) -> None:
        self.queries: list[str] = []
        self._servers: list[Server] = []
        self._sockets: list[socket.socket] = []
        self._certificate = make_certificate(directory)
        self.authority = self._certificate.read_text().partition("-----END PRIVATE KEY-----\n")[2]

    def build(self) -> None:
        self.remove()
        run("ip", "netns", "add", NAME)
        run("ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", NAME)
        run("ip", "addr", "add", f"{HOST}/24", "dev", LINK)
        run("ip", "link", "set", LINK, "up")
        for address in (f"{WEB}/24", f"{OTHER}/24", f"{FAR}/24", f"{DNS}/24", f"{LAN}/24", f"{METADATA}/32"):
            run("ip", "-n", NAME, "addr", "add", address, "dev", "eth0")
        run("ip", "-n", NAME, "link", "set", "lo", "up")
        run("ip", "-n", NAME, "link", "set", "eth0", "up")
        run("ip", "-n", NAME, "route", "add", "default", "via", HOST)
        run("ip", "route", "add", "10.199.0.0/24", "via", WEB)
        inside(f"/run/netns/{NAME}", self._serve).result(60)
        deadline = time.monotonic() + 60
        while Path(f"/sys/class/net/{LINK}/operstate").read_text().strip() != "up":
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def remove(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        subprocess.run(["ip", "link", "del", LINK], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", NAME], capture_output=True, check=False)

    def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate)
        context.sslsocket_class = NamedSocket
        context.sni_callback = lambda wire, name, _: setattr(wire, "asked_name", name)
        for port, kind in ((80, Server), (8080, Server), (443, TlsServer)):
            server = kind(("0.0.0.0", port), Web)
            if isinstance(server, TlsServer):
                server.context = context
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        names = socket.create_server((DNS, 53))
        self._sockets.append(names)
        threading.Thread(target=self._answer_tcp, args=(names,), daemon=True).start()
        self._answer_udp(DNS, 53, lambda message: self._answer(message, truncate=True))
        for address in (WEB, OTHER, FAR, LAN):
            self._answer_udp(address, 9999, lambda message: message)

    def _answer_udp(self, address: str, port: int, answer: Callable[[bytes], bytes]) -> None:
        wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        wire.bind((address, port))
        self._sockets.append(wire)

        def loop() -> None:
            while not is_closed(wire):
                with contextlib.suppress(OSError):
                    message, sender = wire.recvfrom(4096)
                    if message:
                        wire.sendto(answer(message), sender)
                    if message == TWICE:
                        threading.Timer(0.4, wire.sendto, (message, sender)).start()

        threading.Thread(target=loop, daemon=True).start()

    def _answer_tcp(self, listener: socket.socket) -> None:
        while not is_closed(listener):
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(5)
                    length = int.from_bytes(connection.recv(2))
                    answer = self._answer(connection.recv(length), truncate=False)
                    connection.sendall(len(answer).to_bytes(2) + answer)

    def _answer(self, message: bytes, *, truncate: bool) -> bytes:
        question = dnswire.read_query(message)
        self.queries.append(question.name)
        if truncate and question.name.startswith("long."):
            return dnswire.HEADER.pack(question.id, 0x8380, 1, 0, 0, 0) + question.raw
        found = ZONE.get(question.name.removeprefix("long."), [])
        if not found:
            return dnswire.refusal(question, 3)
        records = b"".join(struct.pack("!3HIH", 0xC00C, 1, 1, 60, 4) + IPv4Address(text).packed for text in found)
        return dnswire.HEADER.pack(question.id, 0x8180, 1, len(found), 0, 0) + question.raw + records


class Guest:
    """Acts as a process in a slot's sandbox namespace would. Every way returns, or raises `OSError`, in a few seconds."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    async def do(self, act: Callable[[], T]) -> T:
        return await asyncio.wrap_future(inside(self.slot.netns, act))

    async def get(self, address: str, port: int = 80, host: str | None = None, path: str = "/") -> dict[str, Any]:
        def act() -> dict[str, Any]:
            connection = http.client.HTTPConnection(address, port, timeout=3)
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"Host": host or address})
                return dict(json.loads(connection.getresponse().read()))

        try:
            return await self.do(act)
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error

    async def get_tls(self, address: str, name: str | None) -> dict[str, Any]:
        def act() -> dict[str, Any]:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with (
                socket.create_connection((address, 443), 3) as raw,
                context.wrap_socket(raw, server_hostname=name) as wire,
            ):
                wire.sendall(f"GET / HTTP/1.1\r\nHost: {name or address}\r\nConnection: close\r\n\r\n".encode())
                answer = b""
                while part := wire.recv(65536):
                    answer += part
            return dict(json.loads(answer.partition(b"\r\n\r\n")[2]))

        return await self.do(act)

    async def reaches(self, address: str, port: int = 80) -> bool:
        """Whether a TCP connection is made. A dropped packet takes a second to be sure of."""

        def act() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
                return True
            return False

        return await self.do(act)

    async def echoes(self, address: str, port: int = 9999, source: str | None = None) -> bool:
        def act() -> bool:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
                wire.settimeout(0.7)
                if source:
                    wire.bind((source, 0))
                with contextlib.suppress(OSError):
                    wire.sendto(b"hello", (address, port))
                    return wire.recv(100) == b"hello"
            return False

        return await self.do(act)

    async def resolve(self, name: str, *, server: str | None = None, tcp: bool = False) -> tuple[int, list[str]]:
        """Response code and addresses, or `OSError`."""
        message = dnswire.query(name, 4711)

        def act() -> bytes:
            kind = socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM
            with socket.socket(socket.AF_INET, kind) as wire:
                wire.settimeout(6)
                wire.connect((server or self.slot.guest_gateway, 53))
                wire.sendall(len(message).to_bytes(2) + message if tcp else message)
                return wire.recv(4096)[2:] if tcp else wire.recv(4096)

        answer = await self.do(act)
        assert answer[:2] == message[:2]
        return answer[3] & 15, [str(address) for address in dnswire.addresses(answer)]

    @contextlib.contextmanager
    def web(self, port: int) -> Iterator[None]:
        """A web server inside the slot."""
        server = inside(self.slot.netns, lambda: Server(("0.0.0.0", port), Web)).result(60)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


async def edge_get(slot: Slot, port: int) -> dict[str, Any]:
    """What the edge does: dial the slot's address from the host."""

    def act() -> dict[str, Any]:
        connection = http.client.HTTPConnection(slot.address, port, timeout=3)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            return dict(json.loads(connection.getresponse().read()))

    return await asyncio.to_thread(act)


def make_certificate(directory: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the outside world of a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in CERTIFIED]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "world.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@contextlib.contextmanager
def one_world_at_a_time() -> Iterator[None]:
    """Test runs on one machine take turns: they share the addresses of the world."""
    fd = os.open("/run/sandlot-test-world.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_closed(wire: socket.socket) -> bool:
    return wire.fileno() < 0


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
