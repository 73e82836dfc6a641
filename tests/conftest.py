"""What tests of several rooms share: a real PostgreSQL, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.services import postgresql


@pytest.fixture(scope="session")
def postgresql_address() -> Iterator[str]:
    with postgresql() as address:
        yield address
