"""What sandboxes can reach: a world made of namespaces as far as allowed; the host and each other, never."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator

import pytest
from e2b import ALL_TRAFFIC, Sandbox
from e2b.exceptions import SandboxException
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until
from tests.network import world as outside

from sandlot.engine.network.plan import GUEST_GATEWAY


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[outside.World]:
    with outside.one_world_at_a_time():
        built = outside.World(tmp_path_factory.mktemp("world"))
        try:
            built.build()
            yield built
        finally:
            built.remove()


@pytest.fixture(scope="module")
def server(world: outside.World, runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sandboxes look names up in the world."""
    with in_pristine(tmp_path_factory, runtime, dns_servers=outside.DNS) as server:
        yield server


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    made = server.create(timeout=900)
    yield made
    made.kill()


def reaches(sandbox: Sandbox, address: str, port: int = 80) -> bool:
    """Whether a TCP connection is made and answered with anything."""
    code = (
        "import socket\n"
        f"s = socket.create_connection(({address!r}, {port}), 2); s.settimeout(2)\n"
        f"s.sendall(b'GET / HTTP/1.1\\r\\nHost: {address}\\r\\nConnection: close\\r\\n\\r\\n'); print(len(s.recv(100)))"
    )
    sandbox.files.write("/tmp/reach.py", code)
    said = sandbox.commands.run("python3 /tmp/reach.py 2>/dev/null || echo 0", user="root").stdout
    return int(said) > 0


def test_the_internet_is_there_by_default(sandbox: Sandbox) -> None:
    assert reaches(sandbox, outside.WEB) and reaches(sandbox, outside.OTHER, 8080)
    assert reaches(sandbox, "www.example.com")


def test_private_ranges_and_metadata_services_are_not(sandbox: Sandbox) -> None:
    assert not reaches(sandbox, outside.LAN)
    assert not reaches(sandbox, outside.METADATA)
    assert not reaches(sandbox, "inside.example.com")


@contextlib.contextmanager
def host_service() -> Iterator[int]:
    """A web server of the host, on all its addresses."""
    service = http.server.ThreadingHTTPServer(("0.0.0.0", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=service.serve_forever, daemon=True)
    thread.start()
    try:
        yield service.server_port
    finally:
        service.shutdown()
        service.server_close()
        thread.join()


def addresses_of_the_host(server: Server) -> list[str]:
    """Every address under which a sandbox might find the host: its gateway, its uplink, the host's ends of all slots."""
    block = (server.data_dir / "network" / "block").read_text().strip()
    base = block.rpartition(".")[0]
    return [str(GUEST_GATEWAY), outside.HOST, "host.example.com", *(f"{base}.{n}" for n in (0, 2, 4))]


def test_neither_the_host_nor_the_control_plane_is_reached(server: Server, sandbox: Sandbox) -> None:
    with host_service() as port:
        for address in addresses_of_the_host(server):
            assert not reaches(sandbox, address, port), address
            assert not reaches(sandbox, address, server.port), address


def test_no_sandbox_reaches_another(server: Server, sandbox: Sandbox) -> None:
    other = server.create()
    try:
        other.commands.run("python3 -m http.server 8000 --bind 0.0.0.0", background=True, timeout=0)
        until(lambda: reaches(other, "127.0.0.1", 8000))
        base = (server.data_dir / "network" / "block").read_text().strip().rpartition(".")[0]
        for n in range(0, 12):
            assert not reaches(sandbox, f"{base}.{n}", 8000), n
            assert n % 2 == 0 or not reaches(sandbox, f"{base}.{n}", 49983), n
    finally:
        other.kill()


Create = Callable[..., Sandbox]


@pytest.fixture
def create(server: Server) -> Iterator[Create]:
    made: list[Sandbox] = []

    def create(**options: object) -> Sandbox:
        made.append(server.create(**options))
        return made[-1]

    yield create
    for one in made:
        one.kill()


def test_a_sandbox_without_internet_has_none(create: Create) -> None:
    sandbox = create(allow_internet_access=False)
    assert not reaches(sandbox, outside.WEB) and not reaches(sandbox, "www.example.com")
    assert sandbox.commands.run("echo still usable").stdout == "still usable\n"


def test_denied_addresses_are_out_of_reach_and_allowed_ones_come_first(create: Create) -> None:
    denied = create(network={"deny_out": [outside.WEB]})
    assert not reaches(denied, outside.WEB) and reaches(denied, outside.OTHER)
    only = create(network={"deny_out": [ALL_TRAFFIC], "allow_out": [f"{outside.OTHER}/32"]})
    assert reaches(only, outside.OTHER) and not reaches(only, outside.WEB)


def test_domains_are_allowed_by_name(create: Create) -> None:
    sandbox = create(network={"deny_out": [ALL_TRAFFIC], "allow_out": ["*.example.com"]})
    assert reaches(sandbox, "www.example.com") and reaches(sandbox, "api.example.com")
    assert not reaches(sandbox, "elsewhere.test") and not reaches(sandbox, outside.WEB)
    with pytest.raises(SandboxException, match="400"):
        create(network={"allow_out": ["example.com"]})


def test_the_network_changes_while_the_sandbox_runs(create: Create) -> None:
    sandbox = create()
    assert reaches(sandbox, outside.WEB)
    sandbox.update_network({"deny_out": [outside.WEB]})
    assert not reaches(sandbox, outside.WEB) and reaches(sandbox, outside.OTHER)
    sandbox.update_network({"deny_out": [outside.OTHER]})
    assert reaches(sandbox, outside.WEB) and not reaches(sandbox, outside.OTHER), "the former list is replaced"
    sandbox.update_network({"allow_internet_access": False})
    assert not reaches(sandbox, outside.WEB) and not reaches(sandbox, outside.OTHER)
    sandbox.update_network({})
    assert reaches(sandbox, outside.WEB) and reaches(sandbox, outside.OTHER)


def test_a_policy_survives_the_server(create: Create, server: Server) -> None:
    sandbox = create(network={"deny_out": [outside.WEB]}, timeout=300)
    server.kill_9()
    server.up()
    assert not reaches(sandbox, outside.WEB) and reaches(sandbox, outside.OTHER)
    assert reaches(sandbox, "api.example.com")
