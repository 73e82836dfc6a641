"""The second port: taken where it is free and wanted, left to whoever has it, and an error where addresses depend on it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import free_port

from sandlot.server.errors import StartupFailed
from sandlot.settings import DEFAULT_PORT, Settings
from sandlot.wiring import serve


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> int:
    port = free_port()
    monkeypatch.setattr(serve, "HTTPS_PORT", port)
    return port


@pytest.fixture
def taken(free: int) -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free))
        other.listen()
        yield free


def bound(tmp_path: Path, **settings: object) -> int | None:
    sock = serve._bind_second(Settings(data_dir=tmp_path, host="127.0.0.1", **settings))  # type: ignore[arg-type]
    if sock is None:
        return None
    with sock:
        return int(sock.getsockname()[1])


def test_a_server_on_the_usual_port_takes_it_if_nobody_has_it(tmp_path: Path, free: int) -> None:
    assert bound(tmp_path, port=DEFAULT_PORT) == free


def test_it_is_left_to_whoever_has_it(tmp_path: Path, taken: int) -> None:
    assert bound(tmp_path, port=DEFAULT_PORT) is None
    assert bound(tmp_path, port=DEFAULT_PORT, https_port=taken) is None


@pytest.mark.parametrize(
    "settings", [{"port": 4711}, {"port": DEFAULT_PORT, "https_port": 0}, {"port": DEFAULT_PORT, "domain": "a.test"}]
)
def test_others_do_not_take_it_by_themselves(tmp_path: Path, free: int, settings: dict[str, object]) -> None:
    assert bound(tmp_path, **settings) is None


def test_any_server_takes_the_one_it_was_told(tmp_path: Path, free: int) -> None:
    assert bound(tmp_path, port=4711, https_port=free) == free


def test_a_domain_whose_addresses_lack_the_port_needs_it(tmp_path: Path, taken: int) -> None:
    with pytest.raises(StartupFailed, match="cannot listen"):
        bound(tmp_path, domain="a.test", https_port=taken)
