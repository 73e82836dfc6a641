"""A few released clients, older than the one that the other tests use, through all of their methods. `./sandlot compat run` tries many more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.compat.__main__ import render
from tests.compat.clients import KINDS, matrix, try_client
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server

TRIED = [(kind, version) for kind in KINDS for version in matrix()[kind]["suite"]]


@pytest.fixture(scope="module", params=["plain", "TLS"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--domain", "compat.localhost") if request.param == "TLS" else ()
    with in_pristine(tmp_path_factory, "gvisor", *options) as server:
        yield server


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "version"), TRIED)
def test_every_method_of_an_older_release_works(server: Server, kind: str, version: str) -> None:
    found = try_client(kind, version, server.env)
    assert {"run", "files", "connect", "get_host", "websocket"} <= set(found)
    assert {name: fact["why"] for name, fact in found.items() if fact["ok"] is False} == {}


def test_the_page_says_what_worked_where() -> None:
    good, bad, absent = ({"ok": ok, "why": "because"} for ok in (True, False, None))
    first = {("python", "1"): {"run": good, "pause": absent}, ("python", "2"): {"run": good, "pause": bad}}
    second = {("python", "1"): {"run": good, "pause": absent}, ("python", "2"): {"run": bad, "pause": bad}}
    page = render({"plain": first, "TLS": second}, {"python": ["1", "2"]})
    assert "| run | yes | plain |" in page and "| pause | – | **no** |" in page
    assert "- python 2, run, TLS: `because`" in page
