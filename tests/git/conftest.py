"""A git service of their own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.git.world import GitWorld, git_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GitWorld]:
    async with git_world(tmp_path) as made:
        yield made
