"""Tasks on real sandboxes: a platform whose provider is a real server, a person with a clone, and words for what is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from tests.git.world import well
from tests.platform.world import Served

STUCK = ("failed", "cancelled", "needs_you")
ENDED = ("done", "failed", "cancelled", "review", "needs_you")


class Tasks:
    """A user of the platform, over HTTP."""

    def __init__(self, http: httpx.AsyncClient, served: Served, key: str, place: Path) -> None:
        self.http, self.served, self.key, self.place = http, served, key, place

    async def repository(self, name: str = "app", **files: str) -> Path:
        """A hosted repository with these files, and a clone of it that a person has."""
        made = await self.http.post("/repositories", json={"name": name})
        assert made.status_code == 201, made.text
        clone = self.place / f"{name}-{time.monotonic_ns()}"
        url = self.served.url.replace("://", f"://x:{self.key}@")
        await well("clone", "-q", f"{url}/git/{name}.git", clone)
        for path, content in files.items():
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_text(content)
        if files:
            await well("add", "-A", at=clone)
            await well("commit", "-qm", "chore: begin", at=clone)
            await well("push", "-q", "origin", "HEAD:main", at=clone)
        return clone

    async def create(self, prompt: str = "Change it", **body: Any) -> str:
        wanted = {"repository": "app", "prompt": prompt, "network": {"internet": False}, **body}
        if "command" not in wanted and "agent" not in wanted:
            wanted["agent"] = "scripted"
        made = await self.http.post("/tasks", json=wanted)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    async def show(self, id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/tasks/{id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def until(self, id: str, *states: str, seconds: float = 150) -> dict[str, Any]:
        """The task once it is in one of these states. One that it does not leave by itself is a failure, with its timeline."""
        deadline = time.monotonic() + seconds
        while True:
            task = await self.show(id)
            if task["state"] in states:
                return task
            if task["state"] in STUCK or time.monotonic() > deadline:
                raise AssertionError(f"{task['state']}: {task['reason']}\n" + "\n".join(await self.story(id)))
            await asyncio.sleep(0.2)

    async def rests(self, id: str, seconds: float = 150) -> dict[str, Any]:
        return await self.until(id, *ENDED, seconds=seconds)

    async def entries(self, id: str, *kinds: str) -> Sequence[Mapping[str, Any]]:
        params = {"limit": 2000, **({"kinds": ",".join(kinds)} if kinds else {})}
        found: Sequence[Mapping[str, Any]] = (await self.http.get(f"/tasks/{id}/timeline", params=params)).json()[
            "entries"
        ]
        return found

    async def story(self, id: str) -> list[str]:
        return [f"{one['kind']}: {one['text'][:300]} {str(one['data'])[:300]}" for one in await self.entries(id)]

    async def steps(self, id: str) -> dict[str, str]:
        return {step["name"]: step["status"] for step in (await self.http.get(f"/tasks/{id}/steps")).json()["steps"]}

    async def rested(self, id: str, seconds: float = 60) -> dict[str, str]:
        """Its steps once its sandbox rests, too: nobody else waits for that."""
        deadline = time.monotonic() + seconds
        while (steps := await self.steps(id))["cleanup"] not in ("done", "failed"):
            assert time.monotonic() < deadline, steps
            await asyncio.sleep(0.1)
        return steps

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found
