"""Certificates for the server's domain."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from tests.api.servers import serving

from sandlot.server.certificates import Certificate, find_certificate
from sandlot.server.errors import StartupFailed
from sandlot.server.http import build_server
from sandlot.server.https_only import HttpsOnly
from sandlot.server.tls import certificate_for

NOW = datetime.datetime.now(datetime.UTC)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[int, Certificate]]:
    certificate = certificate_for("sandlot.localhost:3900", tmp_path / "tls")
    server = build_server(hello, host="127.0.0.1", port=0, certificate=(certificate.chain, certificate.key))
    async with serving(server):
        yield server.port, certificate


async def connect(port: int, name: str, authority: Path) -> str | None:
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)
    chosen: str | None = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.close()
    await writer.wait_closed()
    return chosen


@pytest.mark.parametrize(
    "name",
    ["sandlot.localhost", "49983-iabc.sandlot.localhost", "api.sandlot.localhost", "sandbox.sandlot.localhost",
     "localhost", "127.0.0.1"],
)  # fmt: skip
async def test_clients_that_trust_the_authority_reach_every_name(server: tuple[int, Certificate], name: str) -> None:
    port, certificate = server
    assert certificate.authority is not None
    assert await connect(port, name, certificate.authority) == "http/1.1"


async def test_other_names_and_strangers_are_refused(server: tuple[int, Certificate], tmp_path: Path) -> None:
    port, certificate = server
    assert certificate.authority is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(port, "example.com", certificate.authority)
    stranger = certificate_for("sandlot.localhost", tmp_path / "other")
    assert stranger.authority is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(port, "localhost", stranger.authority)


async def test_one_port_speaks_tls_and_plain_http(server: tuple[int, Certificate]) -> None:
    port, certificate = server
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "http"
    trusting = ssl.create_default_context(cafile=str(certificate.authority))
    async with httpx.AsyncClient(trust_env=False, verify=trusting) as client:
        assert (await client.get(f"https://127.0.0.1:{port}/")).text == "https"


async def test_clients_that_say_nothing_or_nonsense_hold_nobody_up(server: tuple[int, Certificate]) -> None:
    port, _ = server
    _, silent = await asyncio.open_connection("127.0.0.1", port)
    reader, broken = await asyncio.open_connection("127.0.0.1", port)
    broken.write(b"\x16 this is no handshake")
    await reader.read()  # until it is closed, perhaps after an alert
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "http"
    silent.close()
    broken.close()


@pytest.mark.parametrize(
    ("client", "method", "status"), [("192.0.2.7", "GET", 308), ("192.0.2.7", "POST", 426), ("127.0.0.1", "POST", 200)]
)
async def test_with_a_domain_plain_http_is_for_this_machine_alone(client: str, method: str, status: int) -> None:
    scope = {"type": "http", "scheme": "http", "method": method, "raw_path": b"/a", "query_string": b"q=1",
             "headers": [(b"host", b"a.test:3900")], "client": (client, 1)}  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await HttpsOnly(hello)(scope, None, send)
    assert sent[0]["status"] == status
    if status == 308:
        assert dict(sent[0]["headers"])[b"location"] == b"https://a.test:3900/a?q=1"


def test_a_certificate_is_found_again_without_making_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = find_certificate("a.test:3900", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("sys.executable", "/nonexistent")
        assert find_certificate("a.test:3900", tmp_path) == made
        with pytest.raises(FileNotFoundError):
            find_certificate("b.test", tmp_path)


async def test_the_official_sdks_transport_trusts_it(server: tuple[int, Certificate]) -> None:
    import pyqwest

    port, certificate = server
    assert certificate.authority is not None
    transport = pyqwest.HTTPTransport(tls_ca_cert=certificate.authority.read_bytes())
    response = await pyqwest.Client(transport).get(f"https://8000-iabc.sandlot.localhost:{port}/")
    assert response.status == 200 and response.content == b"https"


def test_keys_are_private_and_nothing_is_made_twice(tmp_path: Path) -> None:
    first = certificate_for("a.test", tmp_path, now=NOW)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["ca.crt", "ca.key", "server.crt", "server.key"]
    assert certificate_for("a.test", tmp_path, now=NOW) == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_leaf_is_renewed_in_time_under_the_same_authority(tmp_path: Path) -> None:
    found = certificate_for("a.test", tmp_path, now=NOW)
    authority, leaf = (tmp_path / "ca.crt").read_bytes(), found.chain.read_bytes()
    certificate_for("a.test", tmp_path, now=NOW + datetime.timedelta(days=700))
    assert found.chain.read_bytes() != leaf and (tmp_path / "ca.crt").read_bytes() == authority


def test_another_domain_needs_another_authority_since_the_old_one_may_not_vouch_for_it(tmp_path: Path) -> None:
    found = certificate_for("a.test", tmp_path)
    authority = (tmp_path / "ca.crt").read_bytes()
    certificate_for("b.test", tmp_path)
    assert (tmp_path / "ca.crt").read_bytes() != authority
    names = x509.load_pem_x509_certificate(found.chain.read_bytes()).extensions
    assert "*.b.test" in names.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )


def test_a_damaged_leaf_is_made_anew(tmp_path: Path) -> None:
    found = certificate_for("a.test", tmp_path)
    found.chain.write_text("nonsense")
    certificate_for("a.test", tmp_path)
    assert found.chain.read_text().startswith("-----BEGIN CERTIFICATE")


def test_the_users_certificate_is_used_or_refused_with_a_reason(tmp_path: Path) -> None:
    own = certificate_for("a.test", tmp_path / "own")
    other = certificate_for("a.test", tmp_path / "other")
    given = certificate_for("a.test", tmp_path / "none", chain=own.chain, key=own.key)
    assert given == Certificate(chain=own.chain, key=own.key, authority=None) and not (tmp_path / "none").exists()
    with pytest.raises(StartupFailed, match="SANDLOT_TLS_KEY"):
        certificate_for("a.test", tmp_path, chain=own.chain)
    with pytest.raises(StartupFailed, match="cannot be used"):
        certificate_for("a.test", tmp_path, chain=own.chain, key=other.key)
    with pytest.raises(StartupFailed, match="cannot be used"):
        certificate_for("a.test", tmp_path, chain=tmp_path / "missing", key=own.key)
