"""Fifty times the server is killed in the middle of a pause, a resume, a snapshot or a fork: nothing is lost, nothing doubled."""

from __future__ import annotations

import os

import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.crashes import Crashes

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))


@pytest.mark.parametrize("runtime", ["gvisor", "container"])
def test_every_sandbox_is_running_or_paused_with_its_data(
    runtime: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with in_pristine(tmp_path_factory, runtime) as server:
        crashes = Crashes(server, seed=int(os.environ.get("CRASH_SEED", "1")))
        crashes.populate(4)
        crashes.run(ROUNDS)
        print(runtime, {outcome: crashes.outcomes.count(outcome) for outcome in sorted(set(crashes.outcomes))})
