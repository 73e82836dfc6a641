"""What tests of several rooms share: a real PostgreSQL, started when the first test asks for it, and signals as on a terminal."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest
from tests.services import postgresql


def pytest_configure() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, and so would everything that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture(autouse=True)
def no_errors_of_asyncio() -> Iterator[None]:
    """What asyncio can only log (a task whose error nobody looks at, a callback that failed) fails the test it happens in."""
    errors, log = _Errors(), logging.getLogger("asyncio")
    log.addHandler(errors)
    yield
    log.removeHandler(errors)
    assert not errors.texts, "asyncio logged errors:\n" + "\n".join(errors.texts)


@pytest.fixture(scope="session")
def postgresql_address() -> Iterator[str]:
    with postgresql() as address:
        yield address
