"""What sandboxes can reach: a world made of namespaces as far as allowed; the host and each other, never."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
from e2b import ALL_TRAFFIC, Sandbox
from e2b.exceptions import SandboxException
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until
from tests.network import world as outside

from sandlot.engine.node.network.slot_plan import GUEST_GATEWAY


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


REACH = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def try_one(place):
    try:
        with socket.create_connection(place, 2) as wire:
            wire.settimeout(2)
            wire.sendall(f"GET / HTTP/1.1\\r\\nHost: {place[0]}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            return bool(wire.recv(100))
    except OSError:
        return False

places = json.load(sys.stdin)
with ThreadPoolExecutor(16) as threads:
    print(json.dumps([place for place, yes in zip(places, threads.map(try_one, map(tuple, places))) if yes]))
"""


def reached(sandbox: Sandbox, places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those places at which a TCP connection is made and answered with anything."""
    sandbox.files.write("/tmp/reach.py", REACH)
    sandbox.files.write("/tmp/places.json", json.dumps(list(places)))
    said = sandbox.commands.run("python3 /tmp/reach.py < /tmp/places.json", user="root").stdout
    return [(str(address), int(port)) for address, port in json.loads(said)]


def reaches(sandbox: Sandbox, address: str, port: int = 80) -> bool:
    return bool(reached(sandbox, [(address, port)]))


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
        with socket.create_connection((outside.HOST, port), 5):
            pass  # it is there, for others
        addresses = addresses_of_the_host(server)
        places = [(address, port) for address in addresses] + [(address, server.port) for address in addresses]
        assert reached(sandbox, places) == []


def test_no_sandbox_reaches_another(server: Server, sandbox: Sandbox) -> None:
    other = server.create()
    try:
        other.commands.run("python3 -m http.server 8000 --bind 0.0.0.0", background=True, timeout=0)
        until(lambda: reaches(other, "127.0.0.1", 8000))
        base = (server.data_dir / "network" / "block").read_text().strip().rpartition(".")[0]
        assert reached(sandbox, [(f"{base}.{n}", port) for n in range(16) for port in (8000, 49983)]) == []
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
