"""What tests of several rooms share: a real PostgreSQL, started when the first test asks for it, and signals as on a terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.services import postgresql


def pytest_configure() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, and so would everything that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgresql_address() -> Iterator[str]:
    with postgresql() as address:
        yield address
