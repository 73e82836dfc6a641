"""What people do in the console, done in a real browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.console_web.conftest import Spec
from tests.console_web.seed import board, write

from sandlot.platform.core.tasks import TaskStatus

pytestmark = pytest.mark.timeout(300)


def test_a_key_logs_in_until_it_is_revoked(spec: Spec) -> None:
    spec("login")


def test_cards_are_moved_by_mouse_keys_and_menu(spec: Spec) -> None:
    spec("board")


def test_a_server_that_is_killed_leaves_neither_a_gap_nor_a_repeat(spec: Spec) -> None:
    spec("stream")


@pytest.mark.timeout(600)
def test_axe_finds_nothing_in_both_themes_and_on_a_phone(spec: Spec, database: Path) -> None:
    seed = [task for task in board() if task.status not in (TaskStatus.QUEUED, TaskStatus.WORKING)]
    asyncio.run(write(database, seed))
    spec("axe")


@pytest.mark.timeout(600)
def test_a_task_is_made_answered_reviewed_and_done_in_the_browser(spec: Spec) -> None:
    spec("work")


def test_sandboxes_and_keys_are_managed_from_their_pages(spec: Spec) -> None:
    spec("manage")
