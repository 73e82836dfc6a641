"""A real envd for each test module, and SDK objects that lead to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import AsyncSandbox, Sandbox
from tests.guest.running import Envd, start_envd


@pytest.fixture(scope="module")
def envd() -> Iterator[Envd]:
    # Not pytest's own directory: that one is closed to the users that commands run as.
    with tempfile.TemporaryDirectory(prefix="envd-") as directory:
        process, started = start_envd(Path(directory))
        yield started
        process.terminate()
        assert process.wait(timeout=60) == 0
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def sandbox(envd: Envd) -> Sandbox:
    return Sandbox(**envd.options())  # type: ignore[arg-type]


@pytest.fixture
def async_sandbox(envd: Envd) -> AsyncSandbox:
    return AsyncSandbox(**envd.options())  # type: ignore[arg-type]
