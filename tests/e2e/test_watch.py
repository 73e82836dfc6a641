"""Watching directories in sandboxes: by polling (the sync SDK) and by a stream (the async SDK)."""

from __future__ import annotations

import asyncio
import time

import pytest
from e2b import AsyncSandbox, FilesystemEvent, FilesystemEventType, Sandbox
from e2b.exceptions import FileNotFoundException, InvalidArgumentException, SandboxException
from tests.e2e.server import Server, until

CREATE, WRITE, REMOVE, RENAME = (
    FilesystemEventType.CREATE,
    FilesystemEventType.WRITE,
    FilesystemEventType.REMOVE,
    FilesystemEventType.RENAME,
)


def test_changes_are_seen_by_polling(sandbox: Sandbox, home: str) -> None:
    watch = sandbox.files.watch_dir(home)
    events: list[FilesystemEvent] = []

    def saw(kind: FilesystemEventType, name: str) -> bool:
        events.extend(watch.get_new_events())
        return any(event.type is kind and event.name == name for event in events)

    sandbox.files.write(f"{home}/new.txt", "1")
    until(lambda: saw(CREATE, "new.txt") and saw(WRITE, "new.txt"))
    sandbox.files.rename(f"{home}/new.txt", f"{home}/moved.txt")
    until(lambda: saw(RENAME, "new.txt") and saw(CREATE, "moved.txt"))
    sandbox.files.remove(f"{home}/moved.txt")
    until(lambda: saw(REMOVE, "moved.txt"))
    watch.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()


def test_directories_below_are_watched_when_asked(sandbox: Sandbox, home: str) -> None:
    flat, deep = sandbox.files.watch_dir(home), sandbox.files.watch_dir(home, recursive=True)
    sandbox.files.make_dir(f"{home}/sub")
    names: set[str] = set()

    def saw(name: str) -> bool:
        names.update(event.name for event in deep.get_new_events())
        return name in names

    until(lambda: saw("sub"))
    sandbox.files.write(f"{home}/sub/inner.txt", "x")
    until(lambda: saw("sub/inner.txt"))
    assert "sub/inner.txt" not in {event.name for event in flat.get_new_events()}
    flat.stop()
    deep.stop()


def test_entries_come_with_events_when_asked(sandbox: Sandbox, home: str) -> None:
    watch = sandbox.files.watch_dir(home, include_entry=True)
    sandbox.files.write(f"{home}/entry.txt", "12345")
    events: list[FilesystemEvent] = []

    def told() -> bool:
        events.extend(watch.get_new_events())
        return any(event.entry is not None and event.entry.path == f"{home}/entry.txt" for event in events)

    until(told)
    watch.stop()


def test_what_cannot_be_watched_is_refused(sandbox: Sandbox, home: str) -> None:
    with pytest.raises(FileNotFoundException):
        sandbox.files.watch_dir(f"{home}/nothing")
    sandbox.files.write(f"{home}/file", "x")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.watch_dir(f"{home}/file")


async def test_changes_are_streamed(server: Server, sandbox: Sandbox, home: str) -> None:
    box = await AsyncSandbox.connect(sandbox.sandbox_id, **server.sdk)
    events: asyncio.Queue[FilesystemEvent] = asyncio.Queue()
    ends: list[Exception | None] = []
    watch = await box.files.watch_dir(home, events.put_nowait, on_exit=ends.append, recursive=True)
    await box.files.write(f"{home}/streamed.txt", "x")
    deadline, seen = time.monotonic() + 60, []
    while (CREATE, "streamed.txt") not in seen or (WRITE, "streamed.txt") not in seen:
        event = await asyncio.wait_for(events.get(), deadline - time.monotonic())
        seen.append((event.type, event.name))
    await watch.stop()
    assert all(end is None for end in ends)
