"""The lives of real sandboxes: numbers that outlive a restart, why they ended, forks that others made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from e2b import Sandbox
from tests.console.browsers import logged_in
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.platform.world import until

from sandlot.client import Client


@pytest.fixture(scope="module")
def gvisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Forks need a runtime that writes memory."""
    with in_pristine(tmp_path_factory, "gvisor", pool_size="0", boot_snapshots="0") as server:
        yield server


@pytest.fixture
async def admin(gvisor: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with logged_in(f"http://127.0.0.1:{gvisor.port}", gvisor.key) as made:
        yield made


async def get(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(f"/console/api/sandboxes/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_fork_that_was_made_outside_belongs_to_the_user_and_stays(
    gvisor: Server, admin: httpx.AsyncClient
) -> None:
    url = f"http://127.0.0.1:{gvisor.port}"
    keys = [
        (await admin.post("/console/api/keys", json={"name": name, "user_id": name})).json()["secret"]
        for name in ("ada", "bob")
    ]
    async with Client(url, gvisor.key) as client, logged_in(url, keys[0]) as ada, logged_in(url, keys[1]) as bob:
        session = await client.create(user_id="ada", session_id="work")
        parent = (await get(admin, session.id))["id"]
        fork = Sandbox.connect(parent, timeout=300, **gvisor.sdk).fork(timeout=300)[0]
        assert isinstance(fork, Sandbox), fork
        for _ in range(2):  # the platform looks at all sandboxes when it starts: strays would go now
            [row] = [one for one in await rows(ada) if one["id"] == fork.sandbox_id]
            assert (row["fork_of"], row["user_id"], row["session_id"]) == (session.id, "ada", None)
            gvisor.down("--keep")
            gvisor.up()
        assert fork.commands.run("echo alive").stdout == "alive\n"
        assert await rows(bob) == [] and (await bob.get(f"{SANDBOXES}/{fork.sandbox_id}/history")).status_code == 404
        tree = (await get(ada, f"{session.id}/forks"))["sandboxes"]
        assert [(one["id"], one["source"]) for one in tree] == [(parent, None), (fork.sandbox_id, parent)]
        assert (await get(ada, f"{fork.sandbox_id}/forks"))["sandboxes"] == tree, "the same tree from below"
        assert (await ada.post(f"{SANDBOXES}/{fork.sandbox_id}/kill")).status_code == 204
        assert (await ada.post(f"{SANDBOXES}/{session.id}/kill")).status_code == 204

        async def over() -> bool:
            return {parent, fork.sandbox_id} <= {one["id"] for one in (await get(ada, "ended"))["sandboxes"]}

        await until(over, what="both in the list of what ended")
        life = await get(ada, f"{parent}/history")
        assert life["why"] and "user" in life["why"], "the platform's own words, not the provider's"
        assert {"created", "saved", "ended"} <= {mark["kind"] for mark in life["marks"]}
        assert "session ready" in {mark["kind"] for mark in life["marks"]}
        assert (await get(ada, f"{fork.sandbox_id}/history"))["why"] == "Somebody ended it."
        assert (await get(bob, "ended"))["sandboxes"] == []
        assert (await bob.get(f"{SANDBOXES}/{parent}/history")).status_code == 404


async def test_numbers_outlive_a_restart_and_the_sandbox_itself(gvisor: Server, admin: httpx.AsyncClient) -> None:
    sandbox = gvisor.create()
    path = f"{sandbox.sandbox_id}/metrics"
    first = (await get(admin, path))["points"][0]
    gvisor.down("--keep")
    gvisor.up()
    points = (await get(admin, path))["points"]
    assert points[0] == first and len(points) >= 2
    sandbox.kill()
    assert (await get(admin, path))["points"][0] == first
    assert (await get(admin, f"{sandbox.sandbox_id}/logs"))["lines"]


SANDBOXES = "/console/api/sandboxes"


async def rows(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.get(SANDBOXES)).json()["sandboxes"]
    return found
