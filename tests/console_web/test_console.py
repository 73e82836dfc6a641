"""What people do in the console, done in a real browser."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.console_web.conftest import Spec
from tests.console_web.seed import board, long_story, many, write
from tests.e2e.server import Server

from sandlot.platform.core.tasks import TaskStatus
from sandlot.platform.store import Database
from sandlot.platform.store.events import SqlEvents
from sandlot.wiring.clock import now

pytestmark = pytest.mark.timeout(300)


def test_a_key_logs_in_until_it_is_revoked(spec: Spec) -> None:
    spec("login")


def test_cards_are_moved_by_mouse_keys_and_menu(spec: Spec) -> None:
    spec("board")


def test_pull_requests_builds_protected_ports_and_every_state_of_a_view_are_shown(
    spec: Spec, furnished: None, engine: Server
) -> None:
    def send(number: signal.Signals) -> None:
        os.kill(engine.pid, number)

    spec("look", {"freeze": lambda: send(signal.SIGSTOP), "thaw": lambda: send(signal.SIGCONT)})


@pytest.mark.timeout(600)
def test_a_server_that_is_killed_leaves_neither_a_gap_nor_a_repeat(spec: Spec, database: Path) -> None:
    async def forget() -> None:
        """A task that no event tells of any more: only who reads the snapshot again sees it."""
        missed = replace(next(one for one in board() if one.status is TaskStatus.TODO), id="missed00")
        missed = replace(missed, spec=replace(missed.spec, title="Written while nobody looked"))
        await write(database, [missed])
        opened = Database.sqlite(database)
        try:
            assert await SqlEvents(opened).purge(now() + timedelta(days=1)) > 0
        finally:
            await opened.close()

    spec("stream", {"forget": lambda: asyncio.run(forget())})


@pytest.mark.timeout(600)
def test_axe_finds_nothing_on_any_page_in_both_themes_and_on_a_phone(
    spec: Spec, furnished: None, database: Path
) -> None:
    seed = [task for task in board() if task.status not in (TaskStatus.QUEUED, TaskStatus.WORKING)]
    asyncio.run(write(database, seed))
    spec("axe")


def test_a_task_is_made_answered_reviewed_and_done_in_the_browser(spec: Spec) -> None:
    spec("work")


def test_sandboxes_and_keys_are_managed_from_their_pages(spec: Spec) -> None:
    spec("manage")


@pytest.mark.timeout(600)
def test_a_thousand_cards_and_fifty_thousand_entries_scroll_as_easily_as_a_few(spec: Spec, database: Path) -> None:
    cards = [task for task in many(1400) if task.status not in (TaskStatus.QUEUED, TaskStatus.WORKING)][:1000]
    assert len(cards) == 1000
    short, long = (replace(task, id=name) for task, name in zip(cards[:2], ("short000", "long0000"), strict=True))
    asyncio.run(write(database, cards, entries=()))
    asyncio.run(write(database, [short], entries=long_story(400)))
    asyncio.run(write(database, [long], entries=long_story(50_000)))
    spec("frames", few="fix part 1", short="short000", shortLast=399, long="long0000", longLast=49998)
