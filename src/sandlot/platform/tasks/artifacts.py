"""Files that tasks name: taken out of the sandbox when the task rests, kept on the host up to a limit, deleted with the task."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandlot.platform.core.errors import InvalidRequest, NotFound, PlatformError
from sandlot.platform.core.tasks import Attempt, Entry, EntryKind, Task
from sandlot.platform.tasks.boxes import TaskBoxes
from sandlot.platform.tasks.checkout import HOME
from sandlot.platform.tasks.state import TaskState

log = logging.getLogger(__name__)
MAX_PATH = 400
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    path: str
    size: int


class Artifacts:
    def __init__(self, *, root: Path, state: TaskState, boxes: TaskBoxes, max_bytes: int) -> None:
        self._root, self._state, self._boxes, self._max_bytes = root, state, boxes, max_bytes

    async def keep(self, task: Task, attempt: Attempt) -> None:
        """Take what the task names out of its sandbox. What is missing or too large is told in the timeline."""
        box = await self._boxes.reach(task, attempt)
        if box is None:
            return
        room, kept = self._max_bytes, list[str]()
        for path in task.spec.artifacts:
            try:
                inside = _checked(path)
                size = await self._take(box.read(f"{HOME}/{task.spec.repository}/{inside}", room), task, inside, room)
            except (NotFound, InvalidRequest) as error:
                await self._tell(task, attempt, f"artifact {path!r} was not kept: {error}")
                continue
            except PlatformError as error:
                log.warning("an artifact of task %s could not be kept: %s", task.id, error)
                continue
            room -= size
            kept.append(inside)
        await self._state.update(task.id, lambda _: {"artifacts": tuple(kept)})

    async def list(self, task: Task) -> Sequence[Artifact]:
        return await asyncio.to_thread(self._list, task)

    def path(self, task: Task, path: str) -> Path:
        """Raises `NotFound`."""
        found = self._place(task) / _checked(path)
        if not found.is_file() or found.is_symlink():
            raise NotFound(f"task {task.id!r} has kept no artifact {path[:200]!r}")
        return found

    async def discard(self, task: Task) -> None:
        await asyncio.to_thread(shutil.rmtree, self._place(task), True)

    def _list(self, task: Task) -> Sequence[Artifact]:
        place = self._place(task)
        files = sorted(path for path in place.rglob("*") if path.is_file()) if place.exists() else []
        return [Artifact(path=str(path.relative_to(place)), size=path.stat().st_size) for path in files]

    async def _take(self, pieces: AsyncIterator[bytes], task: Task, inside: str, room: int) -> int:
        target = self._place(task) / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.new")
        size = 0
        try:
            with temporary.open("wb") as file:
                async for piece in pieces:
                    size += len(piece)
                    if size > room:
                        raise InvalidRequest(f"artifacts of a task have at most {self._max_bytes >> 20} MiB together")
                    await asyncio.to_thread(file.write, piece)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        return size

    async def _tell(self, task: Task, attempt: Attempt, text: str) -> None:
        await self._state.timeline.add(task.id, Entry(kind=EntryKind.ERROR, text=text, attempt=attempt.number))

    def _place(self, task: Task) -> Path:
        if not _ID.fullmatch(task.id):
            raise InvalidRequest("this is not an id of a task")
        return self._root / task.id


def _checked(path: str) -> str:
    """A path below the checkout. Raises `InvalidRequest`."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or len(path) > MAX_PATH or "\0" in path:
        raise InvalidRequest("an artifact is a path below the checkout")
    if any(part in ("..", ".git") or (part.startswith(".") and part.endswith(".new")) for part in parts):
        raise InvalidRequest("an artifact is a path below the checkout")
    return str(PurePosixPath(*parts))
