"""Secrets do not stay where nobody needs them any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.rows import a_row
from tests.security.conftest import Prisoner

from sandlot.engine.control.sandbox_states import ended
from sandlot.engine.core.model import State

pytestmark = pytest.mark.usefixtures("private_mounts")
MARK = "SANDLOT_TEST_OF_SECRETS"


@pytest.fixture
def marked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, "hush")
        yield


def test_variables_and_tokens_of_a_sandbox_end_with_it() -> None:
    live = a_row(state=State.STOPPING, env_vars={"KEY": "hush"}, envd_token="a", traffic_token="b")
    gone = ended(live, datetime(2030, 5, 1, tzinfo=UTC))
    assert gone.state is State.ENDED and (gone.env_vars, gone.envd_token, gone.traffic_token) == ({}, None, None)


async def test_processes_of_a_machine_know_nothing_of_the_servers_environment(marked: None, prisoner: Prisoner) -> None:
    pids = prisoner.bench.runtime._cgroup(prisoner.instance.machine_id).pids()  # type: ignore[attr-defined]
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in pids if pid > 1]
    assert environments and not any(MARK.encode() in each for each in environments)
