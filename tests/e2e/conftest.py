"""Real servers, one per runtime for the whole run, and sandboxes on them that the official SDK made."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import httpx
import pytest
from e2b import Sandbox
from tests.e2e import leaks
from tests.e2e.server import Server

RUNTIMES = ("container", "gvisor")
Start = Callable[..., Server]


@pytest.fixture(scope="session", autouse=True)
def ends_in_order() -> Iterator[None]:
    """Servers are taken down also when the whole run is told to stop."""
    former = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("told to stop", 143))
    yield
    signal.signal(signal.SIGTERM, former)


@pytest.fixture(scope="session", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def server(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Where state does not matter. When it is down, nothing of it may be left on the host."""
    with in_pristine(tmp_path_factory, runtime) as server:
        yield server


@pytest.fixture(scope="session")
def container_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For what does not depend on the runtime."""
    with in_pristine(tmp_path_factory, "container") as server:
        yield server


@pytest.fixture
def start(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts servers that a test has to itself; each must leave nothing behind."""
    started: list[Server] = []

    def start(**settings: str) -> Server:
        server = new_server(tmp_path_factory, runtime, **{"pool_size": "0", "boot_snapshots": "0", **settings})
        started.append(server)
        server.up()
        return server

    yield start
    for server in started:
        server.down()
    for server in started:
        assert_nothing_left(server)


def new_server(factory: pytest.TempPathFactory, runtime: str, *options: str, **settings: str) -> Server:
    return Server(
        data_dir=factory.mktemp(f"{runtime}-") / "data",
        settings={"SANDLOT_RUNTIME": runtime, **{f"SANDLOT_{name.upper()}": text for name, text in settings.items()}},
        options=("--no-hello", *options),
    )


def assert_nothing_left(server: Server) -> None:
    left = leaks.owned(server.data_dir)
    assert not left, f"{server.data_dir} left on the host:\n" + "\n".join(sorted(left))


class in_pristine:
    """A server that must leave nothing when it is down."""

    def __init__(self, factory: pytest.TempPathFactory, runtime: str, *options: str, **settings: str) -> None:
        self.server = new_server(factory, runtime, *options, **settings)

    def __enter__(self) -> Server:
        return self.server.__enter__()

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()
        assert_nothing_left(self.server)


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    """One for all tests of a module."""
    made = server.create(timeout=900)
    yield made
    made.kill()


@pytest.fixture
def fresh(server: Server) -> Iterator[Callable[..., Sandbox]]:
    """Makes sandboxes that a test has to itself."""
    made: list[Sandbox] = []

    def create(**options: object) -> Sandbox:
        made.append(server.create(**options))
        return made[-1]

    yield create
    for one in made:
        one.kill()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """Plain HTTP to the server, with a valid key."""
    with server.http() as client:
        yield client


@pytest.fixture
def home(sandbox: Sandbox, request: pytest.FixtureRequest) -> str:
    """A directory in the sandbox for one test."""
    path = f"/home/user/{abs(hash(request.node.nodeid)):x}"
    sandbox.files.make_dir(path)
    return path
