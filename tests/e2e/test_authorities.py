"""Sandboxes trust the certificates that the operator adds, whichever way they begin; a file without any stops the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox
from tests.e2e.conftest import assert_nothing_left, new_server
from tests.e2e.server import Server, until

from sandlot.server.certificates import Certificate, find_certificate

# A server with a certificate of that authority, inside the sandbox; each client must take it without being told.
SERVE = "openssl s_server -quiet -accept 8443 -www -cert /tmp/chain.pem -key /tmp/key.pem"
CLIENTS = (
    "curl -sS -o /dev/null https://localhost:8443/",
    "python3 -c 'import urllib.request; urllib.request.urlopen(\"https://localhost:8443/\").read()'",
    "node -e 'fetch(\"https://localhost:8443/\").then(() => process.exit(0), () => process.exit(1))'",
    # What the server says is no repository; with a certificate that is not trusted, git would not come that far.
    "git ls-remote https://localhost:8443/x 2>&1 | grep -q 'repository.*not found\\|not valid\\|requested URL returned\\|not a git repo'",
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return find_certificate("localhost", tmp_path_factory.mktemp("company") / "tls")


@pytest.fixture(scope="module")
def trusting(runtime: str, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"guest_ca_file": str(certificate.authority), "pool_size": "0"}
    with new_server(tmp_path_factory, runtime, **settings) as server:
        yield server
    assert_nothing_left(server)


def serve(sandbox: Sandbox, certificate: Certificate) -> None:
    sandbox.files.write("/tmp/chain.pem", certificate.chain.read_text())
    sandbox.files.write("/tmp/key.pem", certificate.key.read_text())
    sandbox.commands.run(SERVE, background=True, timeout=0)
    up = "curl -sk -o /dev/null https://localhost:8443/ && echo up || true"
    until(lambda: sandbox.commands.run(up).stdout == "up\n", 30, "the server in the sandbox")


@pytest.mark.timeout(300)
def test_programs_in_a_sandbox_trust_them_and_go_on_to_after_a_pause(
    trusting: Server, certificate: Certificate
) -> None:
    for number in range(3):  # booted, and then from whatever is kept ready
        sandbox = trusting.create()
        try:
            if number == 0:
                serve(sandbox, certificate)
                for client in CLIENTS:
                    for user in ("user", "root"):
                        sandbox.commands.run(client, user=user, timeout=60)
                with pytest.raises(CommandExitException):
                    sandbox.commands.run("env -u NODE_EXTRA_CA_CERTS " + CLIENTS[2], timeout=60)
                sandbox.pause()
                sandbox = Sandbox.connect(sandbox.sandbox_id, **trusting.sdk)
            assert sandbox.commands.run("grep -c BEGIN $NODE_EXTRA_CA_CERTS; echo $SSL_CERT_FILE").stdout.split() == [
                "1",
                "/etc/ssl/certs/ca-certificates.crt",
            ]
        finally:
            sandbox.kill()


def test_a_file_without_certificates_stops_the_start(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    server = new_server(tmp_path_factory, "container", guest_ca_file=str(tmp_path / "ca.pem"))
    done = server.cli("up", "--detach", "--no-hello", check=False)
    assert done.returncode != 0 and "SANDLOT_GUEST_CA_FILE" in done.stderr and "holds no certificates" in done.stderr
