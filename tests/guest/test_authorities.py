"""Authorities that the operator adds: appended to the store once, and named for programs with stores of their own."""

from __future__ import annotations

from pathlib import Path

from envd import authorities
from envd.state import State
from envd.users import Users

OURS = "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----"


def store(root: Path, number: int = 0) -> Path:
    return root / authorities.STORES[number].lstrip("/")


def test_they_are_added_once_to_what_is_trusted_already(tmp_path: Path) -> None:
    store(tmp_path).parent.mkdir(parents=True)
    store(tmp_path).write_text("theirs")
    for _ in range(2):
        variables = authorities.take(OURS, str(tmp_path))
        assert store(tmp_path).read_text() == f"theirs\n{OURS}\n"
    assert (tmp_path / authorities.ADDED.lstrip("/")).read_text() == f"{OURS}\n"
    assert variables["NODE_EXTRA_CA_CERTS"] == authorities.ADDED
    assert {variables[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO")} == {
        authorities.STORES[0]
    }


def test_an_image_without_a_store_gets_one_and_another_distributions_is_found(tmp_path: Path) -> None:
    authorities.take(OURS, str(tmp_path / "bare"))
    assert store(tmp_path / "bare").read_text() == f"{OURS}\n"
    store(tmp_path, 1).parent.mkdir(parents=True)
    store(tmp_path, 1).write_text("theirs\n")
    assert authorities.take(OURS, str(tmp_path))["SSL_CERT_FILE"] == authorities.STORES[1]
    assert store(tmp_path, 1).read_text() == f"theirs\n{OURS}\n" and not store(tmp_path).exists()


def test_what_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "usr").write_text("in the way")
    assert authorities.take(OURS, str(tmp_path)) == {}


def test_a_daemon_that_is_not_the_first_process_leaves_the_machines_files_alone(tmp_path: Path) -> None:
    state = State(Users(), str(tmp_path))
    state.init(b'{"caBundle": "x"}')
    assert "SSL_CERT_FILE" not in state.environment()
